//! What happens with requests to the allocator, from the process's first one on.
#![expect(unsafe_code, reason = "a constructor, and functions by their names")]

use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};

use crate::next;

static MODE: AtomicU8 = AtomicU8::new(EARLY);
/// The constructor has not run yet. Requests are counted without thread-local variables, because the loader may have
/// to allocate these.
const EARLY: u8 = 0;
const REPORTED: u8 = 1;
const PASSED_ON: u8 = 2;

/// How often null was freed while the mode was `EARLY`.
static EARLY_FREES: AtomicUsize = AtomicUsize::new(0);
static REFUSED: OnceLock<Option<String>> = OnceLock::new();

#[used]
// SAFETY: the loader calls the functions whose addresses are in this section, this one before the library's others. It
// does not unwind.
#[unsafe(link_section = ".init_array.00100")]
static CONSTRUCTOR: extern "C" fn() = start;

extern "C" fn start() {
    let _errno = memtrace::keep_errno();
    let refused = reason_to_pass_on();
    MODE.store(if refused.is_some() { PASSED_ON } else { REPORTED }, Relaxed);
    let _ = REFUSED.set(refused);
    if next::is_sanitizer() {
        memtrace::malloc::stand_back();
    }
}

/// The reason why requests are only passed on from the start, if they are.
pub(crate) fn refused() -> Option<&'static str> {
    REFUSED.get()?.as_deref()
}

/// From here on requests are only passed on.
pub(crate) fn pass_on() {
    MODE.store(PASSED_ON, Relaxed);
}

fn reason_to_pass_on() -> Option<String> {
    // SAFETY: no thread changes the environment before `main`.
    let is_audited = unsafe { !libc::getenv(c"LD_AUDIT".as_ptr()).is_null() };
    if is_audited {
        // If it is set, the loader allocates each thread's thread-local variables at their first use.
        return Some("LD_AUDIT is set".to_owned());
    }
    if !is_called() {
        return Some("the program has an allocator of its own in C's place".to_owned());
    }
    next::is_recordable().err().map(|file| format!("{file} has an allocator in C's place"))
}

/// Whether calls of the program reach these functions. A program's own `malloc` and `free` take precedence over every
/// library's. So this function frees null, and sees whether that call is counted. The address of `free` is no
/// evidence, because it may be that of a PLT stub in the program.
fn is_called() -> bool {
    // SAFETY: the name ends with a zero.
    let free = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"free".as_ptr()) };
    let before = EARLY_FREES.load(Relaxed);
    // SAFETY: a function of this name has this type.
    let free = unsafe { std::mem::transmute::<*mut c_void, Option<unsafe extern "C" fn(*mut u8)>>(free) };
    if let Some(free) = free {
        // SAFETY: any allocator accepts null.
        unsafe { free(std::ptr::null_mut()) };
    }
    EARLY_FREES.load(Relaxed) != before
}

#[inline(always)]
pub(crate) fn is_reported() -> bool {
    MODE.load(Relaxed) == REPORTED
}

pub(crate) fn is_early() -> bool {
    MODE.load(Relaxed) == EARLY
}

pub(crate) fn free_of_nothing() {
    if is_early() {
        EARLY_FREES.fetch_add(1, Relaxed);
    }
}
