//! Our functions in the place of the driver's, in the imports of every loaded object.
#![expect(unsafe_code, reason = "slots of loaded objects are changed in place")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::elf::{self, Import};
use super::{calls, lookup};

/// Imports that were changed, and that could not be.
static CHANGED: AtomicU64 = AtomicU64::new(0);
static REFUSED: AtomicU64 = AtomicU64::new(0);
/// The loader's count of objects when they were looked through last.
static SEEN: AtomicU64 = AtomicU64::new(0);
static WANTED: AtomicBool = AtomicBool::new(false);
static LOCK: Mutex<()> = Mutex::new(());

/// How many imports lead past us, and how many should but cannot be changed: calls through those are not
/// seen.
pub(super) fn counts() -> (u64, u64) {
    (CHANGED.load(Ordering::Relaxed), REFUSED.load(Ordering::Relaxed))
}

/// Looks through all objects if any was loaded since the last time.
pub(super) fn patch_new_objects() {
    let loaded = elf::objects_loaded();
    if SEEN.swap(loaded, Ordering::AcqRel) != loaded {
        patch_all();
    }
}

/// Looks through all objects. Never waits: if another thread is at it, that one looks once more.
pub(super) fn patch_all() {
    WANTED.store(true, Ordering::Release);
    while WANTED.load(Ordering::Acquire) {
        let Ok(_patching) = LOCK.try_lock() else { return };
        WANTED.store(false, Ordering::Release);
        elf::each_import(patch);
    }
}

fn patch(import: Import<'_>) {
    let name = import.name.to_bytes();
    let ours = match name {
        b"dlsym" => Some(lookup::dlsym_address()),
        [b'c', b'u', ..] => calls::replacement(name),
        _ => None,
    };
    if let Some(ours) = ours {
        set(import, ours);
    }
}

fn set(import: Import<'_>, ours: usize) {
    // SAFETY: a slot is an aligned word of a loaded object that all threads read as one.
    let slot = unsafe { AtomicUsize::from_ptr(import.slot) };
    if slot.load(Ordering::Relaxed) == ours {
        return;
    }
    if import.fixed || import.read_only && !protect(import.slot, libc::PROT_READ | libc::PROT_WRITE) {
        REFUSED.fetch_add(1, Ordering::Relaxed);
        return;
    }
    slot.store(ours, Ordering::Release);
    CHANGED.fetch_add(1, Ordering::Relaxed);
    if import.read_only {
        protect(import.slot, libc::PROT_READ);
    }
}

fn protect(slot: *mut usize, protection: i32) -> bool {
    // SAFETY: asks for a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(4096) as usize;
    let start = slot.map_addr(|address| address & !(page - 1));
    // SAFETY: the page belongs to a loaded object; it stays readable throughout, and writable only
    // becomes what was read-only.
    unsafe { libc::mprotect(start.cast(), page, protection) == 0 }
}
