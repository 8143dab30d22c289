//! The state of all open measurements, as a value: a tree of measurements, and the owner of each block.
//!
//! A block belongs to the measurement that was active at its allocation, and to all measurements around that one. It is
//! taken out of them wherever it is freed.

use std::num::NonZeroU64;
use std::time::Instant;

use memtrace_core::snapshot::{Block, Device, StackId, ThreadId};

use super::super::ledger::names::BlockLabel;
use super::accounts::{MeasuredCopy, MeasuredLedger, MeasurementState};
use super::id::Id;
use super::lineage;
use super::lineage::Family;
use super::others::{Helper, Others, WorkOwner};
use super::stacks::{Hidden, MeasuredStacks};
use crate::record::event_site::EventSite;
use crate::record::memory::{OwnMap, OwnVec, System, own_map, own_vec};
use crate::record::unwind;

/// Address space of a block. They are separate, because pinned memory may share addresses with the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Space {
    Heap,
    Pinned,
    Device,
}

impl Space {
    pub(crate) fn of(device: Device) -> Self {
        match device {
            Device::Cpu => Self::Heap,
            Device::Pinned => Self::Pinned,
            _ => Self::Device,
        }
    }
}

/// While a block's free may still fail, its positions in this many nested measurements are kept.
const NESTED: usize = 4;

#[derive(Clone, Copy, Debug)]
struct Owner {
    /// 0 for a block that no measurement owns.
    measure: Id,
    device: Device,
    size: u64,
    thread: ThreadId,
    stack: StackId,
    /// The block is of handed-over work.
    handed: bool,
    /// The newest measurement when this block was allocated by a thread outside all measurements, or in one around
    /// another. The block may be for any measurement up to that one that does not contain it. 0 for the blocks of other
    /// threads.
    of_other: Id,
}

/// A free as the measurements saw it. It is used to undo the free.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MeasuredFree {
    address: u64,
    owner: Option<(Owner, Option<Block>)>,
    /// The block's positions in the measurements that it belonged to, innermost first.
    numbers: [(Id, u64); NESTED],
    /// The innermost measurement that was active at the free and did not own the block; 0 for none.
    foreign: Id,
    device: Device,
    size: u64,
}

#[derive(Debug)]
pub(crate) struct Registry {
    measures: OwnMap<Id, MeasurementState>,
    owners: OwnMap<(Space, u64), Owner>,
    /// A range that contains the heap addresses of all owned blocks.
    heap: Hidden,
    pub(super) stacks: MeasuredStacks,
    others: Others,
    /// The innermost measurement of the whole process; 0 for none. It owns every block without another owner.
    whole: Id,
    last: Id,
    open: usize,
}

impl Registry {
    pub(crate) const fn new() -> Self {
        Self {
            measures: own_map(),
            owners: own_map(),
            heap: Hidden::NOWHERE,
            stacks: MeasuredStacks::new(),
            others: Others::new(),
            whole: 0,
            last: 0,
            open: 0,
        }
    }

    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// Opens a measurement inside another one (0 for none). `None` if there is no memory.
    pub(crate) fn begin(&mut self, around: Id, family: Family) -> Option<Id> {
        self.measures.try_reserve(1).ok()?;
        self.last += 1;
        let parent = self.open_for(around);
        let devices = OwnVec::new_in(System);
        let measure = MeasurementState {
            parent,
            began: Instant::now(),
            family,
            whole: false,
            open: true,
            carried: false,
            devices,
            lost: 0,
            unknown_frees: 0,
        };
        self.measures.insert(self.last, measure);
        self.open += 1;
        Some(self.last)
    }

    /// Turns this measurement into one of the whole process, which encloses all others.
    pub(crate) fn make_whole(&mut self, id: Id) {
        for (other, measure) in &mut self.measures {
            if *other == id {
                measure.parent = 0;
                measure.whole = true;
            } else if measure.parent == 0 {
                measure.parent = id;
            }
        }
        if self.whole == 0 {
            self.whole = id;
        }
    }

    /// Whether every open measurement covers the whole process.
    pub(super) fn are_all_whole(&self) -> bool {
        self.measures.values().all(|measure| measure.whole || !measure.open)
    }

