//! Open measurements and whose each block is, as a value.
//!
//! A block belongs to the measurement in force where it was allocated and to all those around that one. It is
//! taken out of them wherever it is freed.

use std::num::NonZeroU64;
use std::time::Instant;

use super::id::Id;
use super::others::{Helper, Others, Whose};
use super::stacks::{Hidden, Stacks};
use crate::record::ledger::{Ledger, LedgerCopy, LedgerOptions};
use crate::record::lineage::{self, Family};
use crate::record::memory::{OwnMap, OwnVec, System, make_room, own_map, put, try_push};
use crate::record::names::Label;
use crate::record::site::Site;
use crate::record::unwind;
use crate::snapshot::{Block, ContextId, Device, MemoryKind, StackId, ThreadId};

/// Records that the log of a measurement holds, for each device.
const MAX_ENTRIES: usize = 1 << 16;

/// Where a block is: pinned memory may have the addresses of the heap's.
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

/// Measurements inside each other whose number of a block is kept while it is being freed.
const NESTED: usize = 4;

#[derive(Clone, Copy, Debug)]
struct Owner {
    /// 0 for a block of a thread that carried none.
    measure: Id,
    device: Device,
    size: u64,
    thread: ThreadId,
    stack: StackId,
    /// Of a thread that carries none, but holds memory of this one.
    handed: bool,
}

/// A block that was taken out of the measurements that it belonged to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    address: u64,
    owner: Option<(Owner, Option<Block>)>,
    /// Its numbers in the measurements that it belonged to, from the innermost outwards.
    numbers: [(Id, u64); NESTED],
    /// Of measurements that it did not belong to, the innermost that counted it as freed.
    foreign: Id,
    device: Device,
    size: u64,
}

/// What one device did.
#[derive(Debug)]
struct OnDevice {
    device: Device,
    /// What threads did that carry none, but hold memory of this one: work that was handed over, as it seems.
    handed: bool,
    ledger: Ledger,
    /// Bytes of blocks that were freed here and had not been allocated here.
    foreign_freed: u64,
}

/// The same, copied.
#[derive(Clone, Debug)]
pub(crate) struct DeviceMeasured {
    pub(crate) device: Device,
    /// Work that was handed over, as it seems.
    pub(crate) handed: bool,
    pub(crate) foreign_freed: u64,
    pub(crate) ledger: LedgerCopy,
}

impl DeviceMeasured {
    /// The largest blocks of some threads, as if they were a measurement's.
    pub(crate) fn of_helpers(helpers: &[Helper]) -> Self {
        let mut ledger = Ledger::new(LedgerOptions::default(), Instant::now()).copy(0);
        let block = |(seq, helper): (u64, &Helper)| {
            let (context, memory) = (ContextId::ROOT, MemoryKind::Heap);
            let Helper { thread, largest: size, stack, .. } = *helper;
            Block {
                address: seq,
                size,
                seq: NonZeroU64::new(seq),
                time_ns: 0,
                stack,
                context,
                thread,
                stream: 0,
                memory,
            }
        };
        ledger.live = (1..).zip(helpers).map(block).collect();
        Self { device: Device::Cpu, handed: true, foreign_freed: 0, ledger }
    }
}

#[derive(Debug)]
struct Measure {
    /// The measurement around this one.
    parent: Id,
    began: Instant,
    /// That of the thread that began it.
    family: Family,
    /// The system's number of the thread that it is bound to; 0 if there is none.
    os_thread: u32,
    /// It is of the whole process.
    whole: bool,
    /// A closed one is kept as long as work may carry it: what that does is its parent's.
    open: bool,
    /// Work elsewhere may carry it.
    carried: bool,
    devices: OwnVec<OnDevice>,
    /// Blocks that could not be entered for lack of memory.
    lost: u64,
    /// Frees of blocks whose size nobody knew.
    unknown_frees: u64,
}

impl Measure {
    /// To one of the whole process nothing is handed over: it is all its own.
    fn on(&mut self, device: Device, handed: bool) -> Option<&mut OnDevice> {
        let handed = handed && !self.whole;
        if !self.devices.iter().any(|on| on.device == device && on.handed == handed) {
            self.begin_on(device, handed);
        }
        self.devices.iter_mut().find(|on| on.device == device && on.handed == handed)
    }

