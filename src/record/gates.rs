//! Fast-path filters of the hooks: one relaxed load decides whether anybody observes a block.
//!
//! If all gates are zero, nobody observes anything. In every child process, the kernel fills the page of the gates
//! with zeros. That includes children made without the fork handlers (`_Fork`, `clone`), whose copies of the
//! recorder's locks may be held for ever.
#![cfg_attr(all(target_os = "linux", not(miri)), expect(unsafe_code, reason = "`madvise`"))]

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use memtrace_core::snapshot::DEFAULT_STACK_DEPTH;

use super::lock::{Lock, rank};

/// Every request reads these values; almost nothing writes them. They share one cache line. A memory-intensive program
/// evicts the line between two requests, and each further line would be one more cache miss.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Gates {
    /// Bitwise complement of the size of the smallest heap block that the session records; 0 if it records none.
    heap_threshold: AtomicUsize,
    /// Bitwise complement of the size of the smallest heap block that a session or a measurement observes.
    heap_gate: AtomicUsize,
    measurements: AtomicUsize,
    /// The sampling interval: blocks of at least this size are always recorded. 0 without sampling.
    pub(super) certain: AtomicUsize,
    /// Address and length of the heap ledger's table of live blocks.
    pub(super) heap_table: [AtomicUsize; 2],
    /// Number of recordings so far. It is compared before a free is undone, so that no block of one recording enters
    /// the next.
    pub(super) epoch: AtomicU64,
    /// One more than the maximum stack depth; 0 for the default. Measurements use it even without a session.
    stack_depth: AtomicU32,
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

/// The page that the kernel clears. It contains nothing else.
#[derive(Debug)]
#[cfg_attr(target_arch = "x86_64", repr(align(4096)))]
// The kernel clears whole pages, and a page may have 64 KiB.
#[cfg_attr(not(target_arch = "x86_64"), repr(align(65536)))]
pub(super) struct Page {
    gates: Gates,
    /// The kernel has not cleared the page since [`clear_in_children`].
    is_original: AtomicBool,
}

impl std::ops::Deref for Page {
    type Target = Gates;
    #[inline(always)]
    fn deref(&self) -> &Gates {
        &self.gates
    }
}

pub(super) static GATES: Page = Page {
    gates: Gates {
        heap_threshold: AtomicUsize::new(0),
        heap_gate: AtomicUsize::new(0),
        measurements: AtomicUsize::new(0),
        certain: AtomicUsize::new(0),
        heap_table: [const { AtomicUsize::new(0) }; 2],
        epoch: AtomicU64::new(0),
        stack_depth: AtomicU32::new(0),
        stack_context: AtomicU8::new(0),
        unwinder: AtomicU8::new(0),
        device_recorded: AtomicBool::new(false),
        device_gate: AtomicBool::new(false),
    },
    is_original: AtomicBool::new(false),
};

static IS_CLEARED_IN_CHILDREN: AtomicBool = AtomicBool::new(false);

/// From this call on, child processes start with closed gates. Linux before 4.14 refuses the request.
#[cfg(all(target_os = "linux", not(miri)))]
pub(super) fn clear_in_children() {
    let page = (&raw const GATES).cast_mut().cast();
    // SAFETY: the page belongs to this static alone.
    if unsafe { libc::madvise(page, size_of::<Page>(), libc::MADV_WIPEONFORK) } == 0 {
        GATES.is_original.store(true, Ordering::Relaxed);
        IS_CLEARED_IN_CHILDREN.store(true, Ordering::Relaxed);
    }
}

#[cfg(any(not(target_os = "linux"), miri))]
pub(super) fn clear_in_children() {}

/// Called in a child that ran the fork handlers. From then on, [`are_cleared`] is true only in children of this child.
pub(super) fn are_this_process() {
    GATES.is_original.store(IS_CLEARED_IN_CHILDREN.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// Whether this is a child process in which the kernel has cleared the gates.
pub(super) fn are_cleared() -> bool {
    IS_CLEARED_IN_CHILDREN.load(Ordering::Relaxed) && !GATES.is_original.load(Ordering::Relaxed)
}

/// Set in a stray child (see [`is_stray_child`]) before it forks, because its children are stray, too.
static IS_STRAY: AtomicBool = AtomicBool::new(false);

/// Whether this is a stray child: one made without the fork handlers, or a descendant of one. In it, any lock may stay
/// locked for ever.
pub(crate) fn is_stray_child() -> bool {
    IS_STRAY.load(Ordering::Relaxed) || are_cleared()
}

pub(super) fn children_are_stray() {
    IS_STRAY.store(true, Ordering::Relaxed);
}

/// Held while the gates are recomputed.
static CHANGE: Lock<(), { rank::GATES }> = Lock::new(());

// All accesses are relaxed: a block that races with a gate change counts as one from before or after the change.

#[inline]
pub(crate) fn watches_heap_block(size: usize) -> bool {
    size >= !GATES.heap_gate.load(Ordering::Relaxed)
}

#[inline]
pub(crate) fn records_heap_block(size: usize) -> bool {
    size >= !GATES.heap_threshold.load(Ordering::Relaxed)
}

/// The smallest heap block that the session records.
pub(crate) fn heap_threshold() -> u64 {
    !GATES.heap_threshold.load(Ordering::Relaxed) as u64
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
    GATES.heap_threshold.store(!smallest, Ordering::Relaxed);
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

pub(super) fn set_stack_depth(depth: usize) {
    GATES.stack_depth.store((depth as u32).saturating_add(1), Ordering::Relaxed);
}

#[inline]
pub(super) fn stack_depth() -> usize {
    match GATES.stack_depth.load(Ordering::Relaxed) {
        0 => DEFAULT_STACK_DEPTH,
        more => more as usize - 1,
    }
}

fn renew() {
    let measured = any_measurement();
    let heap = if measured { !0 } else { GATES.heap_threshold.load(Ordering::Relaxed) };
    GATES.heap_gate.store(heap, Ordering::Relaxed);
    GATES.device_gate.store(measured || records_device_memory(), Ordering::Relaxed);
}

/// The number of the current recording. It is compared under a device's lock.
pub(in crate::record) fn epoch() -> u64 {
    GATES.epoch.load(Ordering::Relaxed)
}
