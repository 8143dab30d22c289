//! Post-mortem of a refused allocation, written inside the failing call, once for each recording.

use memtrace_core::export::Text;
use memtrace_core::report::Report;
use memtrace_core::snapshot::Device;
use memtrace_core::units::Bytes;

use super::dump;
use super::outputs::Snapshot;
use super::print_error;
use super::recording::{Recording, SharedRecording};
use crate::hook::heap_refusal::IMPOSSIBLE;
use crate::record::own;

/// Characters in a line of a post-mortem.
const WIDTH: usize = 80;

/// Called with each refused request.
pub(super) fn dump_out_of_memory(device: Device, size: usize) {
    let is_wanted = |recording: &SharedRecording| recording.dumps.on_oom.unwrap_or(size < IMPOSSIBLE);
    let Some(recording) = dump::current().filter(is_wanted) else { return };
    // If another thread holds the lock, it is writing the post-mortem.
    if let Ok(mut pending) = recording.out_of_memory.try_lock() {
        own(|| pending.make(|| write(&recording, device, size)));
    }
}

/// Writes the snapshot, if one is wanted, and the post-mortem. True if later refusals need not try
/// again.
fn write(recording: &Recording, device: Device, size: usize) -> bool {
    let on = if device == Device::Cpu { String::new() } else { format!(" on {device}") };
    let reason = format!("after an allocation of {}{on} failed", Bytes(size as u64));
    recording.flush();
    let snapshot = recording.snapshot();
    let is_done = recording.dumps.on_oom.is_none() || recording.dumps.write(&snapshot, &reason);
    explain(&snapshot, device);
    is_done
}

fn explain(snapshot: &Snapshot, device: Device) {
    let options = Text { width: WIDTH, ..Text::default() };
    let Some(report) = Report::of_refusal(snapshot, device) else { return };
    print_error(&options.show(&report));
}
