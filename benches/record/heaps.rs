//! Allocators under test: recorders that others might write.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::{Mutex, MutexGuard, PoisonError};

use backtrace::Backtrace;

use crate::unwinders::{Stack, Take};

pub(crate) type Heap = &'static (dyn GlobalAlloc + Sync);

/// The obvious recorder. Called directly and never installed, so its own allocations do not recurse.
pub(crate) struct Naive;

static NAIVE_LOG: Mutex<Vec<(usize, Option<Backtrace>)>> = Mutex::new(Vec::new());

// SAFETY: passes everything on to the system allocator.
unsafe impl GlobalAlloc for Naive {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps `alloc`'s contract.
        let block = unsafe { System.alloc(layout) };
        note(&NAIVE_LOG, (block.addr(), Some(Backtrace::new_unresolved())));
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        note(&NAIVE_LOG, (block.addr(), None));
        // SAFETY: the caller keeps `dealloc`'s contract.
        unsafe { System.dealloc(block, layout) }
    }
}

/// Takes stacks with another unwinder and keeps only their lengths.
pub(crate) struct Taking(pub(crate) Take);

static TAKING_LOG: Mutex<Vec<(usize, Option<usize>)>> = Mutex::new(Vec::new());

// SAFETY: passes everything on to the system allocator.
unsafe impl GlobalAlloc for Taking {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps `alloc`'s contract.
        let block = unsafe { System.alloc(layout) };
        let mut stack = Stack::default();
        (self.0)(&mut stack);
        note(&TAKING_LOG, (block.addr(), Some(black_box(&stack).addresses().len())));
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        note(&TAKING_LOG, (block.addr(), None));
        // SAFETY: the caller keeps `dealloc`'s contract.
        unsafe { System.dealloc(block, layout) }
    }
}

/// A naive log is emptied at this length.
const NAIVE_ENTRIES: usize = 4096;

fn note<T>(log: &Mutex<Vec<T>>, entry: T) {
    let mut log = lock(log);
    if log.len() == NAIVE_ENTRIES {
        log.clear();
    }
    log.push(entry);
}

pub(crate) fn clear_logs() {
    lock(&NAIVE_LOG).clear();
    lock(&TAKING_LOG).clear();
}

/// Number of frames in the last stack that a recorder of this file took.
pub(crate) fn frames_seen() -> usize {
    // libgcc reports a frame with address 0 behind the outermost one.
    let frames = |stack: &Backtrace| stack.frames().iter().filter(|frame| !frame.ip().is_null()).count();
    let naive = lock(&NAIVE_LOG).iter().rev().find_map(|(_, stack)| stack.as_ref().map(frames));
    let taken = lock(&TAKING_LOG).iter().rev().find_map(|(_, length)| *length);
    naive.or(taken).unwrap_or(0)
}

fn lock<T>(log: &Mutex<T>) -> MutexGuard<'_, T> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}
