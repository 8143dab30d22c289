//! Measurements: what each one that is open sees, behind one lock.
//!
//! One lock is enough: it is held for less than taking a stack takes, and only while something is measured.

#[cfg_attr(not(target_os = "linux"), path = "asleep_elsewhere.rs")]
mod asleep;
mod id;
mod others;
mod registry;
mod stacks;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub(crate) use id::Id;
pub(crate) use others::Helper;
use others::Whose;
use registry::Registry;
pub(crate) use registry::{DeviceMeasured, Space, Taken};

use super::lineage::Family;
use super::lock::{Lock, Locked, rank};
use super::memory::OwnVec;
use super::names::Label;
use super::{Site, gates, guard, here, lineage, thread, unwind};
use crate::errno::KeepErrno;
use crate::snapshot::{Block, Device, StackId};

/// A measurement of the whole process is open.
static IS_WHOLE: AtomicBool = AtomicBool::new(false);
/// Something was measured in this process.
static WAS_MEASURED: AtomicBool = AtomicBool::new(false);
static REGISTRY: Lock<Registry, { rank::MEASURES }> = Lock::new(Registry::new());

pub(super) type LockedRegistry = Locked<'static, Registry, { rank::MEASURES }>;

/// What threads allocated that carry no measurement, while one was open: other tests, or work that was done for the
/// measured code on a pool that others share. Whose it was is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unattributed {
    /// Bytes of all those blocks.
    pub bytes: u64,
    /// Their number.
    pub allocations: u64,
    /// Bytes of those that rayon's workers allocated; 0 without the feature `rayon`.
    pub pool_bytes: u64,
    /// Their number.
    pub pool_allocations: u64,
}

static UNATTRIBUTED: [[AtomicU64; 2]; 2] = [const { [const { AtomicU64::new(0) }; 2] }; 2];
/// Says whether this thread is one of a pool's workers.
static IS_WORKER: OnceLock<fn() -> bool> = OnceLock::new();

/// How workers of a pool are known from here on.
#[cfg_attr(not(feature = "rayon"), allow(dead_code, reason = "no pool is known"))]
pub(crate) fn workers_are(known_by: fn() -> bool) {
    let _ = IS_WORKER.set(known_by);
}

/// A measurement that is open, and what was unattributed before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    pub(crate) id: Id,
    before: Unattributed,
}

/// What a measurement saw.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) devices: Vec<DeviceMeasured>,
    pub(crate) unattributed: Unattributed,
    /// Blocks that could not be entered for lack of memory.
    pub(crate) lost: u64,
    /// Frees of blocks whose size nobody knew.
    pub(crate) unknown_frees: u64,
    /// Threads that carry none and may have worked for it.
    pub(crate) helpers: Vec<Helper>,
}

/// Opens a measurement inside the one in force here, or of the whole process; `None` if there is no memory for it. Nothing
/// is in force by that: see [`guard::set_measure`].
pub(crate) fn begin(whole: bool) -> Option<Opened> {
    // Here and below: a signal handler that allocates must not wait for the thread that it interrupted.
    let _own = guard::own_work();
    let mut registry = lock();
    WAS_MEASURED.store(true, Ordering::Relaxed);
    let id = registry.begin(guard::measure(), lineage::family())?;
    if whole {
        registry.make_whole(id);
    }
    after_change(&registry);
    Some(Opened { id, before: unattributed() })
}

/// Closes a measurement; gives what it saw.
pub(crate) fn end(opened: Opened) -> Option<Seen> {
    let _own = guard::own_work();
    let mut registry = lock();
    let (copied, helpers) = (registry.copy(opened.id), registry.helpers(opened.id));
    let unattributed = unattributed().since(opened.before);
    close_in(&mut registry, opened.id);
    drop(registry);
    copied.map(|(devices, lost, unknown_frees)| Seen { devices, unattributed, lost, unknown_frees, helpers })
}

/// Every block that is live in an open measurement, and whether it is of work that was handed over. What is called may do
/// nothing but own work.
pub(crate) fn each_live(opened: Opened, each: impl FnMut(Device, bool, &Block)) {
    lock().each_live(opened.id, each);
}

/// Blocks that are live and may be an open measurement's. What is called may do nothing but own work.
pub(crate) fn each_of_helpers(opened: Opened, each: impl FnMut(Device, StackId, u64)) {
    lock().each_of_helpers(opened.id, each);
}

/// It is in force on this thread from here on.
pub(crate) fn on_this_stack(opened: Opened) {
    let _own = guard::own_work();
    lineage::is_on_its_own();
    let stack = unwind::part_from_here();
    let mut registry = lock();
    registry.bind(opened.id, thread::own_os_id());
    if let Some(stack) = stack {
        registry.stacks.add(opened.id, stack, thread::own_os_id());
    }
}

