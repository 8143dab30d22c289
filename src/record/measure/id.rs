//! Ids of measurements.

/// 0 means no measurement.
pub(crate) type Id = u64;
