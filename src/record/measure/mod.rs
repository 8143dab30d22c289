//! Measurements: ledgers of what some code allocates, one set per measurement, and the decision whose work a thread
//! does.
//!
//! ```text
//!   measure(code) ─► an id, and a ledger for each device that is used ─► active on this thread (guard)
//!                         ▲                                                    │ scope::Context carries it
//!       alloc on a thread where a measurement is active: into it and all       │ a thread that it starts
//!         measurements around it ◄─────────────────────────────────────────────┤ inherits it
//!       alloc on another thread that holds addresses of its blocks or stack: handed-over work, in a ledger beside it
//!       free on any thread: out of the owner's ledger and all around it
//! ```
//!
//! While a measurement is open, [`gates`] let every event through, so that frees are seen on all threads. A measurement
//! belongs to work, not to a thread: it travels with `scope::Context`. (`tracing` spans do not carry it: a model's span
//! may be made in one test and entered in another.) A measurement of the whole process encloses all others. One lock
//! protects everything here ([`registry`]). It is held for less time than taking a stack needs, and only while
//! something is measured.
//!
//! # Whose work does a thread do?
//! The first block that a new thread of std frees is its start routine's argument. If that block belongs to a
//! measurement, and not to work handed over to it, the thread inherits the measurement ([`on_new_thread`]).
//!
//! Any other thread is examined when it allocates. [`unwind::each_word`] visits its registers and its stack.
//! [`Registry::work_owner`] looks for addresses of a measurement's blocks or of the stack of its thread. Stale words
//! remain on a stack, so a match is evidence, not proof. Such blocks go to a separate ledger (`handed`), which can make
//! a verdict undecided and never adds to the measured numbers.
//!
//! Three rules exclude coincidences:
//!
//! - Only threads of the same family ([`lineage`]) or rayon's workers count.
//! - Words that a thread had when it started do not count.
//! - A new thread's unused stack is cleared if something was measured before.
//!
//! A request for work may leave no such word: if it is a number in an atomic, or a function without captures. So
//! threads of the family make verdicts undecided without evidence, too ([`others`]).

mod accounts;
mod id;
pub(crate) mod lineage;
mod others;
mod registry;
mod stacks;
#[cfg_attr(not(all(target_os = "linux", target_env = "gnu", not(miri))), path = "statics_elsewhere.rs")]
mod statics;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub(crate) use accounts::MeasuredCopy;
pub(crate) use id::Id;
use memtrace_core::snapshot::{Block, Device, StackId};
pub(crate) use others::Helper;
use others::WorkOwner;
use registry::Registry;
pub(crate) use registry::{MeasuredFree, Space};
pub(crate) use statics::held_by_statics;

use super::ledger::names::BlockLabel;
use super::lock::{Lock, Locked, rank};

use super::measure::lineage::Family;
use super::memory::OwnVec;
use super::{EventSite, event_site, gates, guard, thread, unwind};
use crate::errno::KeepErrno;

/// A measurement of the whole process is open.
static IS_WHOLE: AtomicBool = AtomicBool::new(false);
/// Something was measured in this process before.
static WAS_MEASURED: AtomicBool = AtomicBool::new(false);
static REGISTRY: Lock<Registry, { rank::MEASURES }> = Lock::new(Registry::new());

pub(super) type LockedRegistry = Locked<'static, Registry, { rank::MEASURES }>;

/// Memory that threads without a measurement allocated while one was open. Such threads run other tests, or do a shared
/// pool's work for the measured code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unattributed {
    /// Total bytes.
    pub bytes: u64,
    /// Number of allocations.
    pub allocations: u64,
    /// Bytes that rayon's workers allocated; 0 without the feature `rayon`.
    pub pool_bytes: u64,
    /// Number of allocations by rayon's workers.
    pub pool_allocations: u64,
}

/// [bytes, allocations] of other threads, and of rayon's workers.
static UNATTRIBUTED: [[AtomicU64; 2]; 2] = [const { [const { AtomicU64::new(0) }; 2] }; 2];
/// Tells whether this thread is one of a pool's workers.
static IS_WORKER: OnceLock<fn() -> bool> = OnceLock::new();

#[cfg_attr(not(feature = "rayon"), allow(dead_code, reason = "no pool is known"))]
pub(crate) fn workers_are(known_by: fn() -> bool) {
    let _ = IS_WORKER.set(known_by);
}

/// An open measurement, and the unattributed allocations before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenMeasurement {
    pub(crate) id: Id,
    before: [[u64; 2]; 2],
}

/// The result of a measurement.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) devices: Vec<MeasuredCopy>,
    pub(crate) unattributed: Unattributed,
    /// Blocks that were not entered for lack of memory.
    pub(crate) lost: u64,
    /// Frees of blocks of unknown size.
    pub(crate) unknown_frees: u64,
    /// Threads without a measurement that may have worked for this one.
    pub(crate) helpers: Vec<Helper>,
}

