//! Fast-path filters of the hooks: one relaxed load decides whether anybody observes a block.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use memtrace_core::snapshot::DEFAULT_STACK_DEPTH;

use super::lock::{Lock, rank};

/// Read by every request and almost never written. One cache line: a program that works on much memory evicts it
/// between two requests, and each further line is one more cache miss.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Gates {
    /// Smallest heap block that the session records; `usize::MAX` for none.
    heap_threshold: AtomicUsize,
    /// Smallest heap block that a session or a measurement observes.
    heap_gate: AtomicUsize,
    /// Open measurements.
    measurements: AtomicUsize,
    /// The sampling interval, 0 without sampling: blocks of at least this size are always recorded.
    pub(super) certain: AtomicUsize,
    /// Address and length of the heap ledger's table of live blocks.
    pub(super) heap_table: [AtomicUsize; 2],
    /// Number of recordings so far: a block taken out of one is never put back into the next.
    pub(super) epoch: AtomicU64,
    /// Maximum depth of a stack; measurements use it without a session, too.
    pub(super) stack_depth: AtomicU32,
    /// A [`StackContext`](crate::snapshot::StackContext).
    pub(super) stack_context: AtomicU8,
    /// Which unwinder takes stacks, see `unwind::mode`.
    pub(super) unwinder: AtomicU8,
    /// The session records device memory.
    device_recorded: AtomicBool,
    /// A session or a measurement observes device memory.
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

/// Held while the gates are recomputed.
static CHANGE: Lock<(), { rank::GATES }> = Lock::new(());

// Relaxed everywhere: a block that slips through while a gate changes counts as one from before or after the change.

#[inline]
pub(crate) fn watches_heap_block(size: usize) -> bool {
    size >= GATES.heap_gate.load(Ordering::Relaxed)
}

#[inline]
pub(crate) fn records_heap_block(size: usize) -> bool {
    size >= GATES.heap_threshold.load(Ordering::Relaxed)
}

#[inline]
pub(crate) fn watches_device_memory() -> bool {
    GATES.device_gate.load(Ordering::Relaxed)
}

pub(crate) fn records_device_memory() -> bool {
    GATES.device_recorded.load(Ordering::Relaxed)
}

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

/// The number of the current recording; compared under a device's lock.
pub(in crate::record) fn epoch() -> u64 {
    GATES.epoch.load(Ordering::Relaxed)
}
