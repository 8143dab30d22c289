//! The snapshot that a failed allocation will leave, and the memory that is kept for it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::say;
use crate::record::pages::{PageVec, Pages};

/// Taken from the allocator before the dump, to see that there is enough left: a dump that fails for want of memory
/// would end a program that might go on.
const ROOM_FOR_A_DUMP: usize = 256 << 20;

/// Kept aside from the beginning, for memory that runs out in small steps; it is never touched. A little more than is asked
/// for, because allocators take a little more.
const KEPT_ASIDE: usize = ROOM_FOR_A_DUMP + (32 << 20);

/// A file that cannot be written now may be later, but each attempt takes a while.
const MOST_ATTEMPTS: u32 = 3;

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

    /// `write` is true if there is nothing more to be done.
    pub(super) fn make(&mut self, write: impl FnOnce() -> bool) {
        if self.done {
            return;
        }
        self.give_room_back();
        if Vec::<u8>::new().try_reserve_exact(ROOM_FOR_A_DUMP).is_ok() {
            self.attempts += 1;
            // Nothing may unwind out of an allocator.
            let written = catch_unwind(AssertUnwindSafe(write));
            self.done = written.unwrap_or(true) || self.attempts == MOST_ATTEMPTS;
        } else if !std::mem::replace(&mut self.said, true) {
            say("no snapshot after a failed allocation: too little memory is left for one");
        }
        self.keep_room();
    }
}
