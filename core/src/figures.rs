//! Parts of JSON documents.

/// Declares the type of a part and its function `of`, which makes the part. Each key of the part is declared with its
/// meaning, type and value. The values may use the variables that `let` defines before them.
macro_rules! figures {
    ($(
        $(#[$about:meta])*
        $vis:vis struct $name:ident $(<$life:lifetime>)? ($($given:ident: $type:ty),*) $(let $local:pat = $found:expr;)* {
            $($(#[$meta:meta])* $key_vis:vis $key:ident: $of:ty = $value:expr,)*
        }
    )*) => {$(
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize)]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        $vis struct $name $(<$life>)? {
            $($(#[$meta])* $key_vis $key: $of,)*
        }

        impl $(<$life>)? $name $(<$life>)? {
            $vis fn of($($given: $type),*) -> Self {
                $(let $local = $found;)*
                Self { $($key: $value,)* }
            }
        }
    )*};
}

pub(crate) use figures;
