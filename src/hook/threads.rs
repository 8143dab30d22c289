//! Hook of `pthread_create`: records which thread started which other thread.
#![expect(unsafe_code, reason = "a function of C")]

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::interpose::{HookedFunction, loader};
use crate::record::measure::lineage;

type Start = extern "C" fn(*mut c_void) -> *mut c_void;
type Create = unsafe extern "C" fn(*mut libc::pthread_t, *const libc::pthread_attr_t, Start, *mut c_void) -> c_int;

/// The address of the original `pthread_create`. 0 if another library interposes that function: then it gets no
/// hook.
static ORIGINAL: AtomicUsize = AtomicUsize::new(0);

/// Looks up the original function. Must be called before any import is patched.
pub(super) fn save_original() {
    let found = loader::function_of(&[c"libc.so.6", c"libpthread.so.0"], c"pthread_create");
    ORIGINAL.store(found.filter(|found| !found.is_interposed).map_or(0, |found| found.address), Ordering::Release);
}

pub(super) fn hooked() -> Option<HookedFunction> {
    let original = ORIGINAL.load(Ordering::Acquire);
    let hook = create as *const () as usize;
    (original != 0).then_some(HookedFunction { original, hook, is_interposed: false, is_counted: false })
}

unsafe extern "C" fn create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    lineage::on_spawn(argument.addr());
    // SAFETY: imports lead here only after `ORIGINAL` was set to a function of this type.
    let original = unsafe { std::mem::transmute::<usize, Create>(ORIGINAL.load(Ordering::Acquire)) };
    // SAFETY: the caller's arguments, unchanged.
    unsafe { original(thread, attributes, start, argument) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_that_no_other_library_interposes_has_a_hook() {
        save_original();
        assert_eq!(hooked().map(|function| function.hook), Some(create as *const () as usize));
    }
}
