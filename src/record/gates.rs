//! What the hooks look at first: whether anybody wants to know of a block at all.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Smallest heap block that the session records; none while it is `usize::MAX`.
static HEAP_THRESHOLD: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Smallest heap block that anybody wants to see.
static HEAP_GATE: AtomicUsize = AtomicUsize::new(usize::MAX);
/// The session records memory of other devices.
static DEVICE_RECORDED: AtomicBool = AtomicBool::new(false);
/// Anybody wants to see it.
static DEVICE_GATE: AtomicBool = AtomicBool::new(false);
/// Measurements that are open.
static MEASUREMENTS: AtomicUsize = AtomicUsize::new(0);

/// Held while the gates follow what they stand for.
static CHANGE: Mutex<()> = Mutex::new(());

// Relaxed throughout: a block that slips past a gate while it changes is one from before or after.

/// The gate of the heap hook: one relaxed load.
#[inline]
pub(crate) fn watches_heap_block(size: usize) -> bool {
    size >= HEAP_GATE.load(Ordering::Relaxed)
}

/// Does the session record a heap block of this size?
#[inline]
pub(crate) fn records_heap_block(size: usize) -> bool {
    size >= HEAP_THRESHOLD.load(Ordering::Relaxed)
}

/// The gate of the hooks of other memory: one relaxed load.
#[inline]
pub(crate) fn watches_device_memory() -> bool {
    DEVICE_GATE.load(Ordering::Relaxed)
}

/// Does the session record it?
pub(crate) fn records_device_memory() -> bool {
    DEVICE_RECORDED.load(Ordering::Relaxed)
}

/// Is any measurement open, on whatever thread?
#[inline]
pub(crate) fn any_measurement() -> bool {
    MEASUREMENTS.load(Ordering::Relaxed) > 0
}

pub(super) fn set_heap_threshold(smallest: usize) {
    let _change = lock();
    HEAP_THRESHOLD.store(smallest, Ordering::Relaxed);
    renew();
}

pub(super) fn set_device_memory(recorded: bool) {
    let _change = lock();
    DEVICE_RECORDED.store(recorded, Ordering::Relaxed);
    renew();
}

pub(super) fn set_measurements(open: usize) {
    let _change = lock();
    MEASUREMENTS.store(open, Ordering::Relaxed);
    renew();
}

fn renew() {
    let measured = any_measurement();
    let heap = if measured { 0 } else { HEAP_THRESHOLD.load(Ordering::Relaxed) };
    HEAP_GATE.store(heap, Ordering::Relaxed);
    DEVICE_GATE.store(measured || records_device_memory(), Ordering::Relaxed);
}

/// Taken after all other locks.
pub(super) fn lock() -> MutexGuard<'static, ()> {
    CHANGE.lock().unwrap_or_else(PoisonError::into_inner)
}
