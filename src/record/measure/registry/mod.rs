//! The state of all open measurements, as a value: a tree of measurements, and the owner of each block.
//!
//! A block belongs to the measurement that was active at its allocation, and to all measurements around that one. It is
//! taken out of them wherever it is freed.

mod blocks;
mod owner;
mod work;

use std::time::Instant;

use memtrace_core::snapshot::{Block, Device, StackId};
pub(crate) use owner::{MeasuredFree, Space};

use self::owner::Owner;
use super::accounts::{MeasuredCopy, MeasuredLedger, MeasurementState};
use super::id::Id;
use super::lineage::Family;
use super::others::Others;
use super::stacks::{Hidden, MeasuredStacks};
use crate::record::memory::{OwnMap, OwnVec, System, own_map, own_vec};

#[derive(Debug)]
pub(crate) struct Registry {
    measures: OwnMap<Id, MeasurementState>,
    owners: OwnMap<(Space, u64), Owner>,
    /// A range that contains the heap addresses of all owned blocks.
    heap: Hidden,
    pub(in crate::record::measure) stacks: MeasuredStacks,
    /// Threads that may have worked for measurements.
    pub(in crate::record::measure) others: Others,
    /// The innermost measurement of the whole process; 0 for none. It owns every block without another owner.
    pub(in crate::record::measure) whole: Id,
    last: Id,
    pub(in crate::record::measure) open: usize,
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
    pub(crate) fn are_all_whole(&self) -> bool {
        self.measures.values().all(|measure| measure.whole || !measure.open)
    }

    pub(crate) fn is_of_whole_process(&self, id: Id) -> bool {
        self.measures.get(&id).is_some_and(|measure| measure.whole)
    }

    /// The open measurement to which work that carries the measurement `id` belongs; 0 for none.
    pub(crate) fn open_for(&self, id: Id) -> Id {
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
            on.ledger.live.iter().for_each(|block| each(on.device, on.handed, &block));
        }
    }

    /// Calls `each` with the blocks of threads that may have worked for this measurement.
    pub(crate) fn each_of_helpers(&self, id: Id, mut each: impl FnMut(Device, StackId, u64)) {
        let helps = |owner: &&Owner| self.may_be_for(id, owner) && self.others.has(id, owner.thread, owner.device);
        self.owners.values().filter(helps).for_each(|owner| each(owner.device, owner.stack, owner.size));
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
            on.ledger.live.iter().for_each(|block| self.hand_over((Space::of(on.device), block.address), id, parent));
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

    /// Hands over all blocks of a measurement of the whole process. It may own blocks that are in none of its ledgers,
    /// because it took them over from an inner measurement.
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
mod tests;
