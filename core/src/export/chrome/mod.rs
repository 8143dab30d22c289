//! Chrome traces (Trace Event Format), which Perfetto (ui.perfetto.dev) and `chrome://tracing` open.
//!
//! [`ChromeTrace`] shows events over time, as torch.profiler does. [`MemoryLayout`] shows the blocks in memory step by
//! step, as ExecuTorch does. Both have a limit of 128 MiB by default, about 300,000 records. Perfetto's trace processor
//! reads such a trace in five seconds and with 600 MiB, which a browser has. (`cargo xtask main-job` prints both
//! figures; a million records are 400 MB.)

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

/// The default size limit of a trace.
const MAX_BYTES: u64 = 128 << 20;

/// The devices to write: `only` this one, or all.
fn devices(data: &SnapshotData, only: Option<Device>) -> impl Iterator<Item = &DeviceSnapshot> {
    data.devices.iter().filter(move |device| only.is_none_or(|only| only == device.device))
}
