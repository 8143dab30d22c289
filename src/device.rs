//! Conversion of other libraries' device types to [`Device`].

use memtrace_core::snapshot::Device;

/// A [`Device`], or a type that stands for one: with the feature `candle`, also `candle_core::Device`.
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
