//! GOT patching: writes hooks into the import slots of every loaded object.
//!
//! A slot is changed only if it contains the original function, or if the loader resolves it lazily at the first call.
//! Slots that lead to another library, and slots that the loader has not filled in yet, stay as they are.
#![expect(unsafe_code, reason = "slots of loaded objects are changed in place")]

use std::ffi::CStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::elf::{self, Import};
use super::{HookedFunction, installed, memory, tables};
use crate::record::own_pages::page_size;

/// Result of the last pass over all objects: imports that lead to hooks, and imports that could not be changed.
static CHANGED: AtomicU64 = AtomicU64::new(0);
static REFUSED: AtomicU64 = AtomicU64::new(0);
/// The loader's count of loaded objects at the last complete pass.
static SEEN: AtomicU64 = AtomicU64::new(0);
/// Whether a thread wants another pass over all objects.
static WANTED: AtomicBool = AtomicBool::new(false);
static LOCK: Mutex<()> = Mutex::new(());

/// Number of imports and words in function tables that lead to hooks, and of those that could not be changed. Calls
/// through the latter are not seen.
pub(in crate::hook) fn counts() -> (u64, u64) {
    let (changed, refused) = tables::counts();
    (CHANGED.load(Ordering::Relaxed) + changed, REFUSED.load(Ordering::Relaxed) + refused)
}

/// Patches all objects if any object was loaded since the last time.
pub(in crate::hook) fn patch_new_objects() {
    let loaded = elf::objects_loaded();
    if SEEN.load(Ordering::Acquire) != loaded && patch_all() {
        SEEN.store(loaded, Ordering::Release);
    }
}

/// Patches all objects. Never waits: if another thread is patching, that thread makes another pass, and this call
/// returns false. Also returns false if the loader had not filled in some slots yet.
pub(in crate::hook) fn patch_all() -> bool {
    let Some(interposition) = installed() else { return true };
    (interposition.prepare)();
    let mut all = true;
    WANTED.store(true, Ordering::Release);
    while WANTED.load(Ordering::Acquire) {
        let Ok(_patching) = LOCK.try_lock() else { return false };
        WANTED.store(false, Ordering::Release);
        let mut pass = PatchPass::default();
        elf::each_import(|import| pass.patch(&import, interposition.function));
        all = !pass.is_incomplete;
        CHANGED.store(pass.changed, Ordering::Relaxed);
        REFUSED.store(pass.refused, Ordering::Relaxed);
    }
    // Tables are searched last: while an object's imports are not patched, the object may look up more originals.
    if all {
        tables::search(interposition);
    }
    all
}

#[derive(Debug, Default)]
struct PatchPass {
    changed: u64,
    refused: u64,
    /// Whether there are slots that the loader has not filled in yet.
    is_incomplete: bool,
}

impl PatchPass {
    fn patch(&mut self, import: &Import<'_>, function: fn(&CStr) -> Option<HookedFunction>) {
        let Some(HookedFunction { original, hook, is_interposed, is_counted }) = function(import.name) else { return };
        let mut uncounted = Self::default();
        let counts = if is_counted { self } else { &mut uncounted };
        // SAFETY: the slot exists, because the loader is locked here. It may be unaligned.
        let current = unsafe { import.slot.read_unaligned() };
        if current == hook {
            counts.changed += 1;
        } else if current == original || is_lazy(import, current) && !is_interposed {
            if !import.fixed && write(import, current, hook) {
                counts.changed += 1;
            } else {
                counts.refused += 1;
            }
        } else if !import.data {
            // An address below the object's code means: the slot is not filled in yet, or it belongs to a weak import
            // that stays empty.
            let is_empty = current < import.stubs.start.max(page_size());
            counts.is_incomplete |= is_empty;
            counts.refused += u64::from(!is_empty);
        }
    }
}

/// Whether the loader resolves the slot at the first call.
pub(in crate::hook) fn is_lazy(import: &Import<'_>, current: usize) -> bool {
    import.stubs.contains(&current) && !import.read_only
}

fn write(import: &Import<'_>, current: usize, hook: usize) -> bool {
    if import.read_only {
        return memory::write_word(import.slot, hook);
    }
    // SAFETY: an aligned word, in memory that stays writable, of an object that stays loaded while the loader is
    // locked.
    let slot = unsafe { AtomicUsize::from_ptr(import.slot) };
    // If the slot has changed meanwhile, the new value belongs to the program or the loader.
    slot.compare_exchange(current, hook, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}
