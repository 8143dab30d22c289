//! The possible categories of a block whose category is unknown.

/// The possible categories of a block whose category is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Either {
    /// A gradient, or another block of the backward pass that a gradient keeps alive.
    GradientOrGraph,
    /// A variable, of a model or an optimizer.
    ModelOrOptimizer,
    /// The next block of the same site replaces it in the next iteration: optimizer state, a copy of a parameter, or a
    /// result.
    Replaced,
    /// Data that was loaded once and stays: a data set, or weights.
    InputOrWeights,
    /// A block of a suballocator, which hands out parts of it to tensors.
    GivenOut,
}

impl Either {
    /// The label in tables.
    pub fn label(self) -> &'static str {
        match self {
            Self::GradientOrGraph => "unknown (gradient or graph)",
            Self::ModelOrOptimizer => "unknown (kept by model or optimizer)",
            Self::Replaced => "unknown (kept from one iteration to the next)",
            Self::InputOrWeights => "unknown (input or weights)",
            Self::GivenOut => "unknown (given out in parts)",
        }
    }
}
