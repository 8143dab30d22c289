//! Enums whose variants each have a word, as tables, files and messages show them.

/// Declares the enum with `ALL` variants, `word`, and a `Display` that prints the word.
macro_rules! words {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$about:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$meta])*
        pub enum $name {
            $($(#[$about])* $variant,)*
        }

        impl $name {
            /// All variants, in the order of their numbers.
            pub const ALL: [Self; [$($word),*].len()] = [$(Self::$variant),*];

            /// The word that stands for it.
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }

            /// The variant with this [`word`](Self::word).
            pub fn from_word(word: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|one| one.word() == word)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.word())
            }
        }
    };
}

pub(crate) use words;
