//! Hook of `dlsym`. It answers look-ups of hooked functions with their hooks. Programs call `entry::dlsym`, which calls
//! [`decide`].
#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::{HookedFunction, installed, loader, patch};
use crate::errno::KeepErrno;
use crate::record::fork;

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

static ORIGINAL: AtomicUsize = AtomicUsize::new(0);
static IS_INTERPOSED: AtomicBool = AtomicBool::new(false);
/// Look-ups that were answered with hooks.
static ANSWERED: AtomicU64 = AtomicU64::new(0);

/// A hooked `dlsym` returns an address for this name, which no library defines. So a copy of memtrace can recognize
/// another copy in the same process.
pub(in crate::hook) const OUR_NAME: &CStr = c"memtrace_hooks_are_here";

/// Looks up the original `dlsym`. False if it is not found. Must be called before any import is patched.
///
/// The look-up searches the library that defines `dlsym`. The address that the program's own code has for `dlsym` may
/// be that of a PLT stub, which would lead through the patched slot to the hook.
pub(in crate::hook) fn save_original() -> bool {
    let found = loader::function_of(&[c"libc.so.6", c"libdl.so.2"], c"dlsym");
    ORIGINAL.store(found.map_or(0, |found| found.address), Ordering::Release);
    IS_INTERPOSED.store(found.is_some_and(|found| found.is_interposed), Ordering::Release);
    found.is_some()
}

pub(in crate::hook) fn answered() -> u64 {
    ANSWERED.load(Ordering::Relaxed)
}

pub(in crate::hook) fn count_answer() {
    ANSWERED.fetch_add(1, Ordering::Relaxed);
}

pub(in crate::hook) fn original_address() -> usize {
    ORIGINAL.load(Ordering::Acquire)
}

/// `dlsym` as a hooked function, with this hook.
pub(in crate::hook) fn hooked(hook: usize) -> HookedFunction {
    let is_interposed = IS_INTERPOSED.load(Ordering::Acquire);
    HookedFunction { original: original_address(), hook, is_interposed, is_counted: true }
}

pub(in crate::hook) fn call_original(handle: *mut c_void, name: &CStr) -> *mut c_void {
    let address = original_address();
    if address == 0 {
        return std::ptr::null_mut();
    }
    // SAFETY: the address is that of `dlsym`, which has this signature.
    let dlsym = unsafe { std::mem::transmute::<usize, Dlsym>(address) };
    // SAFETY: `dlsym` takes any handle that its caller has, and a C string.
    unsafe { dlsym(handle, name.as_ptr()) }
}

/// Whether the `dlsym` at this address is the hook of another copy of memtrace.
pub(in crate::hook) fn knows_our_name(dlsym: usize) -> bool {
    // SAFETY: a loaded object calls this address as `dlsym`, so it has this signature.
    let dlsym = unsafe { std::mem::transmute::<usize, Dlsym>(dlsym) };
    // SAFETY: `dlsym` takes this handle and a C string.
    let answer = unsafe { dlsym(libc::RTLD_DEFAULT, OUR_NAME.as_ptr()) };
    loader::forget_error();
    !answer.is_null()
}

/// The answer for a look-up. An answer of 0 means that `original` must be called.
#[repr(C)]
pub(super) struct Decision {
    answer: usize,
    original: usize,
}

/// # Safety
/// `handle` and `name` are the arguments of a `dlsym` call, and `caller` is its return address.
pub(super) unsafe extern "C" fn decide(handle: *mut c_void, name: *const c_char, caller: *const c_void) -> Decision {
    let _errno = KeepErrno::new();
    let original = original_address();
    let pass_on = Decision { answer: 0, original };
    if name.is_null() {
        return pass_on;
    }
    // SAFETY: `name` is not null, and `dlsym` takes a C string.
    let name = unsafe { CStr::from_ptr(name) };
    let Some(interposition) = installed() else { return pass_on };
    let is_candidate = (interposition.is_candidate)(name);
    // The caller may be looking up a name in an object that was loaded just now and is not patched yet.
    if (is_candidate || is_new(handle)) && !fork::is_child() {
        patch::patch_new_objects();
    }
    if name == OUR_NAME {
        return Decision { answer: decide as *const () as usize, original };
    }
    if !is_candidate || handle == libc::RTLD_NEXT {
        return pass_on;
    }
    let Some(answer) = (interposition.hook_for)(name, &|| find_for(caller, handle, name)) else { return pass_on };
    count_answer();
    Decision { answer, original }
}

/// Whether this handle was not used recently. For a name without a hook, the imports of new objects are searched only
/// if this is so: the search locks the loader, and not every caller of `dlsym` is prepared for that.
fn is_new(handle: *mut c_void) -> bool {
    const KNOWN: usize = 64;
    static HANDLES: [AtomicUsize; KNOWN] = [const { AtomicUsize::new(0) }; KNOWN];
    if handle == libc::RTLD_DEFAULT || handle == libc::RTLD_NEXT {
        return false;
    }
    let address = handle.addr();
    // Handles are addresses of large structures, so their low bits carry little information.
    let slot = HANDLES.get((address >> 5) % KNOWN);
    slot.is_none_or(|slot| slot.swap(address, Ordering::Relaxed) != address)
}

/// The answer that the original `dlsym` would give to this caller. For `RTLD_DEFAULT`, also searches the caller's own
/// libraries, which a call from here does not reach.
fn find_for(caller: *const c_void, handle: *mut c_void, name: &CStr) -> *mut c_void {
    let found = call_original(handle, name);
    if !found.is_null() || handle != libc::RTLD_DEFAULT {
        return found;
    }
    // SAFETY: every field may be zero.
    let mut object = unsafe { std::mem::zeroed::<libc::Dl_info>() };
    // SAFETY: writes to a local variable; any address is a valid argument.
    if unsafe { libc::dladdr(caller, &mut object) } == 0 || object.dli_fname.is_null() {
        return found;
    }
    // SAFETY: the loader's name is a C string that lives as long as the caller's object.
    let Some(own) = loader::opened(unsafe { CStr::from_ptr(object.dli_fname) }) else { return found };
    let found = call_original(own, name);
    // SAFETY: the handle was opened above. The object stays loaded, because it is the caller's.
    unsafe { libc::dlclose(own) };
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_new_once() {
        let handles = [0x7000_0000_0100, 0x7000_0000_0140, 0x7000_0000_0fe0].map(std::ptr::without_provenance_mut);
        assert_eq!([handles.map(is_new), handles.map(is_new)], [[true; 3], [false; 3]]);
        let same_slot = std::ptr::without_provenance_mut(0x7000_0000_0100 + (64 << 5));
        assert_eq!([same_slot, handles[0], handles[1]].map(is_new), [true, true, false]);
        assert_eq!([libc::RTLD_DEFAULT, libc::RTLD_NEXT].map(is_new), [false; 2]);
    }
}
