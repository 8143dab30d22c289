//! Ids of measurements.

/// 0 is no measurement.
pub(crate) type Id = u64;
