//! Keys that blocks are grouped by, and the rows of such a group.

/// What the rows of a [`Breakdown`] stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Key {
    /// The source line of the program.
    #[default]
    Line,
    /// The line of the model. Where that is a library's, [`Key::Line`] is the program's call.
    ModelLine,
    /// The function of the source line.
    Function,
    /// The tensor operation.
    Operator,
    /// What the memory is for.
    Category,
    /// The part of the model.
    Module,
    /// The parameter of the model.
    Parameter,
    /// The name that the program gave to the block.
    Name,
    /// The innermost scope, with the scopes around it.
    Scope,
    /// How long before the moment it was allocated.
    Age,
    /// The thread that allocated it, by its name.
    Thread,
    /// The CUDA stream, as the exporters number them.
    Stream,
    /// The crate whose code requested it, the standard library's not included.
    Crate,
}

/// The word of a key on a command line, the key of its table at the peak, the end of that table's heading, and the heading
/// of the column.
const WORDS: [(&str, &str, &str, &str); 13] = [
    ("line", "peak_by_line", "line", "Location"),
    ("model-line", "peak_by_model_line", "line of the model", "Location"),
    ("function", "peak_by_function", "function", "Function"),
    ("operator", "peak_by_operator", "operator", "Operator"),
    ("category", "peak_by_category", "category", "Category"),
    ("module", "peak_by_module", "module", "Module"),
    ("parameter", "peak_by_parameter", "parameter", "Parameter"),
    ("name", "peak_by_name", "name", "Name"),
    ("scope", "peak_by_scope", "scope", "Scope"),
    ("age", "peak_by_age", "age", "Allocated"),
    ("thread", "peak_by_thread", "thread", "Thread"),
    ("stream", "peak_by_stream", "stream", "Stream"),
    ("crate", "peak_by_crate", "crate", "Crate"),
];

impl Key {
    /// All keys.
    pub const ALL: [Self; 13] = [
        Self::Line,
        Self::ModelLine,
        Self::Function,
        Self::Operator,
        Self::Category,
        Self::Module,
        Self::Parameter,
        Self::Name,
        Self::Scope,
        Self::Age,
        Self::Thread,
        Self::Stream,
        Self::Crate,
    ];

    /// Its name on a command line, such as `model-line`.
    pub fn word(self) -> &'static str {
        WORDS[self as usize].0
    }

    /// The key with this name on a command line.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|key| key.word() == word)
    }

    /// The key of the report's section that has it at the peak.
    pub const fn section(self) -> &'static str {
        WORDS[self as usize].1
    }

    /// The end of a heading: what follows "at the peak, by".
    pub fn words(self) -> &'static str {
        WORDS[self as usize].2
    }

    /// The heading of the column that has its labels.
    pub fn column(self) -> &'static str {
        WORDS[self as usize].3
    }
}

/// A row of a breakdown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// The line, function, scope, name or other key.
    pub label: String,
    /// Bytes of its blocks, by weight.
    pub bytes: u64,
    /// Median size of its recorded blocks, rounded down.
    pub median: u64,
    /// Number of its blocks, an estimate in a sample; `None` if only the bytes are known.
    pub count: Option<u64>,
}

/// Live memory at one moment, grouped by a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Breakdown {
    /// Largest first, then by label, including the rows for memory from before the recording and below the threshold.
    pub rows: Vec<Row>,
    /// The sum of all rows.
    pub total: u64,
}

#[cfg(test)]
mod tests {

    use crate::analysis::Key;

    #[test]
    fn a_key_has_its_own_words() {
        for (at, key) in Key::ALL.into_iter().enumerate() {
            assert_eq!((key as usize, Key::from_word(key.word())), (at, Some(key)));
            assert_eq!(format!("{key:?}").to_lowercase(), key.word().replace('-', ""));
            assert_eq!(key.section(), format!("peak_by_{}", key.word().replace('-', "_")));
        }
    }
}
