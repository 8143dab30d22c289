//! Bounds of the calling thread's stack.
#![expect(unsafe_code, reason = "pthread functions")]

use std::cell::Cell;
use std::mem::MaybeUninit;

use crate::record::guard;

/// The end is exclusive and a multiple of eight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) start: u64,
    pub(super) end: u64,
}

const NOT_ASKED: Bounds = Bounds { start: 0, end: 0 };
/// Contains no address.
const UNKNOWN: Bounds = Bounds { start: u64::MAX, end: 0 };

thread_local! {
    // It is const and has no destructor, so it is usable before main, in thread-local destructors and
    // at exit.
    static BOUNDS: Cell<Bounds> = const { Cell::new(NOT_ASKED) };
}

impl Bounds {
    #[inline]
    pub(super) fn contain(self, address: u64) -> bool {
        self.start <= address && address < self.end
    }
}

/// The stack that the system gave this thread. A coroutine or a signal handler may run on another one.
#[inline]
pub(super) fn of_this_thread() -> Bounds {
    match BOUNDS.get() {
        NOT_ASKED => first_time(),
        bounds => bounds,
    }
}

#[cold]
fn first_time() -> Bounds {
    // Own work, because glibc allocates for its answer, and on the main thread reads a file.
    let _own = guard::own_work();
    let bounds = ask().unwrap_or(UNKNOWN);
    BOUNDS.set(bounds);
    bounds
}

fn ask() -> Option<Bounds> {
    let mut attributes = MaybeUninit::uninit();
    // SAFETY: no preconditions.
    let this = unsafe { libc::pthread_self() };
    // SAFETY: `attributes` is valid for writes.
    if unsafe { libc::pthread_getattr_np(this, attributes.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call succeeded.
    let mut attributes = unsafe { attributes.assume_init() };
    let (mut start, mut size) = (std::ptr::null_mut(), 0);
    // SAFETY: the attributes are initialised; `start` and `size` are valid for writes.
    let found = unsafe { libc::pthread_attr_getstack(&attributes, &mut start, &mut size) } == 0;
    // SAFETY: initialised, and not used again.
    unsafe { libc::pthread_attr_destroy(&mut attributes) };
    let start = start.addr() as u64;
    let end = start.checked_add(size as u64)?;
    found.then_some(Bounds { start, end: end - end % 8 })
}
