//! What a driver answers.

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gpus {
    pub(crate) count: usize,
    /// Bytes of the first one's memory.
    pub(crate) memory: u64,
    /// The first one's.
    pub(crate) name: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Real(Gpus),
    Simulated(Gpus),
    /// Why there is none.
    None(String),
}
