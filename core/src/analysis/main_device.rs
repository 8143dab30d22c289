//! The device that is used if none is named.

use crate::snapshot::{Device, DeviceSnapshot, SnapshotData};

/// The default device of a report: the one with the largest peak, CUDA devices before host memory.
pub fn main_device(data: &SnapshotData) -> Option<Device> {
    let on_gpu = |device: &DeviceSnapshot| matches!(device.device, Device::Cuda(_)) && device.peak.total() > 0;
    let largest = data.devices.iter().rev().max_by_key(|device| (on_gpu(device), device.peak.total()));
    largest.map(|device| device.device)
}

/// The named device, or else the main device.
pub fn device_or_main(data: &SnapshotData, device: Option<Device>) -> Option<&DeviceSnapshot> {
    device.or_else(|| main_device(data)).and_then(|device| data.device(device))
}