/// Opens a measurement inside the one that is active on this thread, or a measurement of the whole process. `None` if
/// there is no memory. The new measurement is not active on any thread until [`guard::set_measure`].
pub(crate) fn begin(whole: bool) -> Option<OpenMeasurement> {
    // Own work, here and below: a signal handler that allocates must not wait for the thread that it interrupted.
    let _own = guard::own_work();
    let mut registry = lock();
    WAS_MEASURED.store(true, Ordering::Relaxed);
    let id = registry.begin(guard::measure(), lineage::family())?;
    if whole {
        registry.make_whole(id);
    }
    after_change(&registry);
    Some(OpenMeasurement { id, before: unattributed() })
}

/// Closes a measurement and returns its result.
pub(crate) fn end(opened: OpenMeasurement) -> Option<Seen> {
    let _own = guard::own_work();
    let mut registry = lock();
    let (copied, helpers) = (registry.copy(opened.id), registry.others.helpers(opened.id));
    let unattributed = Unattributed::since(opened.before);
    close_in(&mut registry, opened.id);
    drop(registry);
    copied.map(|(devices, lost, unknown_frees)| Seen { devices, unattributed, lost, unknown_frees, helpers })
}

/// Calls `each` with every live block of an open measurement, and with whether the block is of handed-over work. `each`
/// runs under the lock and must be own work.
pub(crate) fn each_live(opened: OpenMeasurement, each: impl FnMut(Device, bool, &Block)) {
    lock().each_live(opened.id, each);
}

/// Calls `each` with live blocks of other threads that may belong to an open measurement. `each` runs under the lock
/// and must be own work.
pub(crate) fn each_of_helpers(opened: OpenMeasurement, each: impl FnMut(Device, StackId, u64)) {
    lock().each_of_helpers(opened.id, each);
}

/// Binds the measurement to this thread, and to the part of the thread's stack that begins with the caller of this
/// function.
pub(crate) fn on_this_stack(opened: OpenMeasurement) {
    let _own = guard::own_work();
    let stack = unwind::part_from_here();
    if let Some(stack) = stack {
        lock().stacks.add(opened.id, stack, thread::own_os_id());
    }
}

/// Called when a new thread frees its first block, the argument of its start routine. The thread inherits the
/// measurement of that block.
#[cold]
#[inline(never)]
pub(crate) fn on_new_thread(address: u64) {
    let _errno = KeepErrno::new();
    guard::set(guard::NEW, false);
    unwind::on_thread_start();
    lineage::claim_ancestry(address as usize);
    if WAS_MEASURED.load(Ordering::Relaxed) {
        unwind::clear_unused_stack();
    }
    if !gates::any_measurement() {
        return;
    }
    let _own = guard::own_work();
    let stack = unwind::whole_stack();
    let mut registry = lock();
    // The measurement of the whole process is not inherited: every thread belongs to it, and may work for others, too.
    let id = registry.certain_owner((Space::Heap, address));
    let id = if registry.is_of_whole_process(id) { 0 } else { id };
    if let Some(stack) = stack {
        registry.stacks.forget_others(stack, thread::own_os_id());
    }
    if id != 0 {
        registry.carry(id);
        if let Some(stack) = stack {
            registry.stacks.add(id, stack, thread::own_os_id());
        }
        drop(registry);
        guard::inherit(id);
    }
}

/// Closes a measurement, if it is open.
pub(crate) fn close(opened: OpenMeasurement) {
    let _own = guard::own_work();
    close_in(&mut lock(), opened.id);
}

fn close_in(registry: &mut Registry, id: Id) {
    registry.close(id);
    after_change(registry);
}

fn after_change(registry: &Registry) {
    IS_WHOLE.store(registry.whole != 0, Ordering::Relaxed);
    gates::set_measurements(registry.open);
}

/// Returns the measurement that is active on this thread, and marks it: work elsewhere may carry it from now on.
pub(crate) fn carry() -> Id {
    let id = guard::measure();
    if id != 0 {
        carry_id(id);
    }
    id
}

/// Marks a measurement as one that work elsewhere may carry.
pub(crate) fn carry_id(id: Id) {
    let _own = guard::own_work();
    lock().carry(id);
}

/// Which measurement becomes active when work that carries the measurement `carried` runs where `current` is active.
pub(crate) fn active_for(current: Id, carried: Id) -> Id {
    match (current, carried) {
        (_, 0) => current,
        (0, carried) => carried,
        (same, carried) if same == carried => same,
        (current, carried) => {
            let _own = guard::own_work();
            lock().active_for(current, carried)
        }
    }
}

