//! Interposition: replaces functions of other libraries with hooks, in a running process that does not cooperate.
//!
//! A caller gets the address of a library function through an import, which is a slot in the GOT (global offset table)
//! of its object, or by calling `dlsym`. [`patch`] rewrites the slots of every loaded object and of those that are
//! loaded later (GOT patching). [`dlsym`] answers look-ups by name. [`tables`] changes addresses that an object looked
//! up earlier.
//!
//! This module does not know the driver. One [`Interposition`] names the functions and their hooks, at present those of
//! the CUDA driver and `pthread_create`. To interpose `malloc` or `mmap` of C libraries, add more [`HookedFunction`]s,
//! and look up the original with [`loader::function_of`] before any import is patched.
//!
//! Look-ups enter at [`entry`], [`elf`] finds imports, [`memory`] writes to read-only slots, [`loader`] queries the
//! dynamic loader, and [`note`] marks programs that contain memtrace.
//!
//! Only one copy of memtrace in a process has hooks. A program that contains memtrace carries a [`note`], and a
//! preloaded copy that finds the note installs no hooks. Otherwise the first copy gets the hooks, because each copy
//! first checks whether `dlsym` is hooked already.

pub(in crate::hook) mod dlsym;
pub(in crate::hook) mod elf;
#[cfg_attr(target_arch = "aarch64", path = "entry/aarch64.rs")]
#[cfg_attr(target_arch = "x86_64", path = "entry/x86_64.rs")]
pub(in crate::hook) mod entry;
pub(in crate::hook) mod loader;
mod memory;
pub(in crate::hook) mod note;
pub(in crate::hook) mod patch;
mod tables;

use std::ffi::{CStr, c_void};
use std::ops::Range;
use std::sync::OnceLock;

pub(in crate::hook) use tables::Late;

/// A function of another library and the hook that replaces it, by address.
#[derive(Clone, Copy, Debug)]
pub(in crate::hook) struct HookedFunction {
    pub(in crate::hook) original: usize,
    pub(in crate::hook) hook: usize,
    /// Another library defines this name, too, so the loader may resolve an import to that library.
    pub(in crate::hook) is_interposed: bool,
    /// [`patch::counts`] includes the function's imports.
    pub(in crate::hook) is_counted: bool,
}

/// The functions that have hooks.
#[derive(Debug)]
pub(in crate::hook) struct Interposition {
    /// Finds a function by the name of an import.
    pub(in crate::hook) function: fn(&CStr) -> Option<HookedFunction>,
    /// Called before imports are searched, while the loader is not locked.
    pub(in crate::hook) prepare: fn(),
    /// Whether a looked-up name may have a hook. This is a quick test.
    pub(in crate::hook) is_candidate: fn(&CStr) -> bool,
    /// The hook for a looked-up name, if the caller's own look-up (the closure) would find the original.
    pub(in crate::hook) hook_for: fn(&CStr, &dyn Fn() -> *mut c_void) -> Option<usize>,
    /// A range that contains the addresses of all originals, for which [`tables`] searches; empty while they are not
    /// known.
    pub(in crate::hook) originals: fn() -> Range<usize>,
    /// The hook of the original at this address.
    pub(in crate::hook) hook_at: fn(usize) -> Option<usize>,
    /// Called with no lock held, after addresses of originals were found in a library.
    pub(in crate::hook) was_late: fn(&Late),
}

static INSTALLED: OnceLock<&Interposition> = OnceLock::new();

/// Puts the hooks in place, in all objects that are loaded now or later.
pub(in crate::hook) fn install(interposition: &'static Interposition) {
    let _ = INSTALLED.set(interposition);
    patch::patch_new_objects();
}

fn installed() -> Option<&'static Interposition> {
    INSTALLED.get().copied()
}
