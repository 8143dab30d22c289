//! Small numbers for threads, without allocation, destructors or system calls.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::snapshot::ThreadId;

static NEXT: AtomicU32 = AtomicU32::new(1);

thread_local! {
    static NUMBER: Cell<u32> = const { Cell::new(0) };
}

/// This thread's number, from 1.
#[inline]
pub(crate) fn number() -> ThreadId {
    // A const cell without a destructor can be read at any time in a thread's life.
    ThreadId(NUMBER.with(|number| match number.get() {
        0 => first_time(number),
        n => n,
    }))
}

#[cold]
fn first_time(number: &Cell<u32>) -> u32 {
    // Relaxed: only the uniqueness of the number matters.
    let n = NEXT.fetch_add(1, Relaxed);
    number.set(n);
    n
}