    /// Apart, because its frame is large.
    #[cold]
    #[inline(never)]
    fn begin_on(&mut self, device: Device, handed: bool) {
        let (max_entries, log) = (MAX_ENTRIES, LedgerOptions::default());
        let options = LedgerOptions { max_entries, stacks_in_log: true, long_records: true, ..log };
        if make_room(&mut self.devices) {
            // Written where it stays: a ledger is large, and each hand that it went through would hold it once more.
            put(
                &mut self.devices,
                OnDevice { device, handed, ledger: Ledger::new(options, self.began), foreign_freed: 0 },
            );
        }
    }
}

#[derive(Debug)]
pub(crate) struct Registry {
    measures: OwnMap<Id, Measure>,
    owners: OwnMap<(Space, u64), Owner>,
    /// All blocks of the heap that belong to a measurement are in here.
    heap: Hidden,
    pub(super) stacks: Stacks,
    others: Others,
    /// The innermost measurement of the whole process, to which everything belongs that belongs to no other; 0 for none.
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
            stacks: Stacks::new(),
            others: Others::new(),
            whole: 0,
            last: 0,
            open: 0,
        }
    }

    /// How many are open.
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// Opens a measurement inside another, or inside none; `None` if there is no memory for it.
    pub(crate) fn begin(&mut self, around: Id, family: Family) -> Option<Id> {
        self.measures.try_reserve(1).ok()?;
        self.last += 1;
        let parent = self.in_place_of(around);
        let devices = OwnVec::new_in(System);
        let measure = Measure {
            parent,
            began: Instant::now(),
            family,
            os_thread: 0,
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

    /// Makes it one of the whole process: all others are inside it.
    pub(crate) fn make_whole(&mut self, id: Id) {
        for (other, measure) in &mut self.measures {
            if *other == id {
                (measure.parent, measure.whole) = (0, true);
            } else if measure.parent == 0 {
                measure.parent = id;
            }
        }
        if self.whole == 0 {
            self.whole = id;
        }
    }

    /// Does every open one count the whole process?
    pub(super) fn are_all_whole(&self) -> bool {
        self.measures.values().all(|measure| measure.whole || !measure.open)
    }

    /// Everything belongs to one.
    pub(crate) fn is_whole(&self) -> bool {
        self.whole != 0
    }

    /// The measurement that work belongs to which carries this one, or none.
    pub(super) fn in_place_of(&self, id: Id) -> Id {
        match self.nearest_open(id) {
            0 => self.whole,
            open => open,
        }
    }

    /// What a measurement has seen: one entry for each device; blocks that were lost, frees of unknown size.
    pub(crate) fn copy(&self, id: Id) -> Option<(Vec<DeviceMeasured>, u64, u64)> {
        let measure = self.measures.get(&id)?;
        let copy = |on: &OnDevice| {
            let &OnDevice { device, handed, foreign_freed, ref ledger } = on;
            DeviceMeasured { device, handed, foreign_freed, ledger: ledger.copy(0) }
        };
        Some((measure.devices.iter().map(copy).collect(), measure.lost, measure.unknown_frees))
    }

    pub(crate) fn each_live(&self, id: Id, mut each: impl FnMut(Device, bool, &Block)) {
        for on in self.measures.get(&id).iter().flat_map(|measure| &measure.devices) {
            on.ledger.live_blocks().for_each(|block| each(on.device, on.handed, &block));
        }
    }

    /// Blocks of threads that carry no measurement and share memory with this one.
    pub(crate) fn each_of_helpers(&self, id: Id, mut each: impl FnMut(Device, StackId, u64)) {
        let helps =
            |owner: &&Owner| owner.measure == 0 && self.others.does_share(owner.thread, |of| self.contains(id, of));
        self.owners.values().filter(helps).for_each(|owner| each(owner.device, owner.stack, owner.size));
    }

    /// Threads that may have worked for this one.
    pub(crate) fn helpers(&self, id: Id) -> Vec<Helper> {
        self.others.helpers(self.family(id), |of| self.contains(id, of))
    }

    fn family(&self, id: Id) -> Family {
        self.measures.get(&id).map_or(Family::UNKNOWN, |measure| measure.family)
    }

    /// May a thread of this family work for any that is open?
    pub(super) fn is_related(&self, family: Family) -> bool {
        self.measures.values().any(|measure| measure.open && family.may_work_for(measure.family))
    }

    /// It is measured on this thread alone, and on those that this one begins.
    pub(crate) fn bind(&mut self, id: Id, os_thread: u32) {
        if let Some(measure) = self.measures.get_mut(&id) {
            measure.os_thread = os_thread;
        }
    }

    /// The thread that a measurement is bound to; 0 if there is none.
    pub(super) fn os_thread(&self, id: Id) -> u32 {
        self.measures.get(&id).map_or(0, |measure| measure.os_thread)
    }

    /// The measurement that a block belongs to.
    pub(crate) fn owner(&self, key: (Space, u64)) -> Id {
        self.owners.get(&key).map_or(0, |owner| self.nearest_open(owner.measure))
    }

    /// By the words that a thread holds: who works for a measurement holds addresses of its blocks or of its stack.
    pub(super) fn whose(&self, family: Family, each_word: impl FnOnce(&mut dyn FnMut(u64, u64))) -> Whose {
        let mut whose = Whose::Nobody;
        let all = self.heap.and(self.stacks.span());
        each_word(&mut |word, at| {
            if !all.contains(word) {
                return;
            }
            let stack = self.stacks.at(word);
            let id = stack.map_or_else(|| self.owner_at(word), |stack| self.nearest_open(stack.id));
            // Most words are of the one that is known already.
            if id == 0 || whose == Whose::One(id) || !family.may_work_for(self.family(id)) {
                return;
            }
            // A thread begins with addresses of the stack of whoever begins it.
            let is_from_then = |os_thread| unwind::was_held_at_first(word, at, lineage::may_be_begun_by(os_thread));
            if stack.is_none_or(|stack| !is_from_then(stack.os_thread)) {
                whose = whose.and(id, |outer, inner| self.contains(outer, inner));
            }
        });
        whose
    }

    /// Whose block begins there.
    fn owner_at(&self, word: u64) -> Id {
        let may_be = self.heap.contains(word) && word.is_multiple_of(size_of::<usize>() as u64);
        if may_be { self.owner((Space::Heap, word)) } else { 0 }
    }

    /// Closes a measurement, if it is open. Its live blocks and what is open inside it become its parent's.
    pub(crate) fn close(&mut self, id: Id) {
        let Some(measure) = self.measures.get_mut(&id).filter(|measure| measure.open) else { return };
        let (parent, keep) = (measure.parent, measure.carried && measure.parent != 0);
        measure.open = false;
        let was_whole = measure.whole;
        if self.whole == id {
            self.whole = parent;
        }
        self.open -= 1;
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
        // What is inside leads to the parent now; a closed one nowhere if there is none.
        self.measures.retain(|_, inner| {
            if inner.parent == id {
                inner.parent = parent;
            }
            inner.open || inner.parent != 0
        });
        self.stacks.hand_over(id, parent);
        if self.open == 0 {
            self.owners.retain(|_, owner| owner.measure != 0);
            (self.heap, self.stacks) = (Hidden::NOWHERE, Stacks::new());
            self.others.clear();
        }
    }

    fn hand_over(&mut self, key: (Space, u64), from: Id, to: Id) {
        match self.owners.get_mut(&key) {
            Some(owner) if owner.measure == from && to != 0 => owner.measure = to,
            Some(owner) if owner.measure == from => _ = self.owners.remove(&key),
            _ => {}
        }
    }

    /// What it took over from another one of the whole process may be older than itself.
    fn hand_over_all(&mut self, from: Id, to: Id) {
        self.owners.retain(|_, owner| {
            let is_meant = owner.measure == from;
            if is_meant {
                owner.measure = to;
            }
            !is_meant || to != 0
        });
    }

    /// Work elsewhere may carry this measurement from now on.
    pub(crate) fn carry(&mut self, id: Id) {
        if let Some(measure) = self.measures.get_mut(&id) {
            measure.carried = true;
        }
    }

    /// Which measurement is in force where work that carries one runs inside another: the carried one, unless
    /// the other is inside it.
    pub(crate) fn in_force(&self, current: Id, carried: Id) -> Id {
        let carried = self.nearest_open(carried);
        if carried == 0 || self.contains(carried, self.nearest_open(current)) { current } else { carried }
    }

    /// Does work that carries this measurement belong to any that is open?
    pub(super) fn is_carried(&self, id: Id) -> bool {
        self.nearest_open(id) != 0
    }

    /// Enters a block. False if no measurement is in force.
    pub(crate) fn alloc(&mut self, current: Id, device: Device, address: u64, size: u64, site: Site) -> bool {
        self.enter(current, (device, address, size), site, false)
    }

    /// Enters one of work that was handed over, or of nobody's if `handed` is not.
    pub(super) fn enter(&mut self, current: Id, new: (Device, u64, u64), site: Site, handed: bool) -> bool {
        let (device, address, size) = new;
        let key = (Space::of(device), address);
        if self.owners.contains_key(&key) {
            // Its free was missed.
            self.free(0, key, None, Site::default());
        }
        let first = self.in_place_of(current);
        if first == 0 {
            return false;
        }
        let room = self.owners.try_reserve(1).is_ok();
        let mut at = first;
        while let Some(measure) = self.measures.get_mut(&at) {
            let entered = room && measure.on(device, handed).is_some_and(|on| on.ledger.alloc(address, size, site));
            measure.lost += u64::from(!entered);
            at = measure.parent;
        }
        if room {
            let Site { thread, stack, .. } = site;
            self.owners.insert(key, Owner { measure: first, device, size, thread, stack, handed });
            if key.0 == Space::Heap {
                self.heap = self.heap.with(address);
            }
        }
        true
    }

    /// Enters a block of a thread that carries no measurement.
    pub(super) fn alloc_of_other(&mut self, new: (Device, u64, u64), site: Site, family: Family, whose: Whose) {
        let (device, address, size) = new;
        whose.each_of_several(|id| self.others.shares(site.thread, id));
        if self.owners.try_reserve(1).is_ok() {
            let Site { thread, stack, .. } = site;
            self.owners
                .insert((Space::of(device), address), Owner { measure: 0, device, size, thread, stack, handed: false });
            self.others.alloc(device, size, site, family);
        }
    }

    /// A block changed hands: one thread carries a measurement, and the other one carries none.
    pub(super) fn changed_hands(&mut self, taken: &Taken, current: Id, thread: ThreadId) {
        let Some((owner, _)) = taken.owner else { return };
        match (owner.measure, current) {
            (0, 0) => {}
            (0, current) => self.others.shares(owner.thread, current),
            (measure, 0) => self.others.shares(thread, measure),
            _ => {}
        }
    }

    /// Takes a block out. `known` is its device and size as others know them.
    pub(crate) fn free(
        &mut self,
        current: Id,
        key: (Space, u64),
        known: Option<(Device, u64)>,
        site: Site,
    ) -> Option<Taken> {
        let owner = self.owners.remove(&key);
        if let Some(owner) = owner.filter(|owner| owner.measure == 0) {
            self.others.free(owner.thread, owner.device, owner.size);
        }
        let own = owner.map_or(0, |owner| self.nearest_open(owner.measure));
        let (mut at, mut block, mut numbers) = (own, None, [(0, 0); NESTED]);
        let mut free_numbers = numbers.iter_mut();
        while let (Some(owner), Some(measure)) = (owner, self.measures.get_mut(&at)) {
            if let Some(freed) = measure.on(owner.device, owner.handed).and_then(|on| on.ledger.free(key.1, site)) {
                block = Some(freed.block());
                free_numbers.next().into_iter().for_each(|number| *number = (at, freed.seq()));
            }
            at = measure.parent;
        }
        let foreign = self.in_place_of(current);
        let Some((device, size)) = owner.map(|owner| (owner.device, owner.size)).or(known) else {
            self.count_unknown(foreign);
            return None;
        };
        let owner = owner.map(|owner| (owner, block));
        let taken = Taken { address: key.1, owner, numbers, foreign, device, size };
        self.each_foreign(&taken, |freed| *freed += size);
        Some(taken)
    }

    fn count_unknown(&mut self, measure: Id) {
        let mut at = measure;
        while let Some(measure) = self.measures.get_mut(&at) {
            measure.unknown_frees += 1;
            at = measure.parent;
        }
    }

    /// It was not freed after all.
    pub(crate) fn undo_free(&mut self, taken: Taken) {
        self.each_foreign(&taken, |freed| *freed = freed.saturating_sub(taken.size));
        let Some((owner, Some(block))) = taken.owner else { return };
        let measure = self.nearest_open(owner.measure);
        if measure == 0 || self.owners.try_reserve(1).is_err() {
            return;
        }
        self.owners.insert((Space::of(owner.device), taken.address), Owner { measure, ..owner });
        let mut at = measure;
        while let Some(measure) = self.measures.get_mut(&at) {
            let number = taken.numbers.iter().find(|(id, _)| *id == at);
            let block = number.map(|(_, seq)| Block { seq: NonZeroU64::new(*seq), ..block });
            let put_back = |block| measure.on(owner.device, owner.handed).is_some_and(|on| on.ledger.undo_free(block));
            measure.lost += u64::from(!block.as_ref().is_some_and(put_back));
            at = measure.parent;
        }
    }

    /// Names a block in the measurements that it belongs to; false if it belongs to none.
    pub(crate) fn name(&mut self, device: Option<Device>, address: u64, label: Label<'_>) -> bool {
        let spaces = [Space::Heap, Space::Pinned, Space::Device];
        let spaces = spaces.into_iter().filter(|space| device.is_none_or(|device| Space::of(device) == *space));
        let owner = spaces.filter_map(|space| self.owners.get(&(space, address)).copied()).next();
        let Some(owner) = owner else { return false };
        let (mut at, mut named) = (owner.measure, false);
        while let Some(measure) = self.measures.get_mut(&at) {
            named |= measure.on(owner.device, owner.handed).is_some_and(|on| on.ledger.name(address, label));
            at = measure.parent;
        }
        named
    }

    /// Does a block belong to any?
    pub(crate) fn knows(&self, key: (Space, u64)) -> bool {
        self.owners.contains_key(&key)
    }

    /// Addresses of blocks that are not of the heap.
    pub(crate) fn device_blocks(&self) -> OwnVec<(Space, u64)> {
        let mut keys = OwnVec::new_in(System);
        for key in self.owners.keys().filter(|(space, _)| *space != Space::Heap) {
            try_push(&mut keys, *key);
        }
        keys
    }

    /// In a forked child only this measurement goes on, with those around it: the threads of others are not there.
    pub(crate) fn keep_only(&mut self, current: Id) {
        let mut kept = OwnVec::new_in(System);
        let mut at = self.nearest_open(current);
        while let Some(measure) = self.measures.get(&at) {
            try_push(&mut kept, at);
            at = measure.parent;
        }
        self.measures.retain(|id, _| kept.contains(id));
        self.owners.retain(|_, owner| kept.contains(&owner.measure));
        self.stacks.keep_only(&kept);
        self.others.clear();
        if !kept.contains(&self.whole) {
            self.whole = 0;
        }
        self.open = self.measures.values().filter(|measure| measure.open).count();
    }

    /// This measurement, or the innermost open one around it; 0 if there is none.
    fn nearest_open(&self, id: Id) -> Id {
        let mut at = id;
        while let Some(measure) = self.measures.get(&at) {
            if measure.open {
                return at;
            }
            at = measure.parent;
        }
        0
    }

    /// Is `inner` the same as `outer`, or inside it?
    fn contains(&self, outer: Id, inner: Id) -> bool {
        let mut at = inner;
        while let Some(measure) = self.measures.get(&at) {
            if at == outer {
                return true;
            }
            at = measure.parent;
        }
        false
    }

    /// The counts of those in force that a block did not belong to.
    fn each_foreign(&mut self, taken: &Taken, mut change: impl FnMut(&mut u64)) {
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

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;