    pub(super) fn is_of_whole_process(&self, id: Id) -> bool {
        self.measures.get(&id).is_some_and(|measure| measure.whole)
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.whole != 0
    }

    /// The open measurement that work with this id belongs to; 0 for none.
    pub(super) fn open_for(&self, id: Id) -> Id {
        match self.nearest_open(id) {
            0 => self.whole,
            open => open,
        }
    }

    /// Returns (account of each device, lost blocks, frees of unknown size).
    pub(crate) fn copy(&self, id: Id) -> Option<(Vec<MeasuredCopy>, u64, u64)> {
        let measure = self.measures.get(&id)?;
        let copy = |on: &MeasuredLedger| {
            let &MeasuredLedger { device, handed, foreign_freed, ref ledger } = on;
            MeasuredCopy { device, handed, foreign_freed, ledger: ledger.copy(0) }
        };
        Some((measure.devices.iter().map(copy).collect(), measure.lost, measure.unknown_frees))
    }

    pub(crate) fn each_live(&self, id: Id, mut each: impl FnMut(Device, bool, &Block)) {
        for on in self.measures.get(&id).iter().flat_map(|measure| &measure.devices) {
            on.ledger.live_blocks().for_each(|block| each(on.device, on.handed, &block));
        }
    }

    /// Calls `each` with the blocks of threads that may have worked for this measurement.
    pub(crate) fn each_of_helpers(&self, id: Id, mut each: impl FnMut(Device, StackId, u64)) {
        let helps = |owner: &&Owner| self.may_be_for(id, owner) && self.others.has(id, owner.thread, owner.device);
        self.owners.values().filter(helps).for_each(|owner| each(owner.device, owner.stack, owner.size));
    }

    /// Threads that may have worked for this measurement.
    pub(crate) fn helpers(&self, id: Id) -> Vec<Helper> {
        self.others.helpers(id)
    }

    /// Whether this is a block of another thread, allocated while this measurement was open and not counted in it.
    fn may_be_for(&self, id: Id, owner: &Owner) -> bool {
        id <= owner.of_other && !self.contains(id, self.nearest_open(owner.measure))
    }

    fn family(&self, id: Id) -> Family {
        self.measures.get(&id).map_or(Family::UNKNOWN, |measure| measure.family)
    }

    /// Whether a thread of this family may work for any open measurement.
    pub(super) fn is_related(&self, family: Family) -> bool {
        self.measures.values().any(|measure| measure.open && family.may_work_for(measure.family))
    }

    /// The measurement that owns a block; 0 for none.
    pub(crate) fn owner(&self, key: (Space, u64)) -> Id {
        self.owners.get(&key).map_or(0, |owner| self.nearest_open(owner.measure))
    }

    /// The measurement that a block certainly belongs to, not only by evidence; 0 for none.
    pub(super) fn certain_owner(&self, key: (Space, u64)) -> Id {
        let certain = self.owners.get(&key).filter(|owner| !owner.handed);
        certain.map_or(0, |owner| self.nearest_open(owner.measure))
    }

    /// Decides whose work a thread does, from the words in its registers and on its stack. A thread that works for a
    /// measurement has addresses of the measurement's blocks or stacks.
    pub(super) fn work_owner(&self, family: Family, each_word: impl FnOnce(&mut dyn FnMut(u64, u64))) -> WorkOwner {
        let mut work_owner = WorkOwner::Nobody;
        let all = self.heap.and(self.stacks.span());
        each_word(&mut |word, at| {
            if !all.contains(word) {
                return;
            }
            let stack = self.stacks.at(word);
            let id = stack.map_or_else(|| self.owner_at(word), |stack| self.nearest_open(stack.id));
            // Most words belong to the measurement that was already found. Words of a measurement of the whole process
            // prove nothing, as it contains everything.
            let is_known = id == 0 || work_owner == WorkOwner::One(id) || self.is_of_whole_process(id);
            if is_known || !family.may_work_for(self.family(id)) {
                return;
            }
            // A thread starts with addresses of its parent's stack.
            let is_from_then = |os_thread| unwind::was_held_at_start(word, at, lineage::may_be_started_by(os_thread));
            if stack.is_none_or(|stack| !is_from_then(stack.os_thread)) {
                work_owner = work_owner.and(id, |outer, inner| self.contains(outer, inner));
            }
        });
        work_owner
    }

