//! Before `main`: the hooks are put in place and stay passive until a session records.
#![expect(unsafe_code, reason = "a constructor is a function in a section of its own")]

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicU8, Ordering};

use super::{lookup, started};
use crate::hook::interpose::{self, Pair, Table, dlsym, elf, loader, note};
use crate::hook::threads;
use crate::record::fork;
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
    if !dlsym::keep_real() {
        return;
    }
    if note::program_has_its_own() || is_another_copy_there() {
        return STATE.store(ANOTHER_COPY, Ordering::Release);
    }
    threads::keep_real();
    // What leads to us must not lead nowhere when a library with us in it is closed.
    loader::pin(start as *const c_void);
    fork::in_each_child(started::in_child);
    STATE.store(ACTIVE, Ordering::Release);
    interpose::install(&TABLE);
}

/// Everything that has a stand-in.
static TABLE: Table = Table { pair, prepare: lookup::look_up_all, is_meant: lookup::is_meant, answer: lookup::answer };

fn pair(name: &CStr) -> Option<Pair> {
    match name.to_bytes() {
        b"dlsym" => Some(dlsym::pair()),
        b"pthread_create" => threads::pair(),
        _ if lookup::is_meant(name) => lookup::pair(name),
        _ => None,
    }
}

/// `MEMTRACE=0` or `off`: nothing is touched. Read in C: Rust's environment may not be there yet.
fn is_turned_off() -> bool {
    if variable::is_privileged() {
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
    let own = dlsym::real_address();
    elf::each_import(|import| {
        if import.name == c"dlsym" && !import.data {
            // SAFETY: the loader keeps a word there.
            let address = unsafe { import.slot.read_unaligned() };
            let known = address < elf::page_size() || address == own || others.contains(&address);
            if let Some(slot) = others.get_mut(count).filter(|_| !known) {
                *slot = address;
                count += 1;
            }
        }
    });
    others.iter().chain([&own]).filter(|address| **address != 0).any(|address| dlsym::knows_our_name(*address))
}
