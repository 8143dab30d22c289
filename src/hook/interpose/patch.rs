//! GOT patching: our functions in the place of others, in the imports of every loaded object.
//!
//! Only a slot that holds the real function is changed, or one that the loader will look up
//! at the first call: what leads to another library, and what the loader has not filled in yet, stays as it is.
#![expect(unsafe_code, reason = "slots of loaded objects are changed in place")]

use std::ffi::CStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::elf::{self, Import};
use super::{Pair, memory, table};

/// Of the last look: imports that lead past us, and that should but do not.
static CHANGED: AtomicU64 = AtomicU64::new(0);
static REFUSED: AtomicU64 = AtomicU64::new(0);
/// The loader's count of objects when they were looked through last.
static SEEN: AtomicU64 = AtomicU64::new(0);
static WANTED: AtomicBool = AtomicBool::new(false);
static LOCK: Mutex<()> = Mutex::new(());

/// How many imports lead past us, and how many should but cannot be changed: calls through those are not
/// seen.
pub(in crate::hook) fn counts() -> (u64, u64) {
    (CHANGED.load(Ordering::Relaxed), REFUSED.load(Ordering::Relaxed))
}

/// Looks through all objects if any was loaded since the last time.
pub(in crate::hook) fn patch_new_objects() {
    let loaded = elf::objects_loaded();
    if SEEN.load(Ordering::Acquire) != loaded && patch_all() {
        SEEN.store(loaded, Ordering::Release);
    }
}

/// Looks through all objects; false if some were not ready yet. Never waits: if another thread is at
/// it, that one looks once more.
pub(in crate::hook) fn patch_all() -> bool {
    let Some(table) = table() else { return true };
    // Asked before the loader is locked.
    (table.prepare)();
    let mut all = true;
    WANTED.store(true, Ordering::Release);
    while WANTED.load(Ordering::Acquire) {
        let Ok(_patching) = LOCK.try_lock() else { return false };
        WANTED.store(false, Ordering::Release);
        let mut look = Look::default();
        elf::each_import(|import| look.import(&import, table.pair));
        all = !look.unready;
        CHANGED.store(look.changed, Ordering::Relaxed);
        REFUSED.store(look.refused, Ordering::Relaxed);
    }
    all
}

/// One look through all objects.
#[derive(Debug, Default)]
struct Look {
    changed: u64,
    refused: u64,
    /// The loader has still to fill in some.
    unready: bool,
}

impl Look {
    fn import(&mut self, import: &Import<'_>, pair: fn(&CStr) -> Option<Pair>) {
        let Some(Pair { real, ours, interposed, is_counted }) = pair(import.name) else { return };
        let mut other = Self::default();
        let counts = if is_counted { self } else { &mut other };
        // SAFETY: the loader keeps the slot there as long as the object is loaded; it may not be aligned.
        let current = unsafe { import.slot.read_unaligned() };
        if current == ours {
            counts.changed += 1;
        } else if current == real || is_unbound(import, current) && !interposed {
            let done = !import.fixed && set(import, current, ours);
            (counts.changed, counts.refused) = (counts.changed + u64::from(done), counts.refused + u64::from(!done));
        } else if !import.data {
            // Below any code: not filled in yet, or a weak import that stays empty.
            let empty = current < import.stubs.start.max(elf::page_size());
            counts.unready |= empty;
            counts.refused += u64::from(!empty);
        }
    }
}

/// The loader looks the function up at the first call.
fn is_unbound(import: &Import<'_>, current: usize) -> bool {
    import.stubs.contains(&current) && !import.read_only
}

fn set(import: &Import<'_>, current: usize, ours: usize) -> bool {
    if import.read_only {
        return memory::write_word(import.slot, ours);
    }
    // SAFETY: an aligned word of a loaded object, in memory that is writable for good.
    let slot = unsafe { AtomicUsize::from_ptr(import.slot) };
    // If it changed meanwhile, it is the program's or the loader's.
    slot.compare_exchange(current, ours, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}
