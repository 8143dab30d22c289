//! Where device memory is: address ranges, segments in them, pools that own segments.

mod device;
mod pool;
mod segment;
mod span;

pub(crate) use device::Device;
pub use pool::Counters;
pub(crate) use pool::Pool;
pub(crate) use segment::{Block, Segment};
pub(crate) use span::Span;
