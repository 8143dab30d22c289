//! Before `main`: the hooks are put in place and stay passive until a session records.
#![expect(unsafe_code, reason = "a constructor is a function in a section of its own")]

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::{loader, lookup, note, patch, threads};
use crate::errno::KeepErrno;
use crate::record::{fork, thread};
use crate::snapshot::CudaState;
use crate::variable;

#[used]
// SAFETY: the loader calls the functions in this section; this one neither unwinds nor needs anything
// that is not there before `main`.
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

/// What came of it: a [`CudaState`] as a number, for it is needed before anything else.
static STATE: AtomicU8 = AtomicU8::new(OFF);
const OFF: u8 = 0;
const ACTIVE: u8 = 1;
const ANOTHER_COPY: u8 = 2;

pub(super) fn state() -> CudaState {
    match STATE.load(Ordering::Acquire) {
        ACTIVE => CudaState::Active,
        ANOTHER_COPY => CudaState::AnotherCopy,
        _ => CudaState::TurnedOff,
    }
}

extern "C" fn start() {
    fork::watch();
    if is_turned_off() {
        return;
    }
    if !lookup::keep_real() {
        return;
    }
    if note::program_has_its_own() || is_another_copy_there() {
        return STATE.store(ANOTHER_COPY, Ordering::Release);
    }
    threads::keep_real();
    // What leads to us must not lead nowhere when a library with us in it is closed.
    loader::pin(start as *const c_void);
    // SAFETY: the handler stores a flag.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    STATE.store(ACTIVE, Ordering::Release);
    patch::patch_new_objects();
}

/// This process was forked off one with hooks.
static FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn in_child() {
    FORKED.store(true, Ordering::Relaxed);
    // That thread was the parent's.
    STARTER.store(0, Ordering::Relaxed);
}

/// Then the loader is not asked: another thread of the parent's may have held its lock.
pub(super) fn was_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// To be called once the driver has been started; null once it was.
static ON_CUDA_START: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// The number of the thread on which that is being called; 0 if it is not. Not a lock: a forked child would inherit it.
static STARTER: AtomicU32 = AtomicU32::new(0);

/// Others wait no longer than this for the starter: it might be waiting for what one of them holds.
const PATIENCE: Duration = Duration::from_secs(10);

/// False if that will not be seen, because the program has memtrace in it.
pub(crate) fn on_cuda_start(call: fn()) -> bool {
    ON_CUDA_START.store(call as *mut (), Ordering::Release);
    !note::program_has_its_own()
}

/// After `cuInit`. Who comes while another thread has the recording begun waits: what it allocates next is to be recorded.
pub(super) fn cuda_started(result: c_int) {
    if result != 0 {
        return;
    }
    let _errno = KeepErrno::new();
    if !ON_CUDA_START.load(Ordering::Acquire).is_null() {
        start_once();
    }
    wait_for_starter();
}

fn start_once() {
    let this_thread = thread::number().0;
    if STARTER.compare_exchange(0, this_thread, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return;
    }
    let call = ON_CUDA_START.swap(std::ptr::null_mut(), Ordering::AcqRel);
    if !call.is_null() {
        // SAFETY: only functions of this type are stored there.
        let call = unsafe { std::mem::transmute::<*mut (), fn()>(call) };
        let _ = std::panic::catch_unwind(call);
    }
    STARTER.store(0, Ordering::Release);
}

/// The starter itself may come here out of its call.
fn wait_for_starter() {
    let is_other = || ![0, thread::number().0].contains(&STARTER.load(Ordering::Acquire));
    let begun = Instant::now();
    while is_other() && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// `MEMTRACE=0` or `off`: nothing is touched. Read in C: Rust's environment may not be there yet.
fn is_turned_off() -> bool {
    if variable::has_others_rights() {
        return false;
    }
    // SAFETY: no thread changes the environment before `main`.
    let value = unsafe { libc::getenv(c"MEMTRACE".as_ptr()) };
    if value.is_null() {
        return false;
    }
    // SAFETY: a variable's value is a C string.
    let value = unsafe { CStr::from_ptr(value) };
    [c"0", c"off", c"false"].contains(&value)
}

/// The name by which a copy of this library in the same process is known to others, through the `dlsym`
/// that it has put in the place of the real one.
pub(super) const OUR_NAME: &CStr = c"memtrace_hooks_are_here";

/// This copy put the hooks in place.
pub(super) fn has_hooks() -> bool {
    STATE.load(Ordering::Acquire) == ACTIVE
}

/// Has a copy of this library changed the imports of this process already? Two would see everything twice, or each what
/// the other missed, so one has hooks, and the others say so.
fn is_another_copy_there() -> bool {
    const MOST: usize = 8;
    let mut others = [0usize; MOST];
    let mut count = 0;
    let own = lookup::real_dlsym_address();
    super::elf::each_import(|import| {
        if import.name == c"dlsym" && !import.data {
            // SAFETY: the loader keeps a word there.
            let address = unsafe { import.slot.read_unaligned() };
            let known = address < super::elf::page_size() || address == own || others.contains(&address);
            if let Some(slot) = others.get_mut(count).filter(|_| !known) {
                *slot = address;
                count += 1;
            }
        }
    });
    others.iter().chain([&own]).filter(|address| **address != 0).any(|address| knows_our_name(*address))
}

fn knows_our_name(dlsym: usize) -> bool {
    type Dlsym = unsafe extern "C" fn(*mut c_void, *const std::ffi::c_char) -> *mut c_void;
    // SAFETY: it is what some object calls as `dlsym`.
    let dlsym = unsafe { std::mem::transmute::<usize, Dlsym>(dlsym) };
    // SAFETY: `dlsym` takes this handle and a C string.
    let answer = unsafe { dlsym(libc::RTLD_DEFAULT, OUR_NAME.as_ptr()) };
    loader::forget_error();
    !answer.is_null()
}