    /// The measurement that owns the heap block at this address.
    fn owner_at(&self, word: u64) -> Id {
        let may_be = self.heap.contains(word) && word.is_multiple_of(size_of::<usize>() as u64);
        if may_be { self.owner((Space::Heap, word)) } else { 0 }
    }

    /// Closes a measurement. Its parent gets its live blocks and the measurements inside it.
    pub(crate) fn close(&mut self, id: Id) {
        let Some(measure) = self.measures.get_mut(&id).filter(|measure| measure.open) else { return };
        let (parent, keep) = (measure.parent, measure.carried && measure.parent != 0);
        measure.open = false;
        let was_whole = measure.whole;
        if self.whole == id {
            self.whole = parent;
        }
        self.open -= 1;
        self.others.close(id);
        let devices = std::mem::replace(&mut measure.devices, OwnVec::new_in(System));
        for on in &devices {
            on.ledger.live_blocks().for_each(|block| self.hand_over((Space::of(on.device), block.address), id, parent));
        }
        if was_whole {
            self.hand_over_all(id, parent);
        }
        if !keep {
            self.measures.remove(&id);
        }
        // Inner measurements get the parent. A closed measurement without a parent is removed.
        self.measures.retain(|_, inner| {
            if inner.parent == id {
                inner.parent = parent;
            }
            inner.open || inner.parent != 0
        });
        self.stacks.hand_over(id, parent);
        if self.open == 0 {
            self.owners.retain(|_, owner| owner.measure != 0);
            self.heap = Hidden::NOWHERE;
            self.stacks = MeasuredStacks::new();
            self.others.clear();
        }
    }

    fn hand_over(&mut self, key: (Space, u64), from: Id, to: Id) {
        match self.owners.get_mut(&key) {
            Some(owner) if owner.measure == from && (to != 0 || owner.of_other != 0) => owner.measure = to,
            Some(owner) if owner.measure == from => _ = self.owners.remove(&key),
            _ => {}
        }
    }

    /// A measurement of the whole process may also own blocks that are in none of its ledgers. It took them over from
    /// an inner one.
    fn hand_over_all(&mut self, from: Id, to: Id) {
        self.owners.retain(|_, owner| {
            let is_meant = owner.measure == from;
            if is_meant {
                owner.measure = to;
            }
            !is_meant || to != 0 || owner.of_other != 0
        });
    }

    /// Marks this measurement as one that work elsewhere may carry.
    pub(crate) fn carry(&mut self, id: Id) {
        if let Some(measure) = self.measures.get_mut(&id) {
            measure.carried = true;
        }
    }

    /// Which measurement is active where work that carries one runs inside another one: the carried one, unless the
    /// current one is inside it.
    pub(crate) fn active_for(&self, current: Id, carried: Id) -> Id {
        let carried = self.nearest_open(carried);
        if carried == 0 || self.contains(carried, self.nearest_open(current)) { current } else { carried }
    }

    /// Whether work that carries this measurement belongs to an open one.
    pub(super) fn is_carried(&self, id: Id) -> bool {
        self.nearest_open(id) != 0
    }

    /// Enters a block. False if there is no measurement to enter it into.
    pub(crate) fn alloc(&mut self, current: Id, device: Device, address: u64, size: u64, site: EventSite) -> bool {
        self.enter(current, (device, address, size), site, false)
    }

