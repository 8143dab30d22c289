//! A snapshot out of a failed allocation: one in a recording, from inside the failing call.

use std::io::Write;

use super::dump;
use super::outputs::Snapshot;
use super::recording::{Recording, Shared};
use crate::export::Text;
use crate::record::own;
use crate::report::Report;
use crate::snapshot::Device;
use crate::units::Bytes;
use crate::write_errors;

/// So much no machine has: who asks for it finds out whether it can be asked for, or has a defect that is no lack of
/// memory.
const NO_MEMORY_AT_ALL: usize = 1 << 46;

/// Characters in a line of a post-mortem.
const WIDTH: usize = 80;

/// To be called with each request that is refused.
pub(super) fn dump_out_of_memory(device: Device, size: usize) {
    let wanted = |recording: &Shared| match recording.dumps.on_oom {
        None => size < NO_MEMORY_AT_ALL,
        Some(wanted) => wanted,
    };
    let Some(recording) = dump::current().filter(wanted) else { return };
    // Another thread may be at it.
    if let Ok(mut pending) = recording.out_of_memory.try_lock() {
        own(|| pending.make(|| write(&recording, device, size)));
    }
}

/// True if there is nothing more to be done.
fn write(recording: &Recording, device: Device, size: usize) -> bool {
    let place = if device == Device::Cpu { String::new() } else { format!(" on {device}") };
    let reason = format!("after an allocation of {}{place} failed", Bytes(size as u64));
    recording.flush();
    if recording.dumps.on_oom.is_none() {
        explain(&recording.snapshot(), device);
        return true;
    }
    let Some(dumped) = recording.dumps.write(|| recording.snapshot(), &reason) else { return false };
    explain(&dumped.snapshot, device);
    dumped.is_written
}

fn explain(snapshot: &Snapshot, device: Device) {
    let options = Text { width: WIDTH, ..Text::default() };
    let text = Report::of_refusal(snapshot, device).map_or_else(String::new, |report| options.show(&report));
    let _limit = write_errors::errors_only();
    let _ = std::io::stderr().write_all(text.as_bytes());
}
