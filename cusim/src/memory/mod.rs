//! Device memory: address ranges, segments within them, and the pools that own segments.

mod device;
mod pool;
mod segment;
mod span;

pub(crate) use device::SimDevice;
pub use pool::PoolCounters;
pub(crate) use pool::{PoolPlace, SimPool};
pub(crate) use segment::{SimBlock, SimSegment};
pub(crate) use span::Span;
