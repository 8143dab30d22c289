//! Per-thread state: a stack of contexts, and a capture mode.
//!
//! It has no destructors, because programs call the driver from the destructors of their own thread-locals.

use std::cell::Cell;

use crate::code::{Answer, INVALID_CONTEXT, INVALID_VALUE};
use crate::machine::{GLOBAL, PER_THREAD, RELAXED};

const DEPTH: usize = 32;

#[derive(Clone, Copy)]
struct ContextStack {
    handles: [u64; DEPTH],
    count: usize,
}

thread_local! {
    static CONTEXTS: Cell<ContextStack> = const { Cell::new(ContextStack { handles: [0; DEPTH], count: 0 }) };
    static MODE: Cell<u32> = const { Cell::new(GLOBAL) };
}

pub(super) fn current() -> Answer<u64> {
    let ContextStack { handles, count } = CONTEXTS.get();
    let handle = count.checked_sub(1).and_then(|top| handles.get(top)).copied().unwrap_or(0);
    if handle == 0 { Err(INVALID_CONTEXT) } else { Ok(handle) }
}

pub(super) fn push(handle: u64) -> Answer {
    let mut contexts = CONTEXTS.get();
    *contexts.handles.get_mut(contexts.count).ok_or(INVALID_VALUE)? = handle;
    contexts.count += 1;
    CONTEXTS.set(contexts);
    Ok(())
}

pub(super) fn pop() -> Answer<u64> {
    let handle = current()?;
    let mut contexts = CONTEXTS.get();
    contexts.count -= 1;
    CONTEXTS.set(contexts);
    Ok(handle)
}

/// Replaces the current context; 0 only removes it.
pub(super) fn replace(handle: u64) -> Answer {
    let _ = pop();
    if handle == 0 { Ok(()) } else { push(handle) }
}

pub(super) fn mode() -> u32 {
    MODE.get()
}

/// Changes the thread's capture mode and returns the previous one.
pub(super) fn set_mode(mode: u32) -> Answer<u32> {
    if mode > RELAXED { Err(INVALID_VALUE) } else { Ok(MODE.replace(mode)) }
}

/// The meaning of a stream handle in a program that was built with a per-thread default stream.
pub(super) fn own_stream(stream: u64) -> u64 {
    if stream == 0 { PER_THREAD } else { stream }
}

pub(super) fn number() -> u64 {
    // SAFETY: it only returns a number.
    unsafe { libc::gettid() as u64 }
}