    /// Like [`alloc`](Self::alloc). `handed` marks a block of handed-over work.
    pub(super) fn enter(&mut self, current: Id, new: (Device, u64, u64), site: EventSite, handed: bool) -> bool {
        let (device, address, size) = new;
        let key = (Space::of(device), address);
        if self.owners.contains_key(&key) {
            // The free of the previous block at this address was missed.
            self.free(0, key, None, EventSite::default());
        }
        let first = self.open_for(current);
        if first == 0 {
            return false;
        }
        let room = self.owners.try_reserve(1).is_ok();
        each_around(&mut self.measures, first, |_, measure| {
            let entered = room && measure.on(device, handed).is_some_and(|on| on.ledger.alloc(address, size, site));
            measure.lost += u64::from(!entered);
        });
        if room {
            let EventSite { thread, stack, .. } = site;
            self.owners.insert(key, Owner { measure: first, device, size, thread, stack, handed, of_other: 0 });
            if key.0 == Space::Heap {
                self.heap = self.heap.with(address);
            }
        }
        true
    }

    /// Notes a block of another thread for the measurements that it may be for. Another measurement may own the block.
    pub(super) fn alloc_of_other(&mut self, new: (Device, u64, u64), site: EventSite, family: Family) {
        let (device, address, size) = new;
        if self.owners.try_reserve(1).is_err() {
            return;
        }
        let EventSite { thread, stack, .. } = site;
        let owner = Owner { measure: 0, device, size, thread, stack, handed: false, of_other: self.last };
        let entry = self.owners.entry((Space::of(device), address)).or_insert(owner);
        entry.of_other = self.last;
        let owner = *entry;
        self.each_other(&owner, |id, measure, others| {
            if measure.open && family.may_work_for(measure.family) {
                others.alloc(id, new, site);
            }
        });
    }

    /// Calls `f` with each measurement that this block of another thread may be for.
    fn each_other(&mut self, owner: &Owner, mut f: impl FnMut(Id, &MeasurementState, &mut Others)) {
        let mut others = std::mem::replace(&mut self.others, Others::new());
        let may_be_for = |(id, _): &(&Id, &MeasurementState)| self.may_be_for(**id, owner);
        self.measures.iter().filter(may_be_for).for_each(|(id, measure)| f(*id, measure, &mut others));
        self.others = others;
    }

    /// Whether another measurement is open inside the one that is active for work with this id.
    pub(super) fn has_open_inside(&self, id: Id) -> bool {
        let id = self.nearest_open(id);
        let is_inside =
            |(inner, measure): (&Id, &MeasurementState)| *inner != id && measure.open && self.contains(id, *inner);
        self.open > 1 && self.measures.iter().any(is_inside)
    }

    /// Takes a block out. `known` is its device and size, if the recorder knows them.
    pub(crate) fn free(
        &mut self,
        current: Id,
        key: (Space, u64),
        known: Option<(Device, u64)>,
        site: EventSite,
    ) -> Option<MeasuredFree> {
        let owner = self.owners.remove(&key);
        if let Some(owner) = owner.filter(|owner| owner.of_other != 0) {
            self.each_other(&owner, |id, _, others| others.free(id, owner.thread, owner.device, owner.size));
        }
        let own = owner.map_or(0, |owner| self.nearest_open(owner.measure));
        let (mut block, mut numbers) = (None, [(0, 0); NESTED]);
        let mut free_numbers = numbers.iter_mut();
        each_around(&mut self.measures, own, |id, measure| {
            let on = owner.and_then(|owner| measure.on(owner.device, owner.handed));
            if let Some(freed) = on.and_then(|on| on.ledger.free(key.1, site)) {
                block = Some(freed.block());
                if let Some(number) = free_numbers.next() {
                    *number = (id, freed.seq());
                }
            }
        });
        let foreign = self.open_for(current);
        let Some((device, size)) = owner.map(|owner| (owner.device, owner.size)).or(known) else {
            each_around(&mut self.measures, foreign, |_, measure| measure.unknown_frees += 1);
            return None;
        };
        let owner = owner.map(|owner| (owner, block));
        let taken = MeasuredFree { address: key.1, owner, numbers, foreign, device, size };
        self.each_foreign(&taken, |freed| *freed += size);
        Some(taken)
    }

