//! `pthread_create`: who begins which thread.
#![expect(unsafe_code, reason = "a function of C")]

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::loader;
use super::patch::Pair;
use crate::record::lineage;

type Start = extern "C" fn(*mut c_void) -> *mut c_void;
type Create = unsafe extern "C" fn(*mut libc::pthread_t, *const libc::pthread_attr_t, Start, *mut c_void) -> c_int;

static REAL: AtomicUsize = AtomicUsize::new(0);
/// Another library's comes before it.
static IS_INTERPOSED: AtomicBool = AtomicBool::new(false);

/// Keeps the real one: to be called before anything is changed.
pub(super) fn keep_real() {
    let libraries = [c"libc.so.6", c"libpthread.so.0"].into_iter().filter_map(loader::opened);
    // SAFETY: the handle is a live one and the name ends with a zero byte.
    let find = |library| unsafe { libc::dlsym(library, c"pthread_create".as_ptr()) };
    let found = libraries.map(find).find(|address| !address.is_null());
    // SAFETY: asks for a name, which ends with a zero byte.
    let everybodys = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"pthread_create".as_ptr()) };
    IS_INTERPOSED.store(found.is_none_or(|found| found != everybodys), Ordering::Release);
    REAL.store(found.map_or(0, |address| address.expose_provenance()), Ordering::Release);
    loader::forget_error();
}

/// The real one and ours.
pub(super) fn pair() -> Option<Pair> {
    let (real, interposed) = (REAL.load(Ordering::Acquire), IS_INTERPOSED.load(Ordering::Acquire));
    (real != 0 && !interposed).then_some(Pair { real, ours: create as *const () as usize, interposed })
}

unsafe extern "C" fn create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: Start,
    given: *mut c_void,
) -> c_int {
    lineage::begins(given.addr());
    // SAFETY: only reached in place of the real one, which is a function of this type.
    let real = unsafe { std::mem::transmute::<usize, Create>(REAL.load(Ordering::Acquire)) };
    // SAFETY: the caller's arguments as they came.
    unsafe { real(thread, attributes, start, given) }
}
