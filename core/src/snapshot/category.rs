//! Memory categories, as in PyTorch's memory timeline.

use std::fmt;

/// What a block is for: the categories of PyTorch's memory timeline, and two more at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Category {
    /// A weight of a model, or a buffer that belongs to one.
    Parameter = 0,
    /// State that an optimizer keeps between steps.
    OptimizerState = 1,
    /// Data that the program supplied, including constants.
    Input = 2,
    /// Needed briefly, within one phase of the work.
    Temporary = 3,
    /// Kept from the forward pass for the backward pass.
    Activation = 4,
    /// The gradient of a parameter.
    Gradient = 5,
    /// Other results of the backward pass.
    AutogradDetail = 6,
    /// Not known.
    #[default]
    Unknown = 7,
    /// Attention keys and values of earlier tokens.
    KvCache = 8,
    /// Workspace of a library such as cuBLAS or gemm.
    Workspace = 9,
}

impl Category {
    /// All categories by number, which is PyTorch's stacking order.
    pub const ALL: [Self; 10] = [
        Self::Parameter,
        Self::OptimizerState,
        Self::Input,
        Self::Temporary,
        Self::Activation,
        Self::Gradient,
        Self::AutogradDetail,
        Self::Unknown,
        Self::KvCache,
        Self::Workspace,
    ];

    /// The category as PyTorch writes it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Parameter => "PARAMETER",
            Self::OptimizerState => "OPTIMIZER_STATE",
            Self::Input => "INPUT",
            Self::Temporary => "TEMPORARY",
            Self::Activation => "ACTIVATION",
            Self::Gradient => "GRADIENT",
            Self::AutogradDetail => "AUTOGRAD_DETAIL",
            Self::Unknown => "unknown",
            Self::KvCache => "KV_CACHE",
            Self::Workspace => "WORKSPACE",
        }
    }

    /// Its usual colour as a CSS name; PyTorch's where PyTorch has the category.
    pub fn colour(self) -> &'static str {
        match self {
            Self::Parameter => "darkgreen",
            Self::OptimizerState => "goldenrod",
            Self::Input => "black",
            Self::Temporary => "mediumpurple",
            Self::Activation => "red",
            Self::Gradient => "mediumblue",
            Self::AutogradDetail => "royalblue",
            Self::Unknown => "grey",
            Self::KvCache => "darkorange",
            Self::Workspace => "saddlebrown",
        }
    }

    /// The category written as this word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|category| category.word() == word)
    }
}

impl fmt::Display for Category {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_in_the_order_of_the_numbers_and_words_lead_back() {
        assert!(Category::ALL.iter().enumerate().all(|(number, category)| *category as usize == number));
        assert!(Category::ALL.iter().all(|category| Category::from_word(category.word()) == Some(*category)));
        assert_eq!(Category::from_word("parameter"), None);
    }
}
