//! Interposition: functions of ours in the place of other libraries', in a process that knows nothing of it.
//!
//! Who calls a function of a library got its address in one of two ways: through an import, a slot in its object's GOT that the
//! loader fills in, or by asking `dlsym`. [`patch`] changes the slots in every loaded object, and those of objects that are
//! loaded later; [`dlsym`] answers look-ups. What has a stand-in is said by one [`Table`], so nothing here knows whose
//! functions these are: those of CUDA's driver and `pthread_create` today. `malloc` or `mmap` of C libraries would be further
//! rows of the table: a [`Pair`] by name, with the real function kept before anything is changed, as [`loader::function_of`]
//! finds it.
//!
//! [`elf`] finds the imports, [`memory`] writes to slots that are read-only, [`loader`] asks what is loaded, and [`note`] marks
//! programs that have memtrace in them.

pub(in crate::hook) mod dlsym;
pub(in crate::hook) mod elf;
pub(in crate::hook) mod loader;
mod memory;
pub(in crate::hook) mod note;
pub(in crate::hook) mod patch;

use std::ffi::{CStr, c_void};
use std::sync::OnceLock;

/// A function and what stands in for it.
#[derive(Clone, Copy, Debug)]
pub(in crate::hook) struct Pair {
    pub(in crate::hook) real: usize,
    pub(in crate::hook) ours: usize,
    /// What is asked for by that name need not be the real one.
    pub(in crate::hook) interposed: bool,
    /// [`patch::counts`] has its imports.
    pub(in crate::hook) is_counted: bool,
}

/// What has a stand-in.
#[derive(Debug)]
pub(in crate::hook) struct Table {
    /// By the name of an import.
    pub(in crate::hook) pair: fn(&CStr) -> Option<Pair>,
    /// Called before imports are looked through, while the loader is not locked.
    pub(in crate::hook) prepare: fn(),
    /// May a name that somebody looks up be one of these?
    pub(in crate::hook) is_meant: fn(&CStr) -> bool,
    /// Ours for such a name, if what the caller would find is the real one.
    pub(in crate::hook) answer: fn(&CStr, &dyn Fn() -> *mut c_void) -> Option<usize>,
}

static TABLE: OnceLock<&Table> = OnceLock::new();

/// From now on these functions have stand-ins, in all objects that are loaded and will be.
pub(in crate::hook) fn install(table: &'static Table) {
    let _ = TABLE.set(table);
    patch::patch_new_objects();
}

fn table() -> Option<&'static Table> {
    TABLE.get().copied()
}
