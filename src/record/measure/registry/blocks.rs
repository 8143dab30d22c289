//! Allocs, frees and names of blocks that measurements own.

use std::num::NonZeroU64;

use memtrace_core::snapshot::{Block, Device};

use super::owner::{MeasuredFree, NESTED, Owner, Space};
use super::{Registry, each_around};
use crate::record::event_site::EventSite;
use crate::record::ledger::names::BlockLabel;
use crate::record::measure::accounts::MeasurementState;
use crate::record::measure::id::Id;
use crate::record::measure::lineage::Family;
use crate::record::measure::others::Others;
use crate::record::memory::{OwnVec, own_vec};

impl Registry {
    /// Enters a block; false if there is no measurement to enter it into. `handed` says that the block is of handed-over
    /// work.
    pub(crate) fn alloc(&mut self, current: Id, new: (Device, u64, u64), site: EventSite, handed: bool) -> bool {
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

    /// Notes a block of another thread for each open measurement that the block may be for. Another measurement may own
    /// it.
    pub(crate) fn alloc_of_other(&mut self, new: (Device, u64, u64), site: EventSite, family: Family) {
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

    /// Takes a freed block out of the measurements that own it. `known` is the block's device and size, if the recorder
    /// knows them.
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

    /// Names a block in the measurements that own it. False if no measurement owns it.
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
