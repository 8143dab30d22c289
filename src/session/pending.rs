//! The post-mortem that a refused allocation will leave, and the memory reserved for writing it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::say;
use crate::record::pages::{PageVec, Pages};

/// Before a dump, this many bytes are allocated and given back, to test whether there is enough memory. A dump that
/// runs out of memory would abort a program that might continue.
const ROOM_FOR_A_DUMP: usize = 256 << 20;

/// Address space that is reserved when recording begins, never touched, and given back for the dump. Otherwise, if
/// small blocks use up all memory, none is left for the dump. The reserve is larger than [`ROOM_FOR_A_DUMP`] because
/// allocators need some memory of their own.
const RESERVE: usize = ROOM_FOR_A_DUMP + (32 << 20);

/// The most attempts to write a dump. A file that cannot be written now may be writable later, but each attempt takes
/// time.
const MOST_ATTEMPTS: u32 = 3;

/// Writes the post-mortem once, as soon as there is memory for it.
#[derive(Debug)]
pub(super) struct PendingDump {
    /// Empty if the reservation failed.
    reserve: PageVec<u8>,
    keeps_reserve: bool,
    attempts: u32,
    /// The shortage of memory was reported.
    reported: bool,
    done: bool,
}

impl PendingDump {
    /// Reserves memory if the option `dump_on_oom`, which is `wanted` here, is on.
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

    /// Gives the reserve back and calls `write`, which returns true if no later attempt is needed.
    pub(super) fn make(&mut self, write: impl FnOnce() -> bool) {
        if self.done {
            return;
        }
        self.reserve = PageVec::new_in(Pages);
        if Vec::<u8>::new().try_reserve_exact(ROOM_FOR_A_DUMP).is_ok() {
            self.attempts += 1;
            // This runs inside a call of an allocator, which must not unwind.
            let written = catch_unwind(AssertUnwindSafe(write));
            self.done = written.unwrap_or(true) || self.attempts == MOST_ATTEMPTS;
        } else if !self.reported {
            self.reported = true;
            say("no snapshot after a failed allocation: too little memory is left for one");
        }
        self.reserve();
    }
}
