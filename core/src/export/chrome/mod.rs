//! Trace Event Format, which Perfetto (ui.perfetto.dev) and `chrome://tracing` open.
//!
//! [`ChromeTrace`] is what happened over time, as torch.profiler writes it; [`MemoryLayout`] is what lay where
//! in memory, step by step, as ExecuTorch writes it.

mod event;
mod layout;
mod names;
#[cfg(test)]
mod property_tests;
mod scopes;
mod stack_frames;
mod steps;
#[cfg(test)]
mod tests;
mod timeline;

pub use layout::MemoryLayout;
pub use steps::Steps;
pub use timeline::ChromeTrace;

use crate::snapshot::{Device, DeviceSnapshot, SnapshotData};

/// What a trace keeps to unless something else is asked for.
const MAX_BYTES: u64 = 128 << 20;

/// The devices to write: the one that was asked for, or all.
fn devices(data: &SnapshotData, only: Option<Device>) -> impl Iterator<Item = &DeviceSnapshot> {
    data.devices.iter().filter(move |device| only.is_none_or(|only| only == device.device))
}
