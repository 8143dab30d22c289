//! What memory is for.

use std::fmt;

/// What a block is for, in the words of PyTorch's memory timeline, with two of our own behind them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Category {
    /// A weight of a model, or a value that goes with it.
    Parameter = 0,
    /// What an optimizer keeps between steps.
    OptimizerState = 1,
    /// Data that the program brought in, constants included.
    Input = 2,
    /// Needed only for a moment, within one phase of the work.
    Temporary = 3,
    /// Kept from the forward pass for the backward pass.
    Activation = 4,
    /// The gradient of a parameter.
    Gradient = 5,
    /// Else from the backward pass.
    AutogradDetail = 6,
    /// Nothing tells.
    #[default]
    Unknown = 7,
    /// Keys and values of tokens that were there before.
    KvCache = 8,
    /// What a library works in: cuBLAS, gemm.
    Workspace = 9,
}

impl Category {
    /// All, in the order in which PyTorch stacks them, which is that of their numbers.
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

    /// One word, as PyTorch writes it.
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

    /// The colour that people know it by, as CSS names it; PyTorch's where PyTorch has the category.
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

    /// The category that is called so.
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
