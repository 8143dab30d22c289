//! Measurements by numbers.

/// The number of a measurement; none is 0.
pub(crate) type Id = u64;
