//! Keys that blocks are grouped by, and the rows of such a group.

use crate::snapshot::words;

words! {
    /// What the rows of a [`Breakdown`] are grouped by.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[non_exhaustive]
    pub enum Key {
        /// The source line of the program.
        #[default]
        Line = "line",
        /// The line of the model. If the model is in a library, [`Key::Line`] is the program's line that calls the
        /// library.
        ModelLine = "model-line",
        /// The line of the model that allocated the block, or for whose call a backward pass allocated it. Needs the
        /// recorded order of the backward pass.
        ForwardLine = "forward-line",
        /// The function of the source line.
        Function = "function",
        /// The tensor operation.
        Operator = "operator",
        /// What the memory is for.
        Category = "category",
        /// The part of the model, named by its spans.
        Module = "module",
        /// The part of the model that allocated the block, or for whose calls a backward pass allocated it. Needs the
        /// recorded order of the backward pass.
        Layer = "layer",
        /// The parameter of the model.
        Parameter = "parameter",
        /// The name that the program gave to the block.
        Name = "name",
        /// The innermost scope, with the scopes around it.
        Scope = "scope",
        /// The block's age at the moment that the table shows.
        Age = "age",
        /// The thread that allocated the block, by the thread's name.
        Thread = "thread",
        /// The CUDA stream, numbered as in exports.
        Stream = "stream",
        /// The crate whose code requested the block; the standard library does not count.
        Crate = "crate",
    }
}

/// For each [`Key`]: the name of the report's section with its table at the peak, the end of the table's heading, and
/// the heading of the column of labels.
const TABLE: [(&str, &str, &str); Key::ALL.len()] = [
    ("peak_by_line", "line", "Location"),
    ("peak_by_model_line", "line of the model", "Location"),
    ("peak_by_forward_line", "line of the forward pass", "Location"),
    ("peak_by_function", "function", "Function"),
    ("peak_by_operator", "operator", "Operator"),
    ("peak_by_category", "category", "Category"),
    ("peak_by_module", "module", "Module"),
    ("peak_by_layer", "layer", "Layer"),
    ("peak_by_parameter", "parameter", "Parameter"),
    ("peak_by_name", "name", "Name"),
    ("peak_by_scope", "scope", "Scope"),
    ("peak_by_age", "age", "Allocated"),
    ("peak_by_thread", "thread", "Thread"),
    ("peak_by_stream", "stream", "Stream"),
    ("peak_by_crate", "crate", "Crate"),
];

impl Key {
    /// The name of the report's section that has the table by this key at the peak.
    pub const fn section(self) -> &'static str {
        TABLE[self as usize].0
    }

    /// The end of a heading, after "at the peak, by".
    pub fn words(self) -> &'static str {
        TABLE[self as usize].1
    }

    /// The heading of the column of labels.
    pub fn column(self) -> &'static str {
        TABLE[self as usize].2
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
    /// The rows, largest first, then by label. They include memory from before the recording and below the threshold.
    pub rows: Vec<Row>,
    /// The sum of all rows.
    pub total: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_its_own_words() {
        for (at, key) in Key::ALL.into_iter().enumerate() {
            assert_eq!((key as usize, Key::from_word(key.word())), (at, Some(key)));
            assert_eq!(format!("{key:?}").to_lowercase(), key.word().replace('-', ""));
            assert_eq!(key.section(), format!("peak_by_{}", key.word().replace('-', "_")));
        }
    }
}
