//! `dlsym`: who asks for a function that has a stand-in gets that.
#![expect(unsafe_code, reason = "functions of C, and one in assembly that must leave its caller's frame alone")]

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::{Pair, loader, patch, table};
use crate::errno::KeepErrno;
use crate::record::fork;

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// The real one, kept before anything was changed.
static REAL_DLSYM: AtomicUsize = AtomicUsize::new(0);
/// Another library's comes before it.
static IS_INTERPOSED: AtomicBool = AtomicBool::new(false);
/// Answers that were ours.
static ANSWERED: AtomicU64 = AtomicU64::new(0);

/// The name by which a copy of this library in the same process is known to others, through the `dlsym`
/// that it has put in the place of the real one.
pub(in crate::hook) const OUR_NAME: &CStr = c"memtrace_hooks_are_here";

/// Keeps the real `dlsym`: to be called before anything is changed; false if it cannot be found. It is
/// asked for in its library: a program that takes its address may have a stub of its own under that name,
/// which leads to what we change.
pub(in crate::hook) fn keep_real() -> bool {
    let found = loader::function_of(&[c"libc.so.6", c"libdl.so.2"], c"dlsym");
    REAL_DLSYM.store(found.map_or(0, |found| found.address), Ordering::Release);
    IS_INTERPOSED.store(found.is_some_and(|found| found.is_interposed), Ordering::Release);
    found.is_some()
}

/// Functions that were asked for by name and answered with ours.
pub(in crate::hook) fn answered() -> u64 {
    ANSWERED.load(Ordering::Relaxed)
}

/// One more was.
pub(in crate::hook) fn count_answer() {
    ANSWERED.fetch_add(1, Ordering::Relaxed);
}

pub(in crate::hook) fn real_address() -> usize {
    REAL_DLSYM.load(Ordering::Acquire)
}

/// `dlsym` and ours.
pub(in crate::hook) fn pair() -> Pair {
    let interposed = IS_INTERPOSED.load(Ordering::Acquire);
    Pair { real: real_address(), ours: dlsym as *const () as usize, interposed, is_counted: true }
}

/// Asks the real `dlsym`.
pub(in crate::hook) fn real_dlsym(handle: *mut c_void, name: &CStr) -> *mut c_void {
    let address = REAL_DLSYM.load(Ordering::Acquire);
    if address == 0 {
        return std::ptr::null_mut();
    }
    // SAFETY: the address is that of `dlsym`.
    let dlsym = unsafe { std::mem::transmute::<usize, Dlsym>(address) };
    // SAFETY: `dlsym` takes any handle that its caller has, and a C string.
    unsafe { dlsym(handle, name.as_ptr()) }
}

/// Is what another `dlsym` finds by our name a copy of ours?
pub(in crate::hook) fn knows_our_name(dlsym: usize) -> bool {
    // SAFETY: it is what some object calls as `dlsym`.
    let dlsym = unsafe { std::mem::transmute::<usize, Dlsym>(dlsym) };
    // SAFETY: `dlsym` takes this handle and a C string.
    let answer = unsafe { dlsym(libc::RTLD_DEFAULT, OUR_NAME.as_ptr()) };
    loader::forget_error();
    !answer.is_null()
}

/// An answer, or where to go on if there is none.
#[repr(C)]
struct Decision {
    answer: usize,
    go_on: usize,
}

/// Stands in for `dlsym`. Where there is nothing to answer it jumps to the real one, which then sees
/// its true caller: `RTLD_NEXT` means "after the caller".
#[unsafe(naked)]
unsafe extern "C" fn dlsym(_handle: *mut c_void, _name: *const c_char) -> *mut c_void {
    core::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "mov rdx, [rsp + 24]",
        "call {decide}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jz 2f",
        "ret",
        "2:",
        "jmp rdx",
        decide = sym decide,
    )
}

/// # Safety
/// The arguments as `dlsym` takes them, and where it returns to.
unsafe extern "C" fn decide(handle: *mut c_void, name: *const c_char, caller: *const c_void) -> Decision {
    let _errno = KeepErrno::new();
    let go_on = REAL_DLSYM.load(Ordering::Acquire);
    let nothing = Decision { answer: 0, go_on };
    if name.is_null() {
        return nothing;
    }
    // SAFETY: `dlsym` takes a C string.
    let name = unsafe { CStr::from_ptr(name) };
    let Some(table) = table() else { return nothing };
    let is_meant = (table.is_meant)(name);
    // What is asked for may lie in an object that was loaded just now.
    if (is_meant || is_new(handle)) && !fork::is_child() {
        patch::patch_new_objects();
    }
    if name == OUR_NAME {
        return Decision { answer: decide as *const () as usize, go_on };
    }
    if !is_meant || handle == libc::RTLD_NEXT {
        return nothing;
    }
    match (table.answer)(name, &|| find_for(caller, handle, name)) {
        Some(ours) => {
            count_answer();
            Decision { answer: ours, go_on }
        }
        None => nothing,
    }
}

/// Has this handle not been asked lately? Objects are looked for only then: the loader has to be locked for
/// that, which not every caller of `dlsym` is prepared for.
fn is_new(handle: *mut c_void) -> bool {
    const KNOWN: usize = 64;
    static HANDLES: [AtomicUsize; KNOWN] = [const { AtomicUsize::new(0) }; KNOWN];
    if handle == libc::RTLD_DEFAULT || handle == libc::RTLD_NEXT {
        return false;
    }
    let address = handle.addr();
    // Handles are addresses of large structures.
    let place = HANDLES.get((address >> 5) % KNOWN);
    place.is_none_or(|place| place.swap(address, Ordering::Relaxed) != address)
}

/// What the real `dlsym` would answer this caller. Asked for what it can see itself, without a handle, it
/// looks among the caller's own libraries too, which ours are not.
fn find_for(caller: *const c_void, handle: *mut c_void, name: &CStr) -> *mut c_void {
    let found = real_dlsym(handle, name);
    if !found.is_null() || handle != libc::RTLD_DEFAULT {
        return found;
    }
    let mut object: libc::Dl_info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: the place for the answer is ours; any address may be asked about.
    if unsafe { libc::dladdr(caller, &mut object) } == 0 || object.dli_fname.is_null() {
        return found;
    }
    // SAFETY: the loader's name is a C string that lives as long as the object, which is the caller's.
    let Some(own) = loader::opened(unsafe { CStr::from_ptr(object.dli_fname) }) else { return found };
    let found = real_dlsym(own, name);
    // SAFETY: the handle was opened above; its object stays loaded, for it is the caller's.
    unsafe { libc::dlclose(own) };
    found
}
