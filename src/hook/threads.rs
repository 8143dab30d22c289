//! `pthread_create`: who begins which thread.
#![expect(unsafe_code, reason = "a function of C")]

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::interpose::{Pair, loader};
use crate::record::lineage;

type Start = extern "C" fn(*mut c_void) -> *mut c_void;
type Create = unsafe extern "C" fn(*mut libc::pthread_t, *const libc::pthread_attr_t, Start, *mut c_void) -> c_int;

/// 0 where another library's comes before it.
static REAL: AtomicUsize = AtomicUsize::new(0);

/// Keeps the real one: to be called before anything is changed.
pub(super) fn keep_real() {
    let found = loader::function_of(&[c"libc.so.6", c"libpthread.so.0"], c"pthread_create");
    REAL.store(found.filter(|found| !found.is_interposed).map_or(0, |found| found.address), Ordering::Release);
}

/// The real one and ours.
pub(super) fn pair() -> Option<Pair> {
    let real = REAL.load(Ordering::Acquire);
    (real != 0).then_some(Pair { real, ours: create as *const () as usize, interposed: false, is_counted: false })
}

unsafe extern "C" fn create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: Start,
    given: *mut c_void,
) -> c_int {
    lineage::on_spawn(given.addr());
    // SAFETY: only reached in place of the real one, which is a function of this type.
    let real = unsafe { std::mem::transmute::<usize, Create>(REAL.load(Ordering::Acquire)) };
    // SAFETY: the caller's arguments as they came.
    unsafe { real(thread, attributes, start, given) }
}
