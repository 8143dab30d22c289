//! Whose memory is meant, in whatever type the program has it.

use crate::snapshot::Device;

/// A [`Device`], or what stands for one: with the feature `candle`, a device of candle's.
///
/// ```
/// use memtrace::{Device, IntoDevice};
///
/// assert_eq!(Device::Cuda(1).into_device(), Device::Cuda(1));
/// ```
pub trait IntoDevice {
    /// The device.
    fn into_device(self) -> Device;
}

impl IntoDevice for Device {
    fn into_device(self) -> Device {
        self
    }
}
