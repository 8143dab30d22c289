//! Pool of scratch buffers for stacks that are taken as a whole, off the program's stack: 64 for all threads. Each
//! buffer keeps its last owner's state. No destructor returns a buffer; the next thread takes it over.
#![expect(unsafe_code, reason = "zeroed memory")]

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

use allocator_api2::boxed::Box;
use memtrace_core::snapshot::ThreadId;

use super::deep::DeepStack;
use crate::record::memory::System;
use crate::record::thread;
use crate::record::unwind::collector::CapturedStack;

/// Number of buffers. This many threads may take deep stacks in turns without evicting each other.
const COUNT: usize = 64;

static POOL: [Mutex<Option<Scratch>>; COUNT] = [const { Mutex::new(None) }; COUNT];
static MOVES: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    // It is const and has no destructor. It is a hint: this thread owns the buffer with this index only if the buffer
    // says so.
    static NUMBER: Cell<usize> = const { Cell::new(0) };
}

#[derive(Debug)]
struct Scratch {
    owner: ThreadId,
    memory: Box<ScratchBuffers, System>,
}

#[derive(Debug)]
struct ScratchBuffers {
    stack: CapturedStack,
    deep: DeepStack,
}

impl Scratch {
    #[inline(never)]
    fn new(owner: ThreadId) -> Option<Self> {
        let memory = Box::<ScratchBuffers, System>::try_new_zeroed_in(System).ok()?;
        // SAFETY: all zeros is a valid value: the fields are integers, and addresses that are written before they are
        // read.
        let memory = unsafe { memory.assume_init() };
        Some(Self { owner, memory })
    }
}

/// Calls `work` with a buffer and this thread's last deep stack. The latter is `None` if there is no memory, or if
/// another thread is taking this buffer over.
pub(in crate::record::unwind) fn with_scratch<T>(
    work: impl FnOnce(&mut CapturedStack, Option<&mut DeepStack>) -> T,
) -> T {
    let mut slot = own_scratch();
    match slot.as_mut().and_then(|slot| slot.as_mut()) {
        Some(Scratch { memory, .. }) => {
            let ScratchBuffers { stack, deep } = &mut **memory;
            work(stack, Some(deep))
        }
        None => without_scratch(work),
    }
}

fn own_scratch() -> Option<MutexGuard<'static, Option<Scratch>>> {
    let me = thread::number();
    let slot = POOL.get(NUMBER.get())?.try_lock().ok()?;
    if slot.as_ref().is_some_and(|room| room.owner == me) {
        return Some(slot);
    }
    drop(slot);
    move_in(me)
}

/// Takes over the next buffer from any previous owner.
#[cold]
#[inline(never)]
fn move_in(me: ThreadId) -> Option<MutexGuard<'static, Option<Scratch>>> {
    let number = MOVES.fetch_add(1, Relaxed) % COUNT;
    let mut slot = POOL.get(number)?.try_lock().ok()?;
    match &mut *slot {
        Some(room) => {
            room.owner = me;
            room.memory.deep.forget();
        }
        none => *none = Scratch::new(me),
    }
    NUMBER.set(number);
    Some(slot)
}

/// Out of line, because its frame has two kilobytes.
#[cold]
#[inline(never)]
fn without_scratch<T>(work: impl FnOnce(&mut CapturedStack, Option<&mut DeepStack>) -> T) -> T {
    work(&mut CapturedStack::empty(), None)
}
