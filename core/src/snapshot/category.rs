//! Memory categories, as in PyTorch's memory timeline.

use super::words::words;

words! {
    /// What a block is for: the categories of PyTorch's memory timeline, and two more at the end.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(u8)]
    pub enum Category {
        /// A weight of a model, or a buffer that belongs to one.
        Parameter = "PARAMETER",
        /// State that an optimizer keeps between steps.
        OptimizerState = "OPTIMIZER_STATE",
        /// Data that the program supplied, including constants.
        Input = "INPUT",
        /// Needed briefly, within one phase of the work.
        Temporary = "TEMPORARY",
        /// Kept from the forward pass for the backward pass.
        Activation = "ACTIVATION",
        /// The gradient of a parameter.
        Gradient = "GRADIENT",
        /// Other results of the backward pass.
        AutogradDetail = "AUTOGRAD_DETAIL",
        /// Not known.
        #[default]
        Unknown = "unknown",
        /// Attention keys and values of earlier tokens.
        KvCache = "KV_CACHE",
        /// Workspace of a library such as cuBLAS or gemm.
        Workspace = "WORKSPACE",
    }
}

impl Category {
    /// Its usual colour as a CSS name. This is PyTorch's colour where PyTorch has the category.
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_lead_back_to_their_categories() {
        assert!(Category::ALL.iter().all(|category| Category::from_word(category.word()) == Some(*category)));
        assert_eq!(Category::from_word("parameter"), None);
    }
}