/// Whether an allocation on this thread may matter to an open measurement.
#[inline(never)]
pub(crate) fn may_concern_this_thread() -> bool {
    guard::measure() != 0 || IS_WHOLE.load(Ordering::Relaxed) || is_related()
}

#[inline(never)]
fn is_related() -> bool {
    is_worker() || lock().is_related(lineage::family())
}

pub(crate) fn on_alloc(device: Device, address: u64, size: u64, site: EventSite) {
    let new = (device, address, size);
    // A pool's threads work for any thread, not only for the one that started the pool.
    let current = guard::measure();
    let current = if current == guard::inherited() && current != 0 && is_worker() { 0 } else { current };
    let mut registry = lock();
    // This work may carry a measurement that is closed by now.
    if registry.is_carried(current) || registry.are_all_whole() {
        registry.alloc(current, new, site, false);
        // Code that runs in an outer measurement may work for a measurement inside it, too.
        if registry.has_open_inside(current) {
            registry.alloc_of_other(new, site, lineage::family());
        }
    } else {
        on_alloc_of_other(registry, new, site);
    }
}

/// [`on_alloc`] on a thread without a measurement: it may do handed-over work.
#[inline(never)]
fn on_alloc_of_other(mut registry: LockedRegistry, new: (Device, u64, u64), site: EventSite) {
    // Any thread may use rayon's pool, whichever thread started the pool.
    let is_worker = is_worker();
    let family = if is_worker { Family::UNKNOWN } else { lineage::family() };
    let work_owner = registry.work_owner(family, |each| unwind::each_word(each));
    if let WorkOwner::One(id) = work_owner
        && registry.alloc(id, new, site, true)
    {
        return;
    }
    // A measurement of the whole process may be open, too.
    let is_of_whole = registry.alloc(0, new, site, false);
    // A pool's idle threads work for other code as well, so work of the pool needs evidence.
    if !is_worker || work_owner == WorkOwner::Several {
        registry.alloc_of_other(new, site, family);
    }
    if !is_of_whole {
        count_unattributed(new.2, is_worker);
    }
}

/// An allocation on a thread that works for no measurement.
#[inline(never)]
pub(crate) fn on_unrelated(size: u64) {
    count_unattributed(size, false);
}

fn count_unattributed(size: u64, of_pool: bool) {
    let [bytes, allocations] = &UNATTRIBUTED[usize::from(of_pool)];
    bytes.fetch_add(size, Ordering::Relaxed);
    allocations.fetch_add(1, Ordering::Relaxed);
}

/// Whether this is one of rayon's workers. The words in such a thread's registers and stack decide whose work it does.
fn is_worker() -> bool {
    IS_WORKER.get().is_some_and(|is_worker| is_worker())
}

fn unattributed() -> [[u64; 2]; 2] {
    UNATTRIBUTED.each_ref().map(|counts| counts.each_ref().map(|n| n.load(Ordering::Relaxed)))
}

impl Unattributed {
    fn since([others, pools]: [[u64; 2]; 2]) -> Self {
        let [now, pools_now] = unattributed();
        let since = |[a, b]: [u64; 2], before: [u64; 2]| [a.saturating_sub(before[0]), b.saturating_sub(before[1])];
        let [[bytes, allocations], [pool_bytes, pool_allocations]] = [since(now, others), since(pools_now, pools)];
        Self { bytes: bytes + pool_bytes, allocations: allocations + pool_allocations, pool_bytes, pool_allocations }
    }
}

/// Called before a block is freed on this thread. `known` is its device and size, if the recorder knows them.
pub(crate) fn on_free(space: Space, address: u64, known: Option<(Device, u64)>) -> Option<MeasuredFree> {
    let site = event_site::free_site();
    let current = guard::measure();
    let mut registry = lock();
    registry.free(current, (space, address), known, site)
}

/// Undoes [`on_free`], because the free failed.
pub(crate) fn undo_free(taken: MeasuredFree) {
    lock().undo_free(taken);
}

pub(crate) fn knows(space: Space, address: u64) -> bool {
    lock().knows((space, address))
}

/// Names a block. False if it belongs to no measurement.
pub(crate) fn name(device: Option<Device>, address: u64, label: BlockLabel<'_>) -> bool {
    gates::any_measurement() && lock().name(device, address, label)
}

/// Addresses of device blocks that belong to measurements.
pub(crate) fn device_blocks() -> OwnVec<(Space, u64)> {
    lock().device_blocks()
}

pub(super) fn lock() -> LockedRegistry {
    REGISTRY.lock()
}

/// Called in a forked child: only this thread's measurement continues there.
pub(super) fn abandon(registry: &mut Registry) {
    registry.keep_only(guard::measure());
    after_change(registry);
}
