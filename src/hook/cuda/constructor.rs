//! `.init_array` constructor: puts the hooks in place before `main`.
#![expect(unsafe_code, reason = "a constructor is a function in a section of its own")]

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicU8, Ordering};

use memtrace_core::snapshot::CudaState;

use super::{init, lookup, uses};
use crate::errno::KeepErrno;
use crate::hook::interpose::{self, HookedFunction, Interposition, dlsym, elf, entry, loader, note, patch};
use crate::hook::threads;
use crate::record::fork;
use crate::record::own_pages::page_size;
use crate::variable;

// SAFETY: the loader calls the functions in this section. This function does not unwind and uses nothing that does not
// exist before `main`.
#[cfg_attr(not(miri), used, unsafe(link_section = ".init_array"))]
static CONSTRUCTOR: extern "C" fn() = construct;

/// A [`CudaState`] as a number.
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

pub(super) fn has_hooks() -> bool {
    STATE.load(Ordering::Acquire) == ACTIVE
}

extern "C" fn construct() {
    let _errno = KeepErrno::new();
    #[cfg(feature = "preload")]
    if crate::malloc::stands_back() {
        return;
    }
    fork::watch();
    if is_turned_off() || !dlsym::save_original() {
        return;
    }
    if note::program_has_its_own() || is_another_copy_there() {
        return STATE.store(ANOTHER_COPY, Ordering::Release);
    }
    threads::save_original();
    // Patched imports must stay valid when a library that contains memtrace is closed.
    loader::pin(construct as *const c_void);
    fork::in_each_child(init::in_child);
    STATE.store(ACTIVE, Ordering::Release);
    interpose::install(&HOOKS);
}

static HOOKS: Interposition = Interposition {
    function,
    prepare: lookup::look_up_all,
    is_candidate: lookup::is_candidate,
    hook_for: lookup::hook_for,
    originals: lookup::originals,
    hook_at: lookup::hook_at,
    was_late: uses::was_late,
};

fn function(name: &CStr) -> Option<HookedFunction> {
    match name.to_bytes() {
        b"dlsym" => Some(dlsym::hooked(entry::dlsym as *const () as usize)),
        b"pthread_create" => threads::hooked(),
        _ if lookup::is_candidate(name) => lookup::hooked(name),
        _ => None,
    }
}

/// Whether `MEMTRACE` is `0`, `off` or `false`. Read through C, because Rust's environment may not be initialized yet.
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

/// Whether another copy of memtrace has patched the imports of this process. If two copies had hooks, each call would
/// be recorded twice or not at all.
fn is_another_copy_there() -> bool {
    const MOST: usize = 8;
    let mut others = [0usize; MOST];
    let mut count = 0;
    let own = dlsym::original_address();
    elf::each_import(|import| {
        if import.name == c"dlsym" && !import.data {
            // SAFETY: the slot exists, because the loader is locked meanwhile.
            let address = unsafe { import.slot.read_unaligned() };
            let known = address < page_size() || address == own || others.contains(&address);
            // A slot that is still lazy contains no hook, but the address of a stub. On aarch64 a stub cannot be
            // called from here.
            if let Some(slot) = others.get_mut(count).filter(|_| !known && !patch::is_lazy(&import, address)) {
                *slot = address;
                count += 1;
            }
        }
    });
    others.iter().chain([&own]).filter(|address| **address != 0).any(|address| dlsym::knows_our_name(*address))
}
