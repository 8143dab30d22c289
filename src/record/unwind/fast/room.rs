//! Memory for stacks that are taken as a whole, off the program's own stack: a few rooms for all threads, each of which
//! keeps the one that it had last.
#![expect(unsafe_code, reason = "memory that is all zeros")]

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

use allocator_api2::boxed::Box;

use super::deep::{DeepStack, Ends};
use crate::record::memory::{OwnVec, System};
use crate::record::thread;
use crate::record::unwind::collector::CapturedStack;
use crate::record::unwind::registers::Registers;
use crate::snapshot::ThreadId;

/// So many threads may have deep stacks by turns without driving out one another.
const COUNT: usize = 64;

static ROOMS: [Mutex<Option<Room>>; COUNT] = [const { Mutex::new(None) }; COUNT];
/// How often a thread has moved into one.
static MOVES: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    // Const and without a destructor. The room with this number is the thread's if it says so.
    static NUMBER: Cell<usize> = const { Cell::new(0) };
}

#[derive(Debug)]
struct Room {
    owner: ThreadId,
    marks: OwnVec<Registers>,
    memory: Box<Memory, System>,
}

#[derive(Debug)]
struct Memory {
    stack: CapturedStack,
    ends: Ends,
}

impl Room {
    #[inline(never)]
    fn new(owner: ThreadId) -> Option<Self> {
        let memory = Box::<Memory, System>::try_new_zeroed_in(System).ok()?;
        // SAFETY: numbers, and addresses that nobody reads before they are written.
        let memory = unsafe { memory.assume_init() };
        Some(Self { owner, marks: OwnVec::new_in(System), memory })
    }
}

/// Does something with memory for a stack, and with what this thread knows of its last deep one. Nothing of that if
/// there is no memory, or if somebody is just taking this thread's room.
pub(in crate::record::unwind) fn with_room<T>(work: impl FnOnce(&mut CapturedStack, Option<DeepStack<'_>>) -> T) -> T {
    let mut slot = own_room();
    match slot.as_mut().and_then(|slot| slot.as_mut()) {
        Some(Room { marks, memory, .. }) => {
            let Memory { stack, ends } = &mut **memory;
            work(stack, Some(DeepStack { marks, ends }))
        }
        None => without_room(work),
    }
}

fn own_room() -> Option<MutexGuard<'static, Option<Room>>> {
    let me = thread::number();
    let slot = ROOMS.get(NUMBER.get())?.try_lock().ok()?;
    if slot.as_ref().is_some_and(|room| room.owner == me) {
        return Some(slot);
    }
    drop(slot);
    move_in(me)
}

/// Into the next room, whoever had it.
#[cold]
#[inline(never)]
fn move_in(me: ThreadId) -> Option<MutexGuard<'static, Option<Room>>> {
    let number = MOVES.fetch_add(1, Relaxed) % COUNT;
    let mut slot = ROOMS.get(number)?.try_lock().ok()?;
    match &mut *slot {
        Some(room) => {
            room.owner = me;
            room.marks.clear();
        }
        none => *none = Room::new(me),
    }
    NUMBER.set(number);
    Some(slot)
}

/// Apart, because of the two kilobytes that it takes.
#[cold]
#[inline(never)]
fn without_room<T>(work: impl FnOnce(&mut CapturedStack, Option<DeepStack<'_>>) -> T) -> T {
    work(&mut CapturedStack::empty(), None)
}