/// A thread's first act is to free a block: that of whoever began the thread, which goes on with that one's work.
#[cold]
#[inline(never)]
pub(crate) fn on_new_thread(address: u64) {
    let _errno = KeepErrno::new();
    guard::set(guard::NEW, false);
    unwind::thread_begins();
    lineage::begun(address as usize);
    if WAS_MEASURED.load(Ordering::Relaxed) {
        unwind::clear_unused_stack();
    }
    if !gates::any_measurement() {
        return;
    }
    let _own = guard::own_work();
    let stack = unwind::whole_stack();
    let mut registry = lock();
    let id = registry.owner((Space::Heap, address));
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
pub(crate) fn close(opened: Opened) {
    let _own = guard::own_work();
    close_in(&mut lock(), opened.id);
}

fn close_in(registry: &mut Registry, id: Id) {
    registry.close(id);
    after_change(registry);
}

fn after_change(registry: &Registry) {
    IS_WHOLE.store(registry.is_whole(), Ordering::Relaxed);
    gates::set_measurements(registry.open());
}

/// The measurement in force here, for work elsewhere to carry.
pub(crate) fn carry() -> Id {
    let id = guard::measure();
    if id != 0 {
        carry_id(id);
    }
    id
}

/// Work elsewhere may carry this one.
pub(crate) fn carry_id(id: Id) {
    let _own = guard::own_work();
    lock().carry(id);
}

/// Which measurement is in force where work that carries one runs inside another.
pub(crate) fn in_force(current: Id, carried: Id) -> Id {
    match (current, carried) {
        (_, 0) => current,
        (0, carried) => carried,
        (same, carried) if same == carried => same,
        (current, carried) => {
            let _own = guard::own_work();
            lock().in_force(current, carried)
        }
    }
}

/// May a block that is allocated on this thread be of any interest, where something is measured?
#[inline(never)]
pub(crate) fn may_concern_this_thread() -> bool {
    guard::measure() != 0 || IS_WHOLE.load(Ordering::Relaxed) || is_related()
}

#[inline(never)]
fn is_related() -> bool {
    is_worker() || lineage::helps() && lock().is_related(lineage::family())
}

/// A block was allocated on this thread.
pub(crate) fn on_alloc(device: Device, address: u64, size: u64, site: Site) {
    // A pool's threads work for whoever comes, also for others than who began them.
    let current = guard::measure();
    let current = if current == guard::inherited() && current != 0 && is_worker() { 0 } else { current };
    let mut registry = lock();
    // Work may carry a measurement that was closed.
    if registry.is_carried(current) || registry.are_all_whole() {
        registry.alloc(current, device, address, size, site);
    } else {
        on_alloc_of_other(registry, device, address, size, site);
    }
}

/// The same on a thread that carries no measurement: pools do the work of others.
#[inline(never)]
fn on_alloc_of_other(mut registry: LockedRegistry, device: Device, address: u64, size: u64, site: Site) {
    // A pool of rayon's works for everybody.
    let is_worker = is_worker();
    let family = if is_worker { Family::UNKNOWN } else { lineage::family() };
    let mut whose = registry.whose(family, |each| unwind::each_word(each));
    if let Whose::One(id) = whose
        && is_worker
    {
        let waiting = registry.os_thread(id);
        drop(registry);
        // Who has work done by such a pool waits for it. What was done for others may have left the words behind.
        if waiting != 0 && !asleep::soon(waiting) {
            whose = Whose::Nobody;
        }
        registry = lock();
    }
    if let Whose::One(id) = whose
        && registry.enter(id, (device, address, size), site, true)
    {
        return;
    }
    // One of the whole process may be open beside those whose work this is not.
    if registry.alloc(0, device, address, size, site) {
        return;
    }
    if !is_worker {
        registry.alloc_of_other((device, address, size), site, family, whose);
    }
    count_unattributed(size, is_worker);
}

/// The same on a thread that works for none.
#[inline(never)]
pub(crate) fn on_unrelated(size: u64) {
    count_unattributed(size, false);
}

fn count_unattributed(size: u64, of_pool: bool) {
    let [bytes, allocations] = &UNATTRIBUTED[usize::from(of_pool)];
    bytes.fetch_add(size, Ordering::Relaxed);
    allocations.fetch_add(1, Ordering::Relaxed);
}

/// Of rayon's: what one holds tells whose work it does.
fn is_worker() -> bool {
    IS_WORKER.get().is_some_and(|is_worker| is_worker())
}

fn unattributed() -> Unattributed {
    let [others, pools] = UNATTRIBUTED.each_ref().map(|n| n.each_ref().map(|n| n.load(Ordering::Relaxed)));
    let [(bytes, allocations), (pool_bytes, pool_allocations)] = [others, pools].map(|[a, b]| (a, b));
    Unattributed {
        bytes: bytes + pool_bytes,
        allocations: allocations + pool_allocations,
        pool_bytes,
        pool_allocations,
    }
}

impl Unattributed {
    fn since(self, before: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(before.bytes),
            allocations: self.allocations.saturating_sub(before.allocations),
            pool_bytes: self.pool_bytes.saturating_sub(before.pool_bytes),
            pool_allocations: self.pool_allocations.saturating_sub(before.pool_allocations),
        }
    }
}

/// A block is about to be freed on this thread; `known` is its device and size, as far as others know them.
pub(crate) fn on_free(space: Space, address: u64, known: Option<(Device, u64)>) -> Option<Taken> {
    let site = here::free_site();
    let current = guard::measure();
    let mut registry = lock();
    let taken = registry.free(current, (space, address), known, site);
    if let Some(taken) = taken.as_ref().filter(|_| !is_worker()) {
        registry.changed_hands(taken, current, thread::number());
    }
    taken
}

/// It was not freed after all.
pub(crate) fn undo_free(taken: Taken) {
    lock().undo_free(taken);
}

/// Does a block belong to any measurement?
pub(crate) fn knows(space: Space, address: u64) -> bool {
    lock().knows((space, address))
}

/// Names a block; false if it belongs to no measurement.
pub(crate) fn name(device: Option<Device>, address: u64, label: Label<'_>) -> bool {
    gates::any_measurement() && lock().name(device, address, label)
}

/// Addresses of blocks that are not of the heap.
pub(crate) fn device_blocks() -> OwnVec<(Space, u64)> {
    lock().device_blocks()
}

pub(super) fn lock() -> LockedRegistry {
    REGISTRY.lock()
}

/// What is measured on threads that are not in a forked child is over there.
pub(super) fn abandon(registry: &mut Registry) {
    registry.keep_only(guard::measure());
    after_change(registry);
}
