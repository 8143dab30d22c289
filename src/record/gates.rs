//! What the hooks look at first: whether anybody wants to know of a block at all.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::lock::{Lock, rank};
use crate::snapshot::DEFAULT_STACK_DEPTH;

/// What requests look at and what hardly ever changes, in one line of the processor's cache: after a program's own work
/// on much memory, each line that is looked at is one more to wait for.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Gates {
    /// Smallest heap block that the session records; none while it is `usize::MAX`.
    heap_threshold: AtomicUsize,
    /// Smallest heap block that anybody wants to see.
    heap_gate: AtomicUsize,
    /// Measurements that are open.
    measurements: AtomicUsize,
    /// Blocks of at least this size are recorded without a point: all of them while nothing is sampled, when it is 0.
    pub(super) certain: AtomicUsize,
    /// Where the heap's table of live blocks lies and how long it is.
    pub(super) heap_table: [AtomicUsize; 2],
    /// How many recordings there were: what was taken out of one does not go back into the next.
    pub(super) epoch: AtomicU64,
    /// Frames of a stack; measurements take stacks without a session, too.
    pub(super) stack_depth: AtomicU32,
    /// Which events have one.
    pub(super) stack_context: AtomicU8,
    /// Who takes them.
    pub(super) unwinder: AtomicU8,
    /// The session records memory of other devices.
    device_recorded: AtomicBool,
    /// Anybody wants to see it.
    device_gate: AtomicBool,
}

const _: () = assert!(size_of::<Gates>() == 64);

pub(super) static GATES: Gates = Gates {
    heap_threshold: AtomicUsize::new(usize::MAX),
    heap_gate: AtomicUsize::new(usize::MAX),
    measurements: AtomicUsize::new(0),
    certain: AtomicUsize::new(0),
    heap_table: [const { AtomicUsize::new(0) }; 2],
    epoch: AtomicU64::new(0),
    stack_depth: AtomicU32::new(DEFAULT_STACK_DEPTH as u32),
    stack_context: AtomicU8::new(0),
    unwinder: AtomicU8::new(0),
    device_recorded: AtomicBool::new(false),
    device_gate: AtomicBool::new(false),
};

/// Held while the gates follow what they stand for.
static CHANGE: Lock<(), { rank::GATES }> = Lock::new(());

// Relaxed throughout: a block that slips past a gate while it changes is one from before or after.

/// The gate of the heap hook: one relaxed load.
#[inline]
pub(crate) fn watches_heap_block(size: usize) -> bool {
    size >= GATES.heap_gate.load(Ordering::Relaxed)
}

/// Does the session record a heap block of this size?
#[inline]
pub(crate) fn records_heap_block(size: usize) -> bool {
    size >= GATES.heap_threshold.load(Ordering::Relaxed)
}

/// The gate of the hooks of other memory: one relaxed load.
#[inline]
pub(crate) fn watches_device_memory() -> bool {
    GATES.device_gate.load(Ordering::Relaxed)
}

/// Does the session record it?
pub(crate) fn records_device_memory() -> bool {
    GATES.device_recorded.load(Ordering::Relaxed)
}

/// Is any measurement open, on whatever thread?
#[inline]
pub(crate) fn any_measurement() -> bool {
    GATES.measurements.load(Ordering::Relaxed) > 0
}

pub(super) fn set_heap_threshold(smallest: usize) {
    let _change = CHANGE.lock();
    GATES.heap_threshold.store(smallest, Ordering::Relaxed);
    renew();
}

pub(super) fn set_device_memory(recorded: bool) {
    let _change = CHANGE.lock();
    GATES.device_recorded.store(recorded, Ordering::Relaxed);
    renew();
}

pub(super) fn set_measurements(open: usize) {
    let _change = CHANGE.lock();
    GATES.measurements.store(open, Ordering::Relaxed);
    renew();
}

fn renew() {
    let measured = any_measurement();
    let heap = if measured { 0 } else { GATES.heap_threshold.load(Ordering::Relaxed) };
    GATES.heap_gate.store(heap, Ordering::Relaxed);
    GATES.device_gate.store(measured || records_device_memory(), Ordering::Relaxed);
}

/// The number of the recording under way, to be compared under a device's lock.
pub(in crate::record) fn epoch() -> u64 {
    GATES.epoch.load(Ordering::Relaxed)
}
