//! Post-mortem of a refused allocation, written inside the failing call, once for each recording.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::dump;
use super::outputs::Snapshot;
use super::recording::{Recording, SharedRecording};
use super::say;
use crate::export::Text;
use crate::record::own;
use crate::record::pages::{PageVec, Pages};
use crate::report::Report;
use crate::snapshot::Device;
use crate::units::Bytes;
use crate::write_errors;

/// More than any machine has (64 TiB): such a request probes the limit or is a bug, not a lack of memory.
const IMPOSSIBLE: usize = 1 << 46;

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

/// True if no later refusal has to try again.
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
    let text = options.show(&report);
    let _limit = write_errors::errors_only();
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Allocated and given back before the dump, as a test: a dump that runs out of memory aborts a program that might
/// continue.
const ROOM_FOR_A_DUMP: usize = 256 << 20;

/// Address space reserved when recording begins and never touched, for memory that runs out in small steps. It is
/// larger than [`ROOM_FOR_A_DUMP`] because allocators need some memory of their own.
const RESERVE: usize = ROOM_FOR_A_DUMP + (32 << 20);

/// A file that cannot be written now may be writable later, but each attempt takes time.
const MOST_ATTEMPTS: u32 = 3;

/// The post-mortem that a refused allocation will leave, and the memory reserved for it.
#[derive(Debug)]
pub(super) struct PendingDump {
    /// Empty if the reservation failed.
    reserve: PageVec<u8>,
    keeps_reserve: bool,
    attempts: u32,
    /// The lack of memory was reported.
    reported: bool,
    done: bool,
}

impl PendingDump {
    /// Reserves memory if the dump was requested.
    pub(super) fn new(wanted: Option<bool>) -> Self {
        let mut pending = Self {
            reserve: PageVec::new_in(Pages),
            keeps_reserve: wanted == Some(true),
            attempts: 0,
            reported: false,
            done: wanted == Some(false),
        };
        pending.reserve();
        pending
    }

    fn reserve(&mut self) {
        if self.keeps_reserve && !self.done {
            // A failure is reported when the memory is needed.
            let _ = self.reserve.try_reserve_exact(RESERVE);
        }
    }

    /// Calls `write` with the reserve given back. `write` returns true if no later attempt is needed.
    pub(super) fn make(&mut self, write: impl FnOnce() -> bool) {
        if self.done {
            return;
        }
        self.reserve = PageVec::new_in(Pages);
        if Vec::<u8>::new().try_reserve_exact(ROOM_FOR_A_DUMP).is_ok() {
            self.attempts += 1;
            // An allocator must not unwind.
            let written = catch_unwind(AssertUnwindSafe(write));
            self.done = written.unwrap_or(true) || self.attempts == MOST_ATTEMPTS;
        } else if !self.reported {
            self.reported = true;
            say("no snapshot after a failed allocation: too little memory is left for one");
        }
        self.reserve();
    }
}
