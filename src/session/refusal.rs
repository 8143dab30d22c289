//! A snapshot out of a failed allocation: one in a recording, from inside the failing call.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::outputs::Snapshot;
use super::recording::{Recording, Shared};
use super::{dump, say};
use crate::export::post_mortem;
use crate::record::guard;
use crate::record::pages::{PageVec, Pages};
use crate::snapshot::Device;
use crate::units::Bytes;
use crate::write_errors;

/// Taken from the allocator before the dump, to see that there is enough left: a dump that fails for want of memory
/// would end a program that might go on.
const ROOM_FOR_A_DUMP: usize = 256 << 20;

/// Kept aside from the beginning, for memory that runs out in small steps; it is never touched. A little more than is asked
/// for, because allocators take a little more.
const KEPT_ASIDE: usize = ROOM_FOR_A_DUMP + (32 << 20);

/// A file that cannot be written now may be later, but each attempt takes a while.
const MOST_ATTEMPTS: u32 = 3;

/// So much no machine has: who asks for it finds out whether it can be asked for, or has a defect that is no lack of
/// memory.
const NO_MEMORY_AT_ALL: usize = 1 << 46;

/// Characters in a line of a post-mortem.
const WIDTH: usize = 120;

/// The dump that is to come.
#[derive(Debug)]
pub(super) struct Pending {
    /// Empty if there was none to be had.
    room: PageVec<u8>,
    keeps_room: bool,
    attempts: u32,
    /// That there was too little memory was said.
    said: bool,
    /// It was written, or is not tried again.
    done: bool,
}

impl Pending {
    /// Keeps room for it, if somebody asked for one.
    pub(super) fn new(wanted: Option<bool>) -> Self {
        let (keeps_room, done) = (wanted == Some(true), wanted == Some(false));
        let mut pending = Self { room: PageVec::new_in(Pages), keeps_room, attempts: 0, said: false, done };
        pending.keep_room();
        pending
    }

    fn keep_room(&mut self) {
        if self.keeps_room && !self.done {
            // What there is none of is said when it is needed.
            let _ = self.room.try_reserve_exact(KEPT_ASIDE);
        }
    }

    fn give_room_back(&mut self) {
        self.room = PageVec::new_in(Pages);
    }

    fn make(&mut self, recording: &Recording, device: Device, size: usize) {
        if self.done {
            return;
        }
        self.give_room_back();
        if Vec::<u8>::new().try_reserve_exact(ROOM_FOR_A_DUMP).is_ok() {
            self.attempts += 1;
            // Nothing may unwind out of an allocator.
            let written = catch_unwind(AssertUnwindSafe(|| write(recording, device, size)));
            self.done = written.unwrap_or(true) || self.attempts == MOST_ATTEMPTS;
        } else if !std::mem::replace(&mut self.said, true) {
            say("no snapshot after a failed allocation: too little memory is left for one");
        }
        self.keep_room();
    }
}

/// To be called with each request that is refused.
pub(super) fn dump_out_of_memory(device: Device, size: usize) {
    let wanted = |recording: &Shared| match recording.dumps.on_oom {
        None => size < NO_MEMORY_AT_ALL,
        Some(wanted) => wanted,
    };
    let Some(recording) = dump::current().filter(wanted) else { return };
    let _own = guard::own_work();
    // Another thread may be at it.
    if let Ok(mut pending) = recording.out_of_memory.try_lock() {
        pending.make(&recording, device, size);
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
    let Some(dumped) = recording.dumps.write(recording, &reason) else { return false };
    explain(&dumped.snapshot, device);
    dumped.is_written
}

fn explain(snapshot: &Snapshot, device: Device) {
    let text = post_mortem::to_string(snapshot, Some(device), WIDTH);
    let _limit = write_errors::errors_only();
    let _ = std::io::stderr().write_all(text.as_bytes());
}