    /// The free failed: puts the block back.
    pub(crate) fn undo_free(&mut self, taken: MeasuredFree) {
        self.each_foreign(&taken, |freed| *freed = freed.saturating_sub(taken.size));
        let Some((owner, Some(block))) = taken.owner else { return };
        let measure = self.nearest_open(owner.measure);
        if measure == 0 || self.owners.try_reserve(1).is_err() {
            return;
        }
        self.owners.insert((Space::of(owner.device), taken.address), Owner { measure, ..owner });
        each_around(&mut self.measures, measure, |id, measure| {
            let number = taken.numbers.iter().find(|(of, _)| *of == id);
            let block = number.map(|(_, seq)| Block { seq: NonZeroU64::new(*seq), ..block });
            let put_back = |block| measure.on(owner.device, owner.handed).is_some_and(|on| on.ledger.undo_free(block));
            measure.lost += u64::from(!block.as_ref().is_some_and(put_back));
        });
    }

    /// Names a block in the measurements that own it. False if there are none.
    pub(crate) fn name(&mut self, device: Option<Device>, address: u64, label: BlockLabel<'_>) -> bool {
        let spaces = [Space::Heap, Space::Pinned, Space::Device];
        let spaces = spaces.into_iter().filter(|space| device.is_none_or(|device| Space::of(device) == *space));
        let owner = spaces.filter_map(|space| self.owners.get(&(space, address)).copied()).next();
        let Some(owner) = owner else { return false };
        let mut named = false;
        each_around(&mut self.measures, owner.measure, |_, measure| {
            named |= measure.on(owner.device, owner.handed).is_some_and(|on| on.ledger.name(address, label));
        });
        named
    }

    pub(crate) fn knows(&self, key: (Space, u64)) -> bool {
        self.owners.contains_key(&key)
    }

    pub(crate) fn device_blocks(&self) -> OwnVec<(Space, u64)> {
        own_vec(self.owners.keys().filter(|(space, _)| *space != Space::Heap).copied())
    }

    /// In a forked child, only this measurement and those around it continue. Other threads do not exist there.
    pub(crate) fn keep_only(&mut self, current: Id) {
        let kept = own_vec(self.around(self.nearest_open(current)).map(|(id, _)| id));
        self.measures.retain(|id, _| kept.contains(id));
        self.owners.retain(|_, owner| kept.contains(&owner.measure));
        self.stacks.keep_only(&kept);
        self.others.clear();
        if !kept.contains(&self.whole) {
            self.whole = 0;
        }
        self.open = self.measures.values().filter(|measure| measure.open).count();
    }

    /// This measurement if it is open, or else the innermost open one around it; 0 for none.
    fn nearest_open(&self, id: Id) -> Id {
        self.around(id).find(|(_, measure)| measure.open).map_or(0, |(id, _)| id)
    }

    /// Whether `inner` equals `outer` or is inside it.
    fn contains(&self, outer: Id, inner: Id) -> bool {
        self.around(inner).any(|(id, _)| id == outer)
    }

    /// This measurement and those around it, innermost first.
    fn around(&self, id: Id) -> impl Iterator<Item = (Id, &MeasurementState)> {
        let get = |id: Id| self.measures.get_key_value(&id);
        std::iter::successors(get(id), move |(_, measure)| get(measure.parent)).map(|(id, measure)| (*id, measure))
    }

    /// Calls `change` with `foreign_freed` of each active measurement that does not own the block.
    fn each_foreign(&mut self, taken: &MeasuredFree, mut change: impl FnMut(&mut u64)) {
        let own = taken.owner.map_or(0, |(owner, _)| self.nearest_open(owner.measure));
        let mut at = taken.foreign;
        while self.measures.contains_key(&at) && !self.contains(at, own) {
            let Some(measure) = self.measures.get_mut(&at) else { return };
            if let Some(on) = measure.on(taken.device, false) {
                change(&mut on.foreign_freed);
            }
            at = measure.parent;
        }
    }
}

/// Calls `f` with this measurement and those around it, innermost first.
fn each_around(measures: &mut OwnMap<Id, MeasurementState>, id: Id, mut f: impl FnMut(Id, &mut MeasurementState)) {
    let mut at = id;
    while let Some(measure) = measures.get_mut(&at) {
        f(at, measure);
        at = measure.parent;
    }
}

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;
