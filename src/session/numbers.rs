//! Dense ids for stacks and their addresses, in the order of first use.
//!
//! The recorder's stack ids are positions in its table, with gaps. A snapshot or capture numbers only the stacks that
//! it uses.

use std::collections::HashMap;
use std::hash::Hash;

use foldhash::fast::RandomState;
use memtrace_core::snapshot::{BlockUses, GpuWork, Mappings, OlderTime, Record, SegmentRecord, StackId};

use crate::record::unwind::ObjectMap;
use crate::record::{DeviceCopy, STACKS};

/// Dense ids from 0.
#[derive(Debug, Default)]
pub(super) struct DenseIds<K> {
    ids: HashMap<K, u32, RandomState>,
    /// Keys that were added since the last `take_new`, in order.
    new: Vec<K>,
}

impl<K: Copy + Eq + Hash> DenseIds<K> {
    fn of(&mut self, key: K) -> u32 {
        let next = self.ids.len() as u32;
        *self.ids.entry(key).or_insert_with(|| {
            self.new.push(key);
            next
        })
    }

    pub(super) fn take_new(&mut self) -> Vec<K> {
        std::mem::take(&mut self.new)
    }

    pub(super) fn count(&self) -> usize {
        self.ids.len()
    }

    /// Forgets all but the first `count` keys.
    pub(super) fn truncate(&mut self, count: usize) {
        self.ids.retain(|_, id| (*id as usize) < count);
        self.new.clear();
    }
}

/// The stacks of one snapshot or capture, and the addresses in them.
#[derive(Debug, Default)]
pub(super) struct DenseStacks {
    pub(super) stacks: DenseIds<StackId>,
    pub(super) addresses: DenseIds<u64>,
}

impl DenseStacks {
    /// Replaces a stack's id; `NONE` stays.
    fn renumber(&mut self, stack: &mut StackId) {
        if *stack != StackId::NONE {
            *stack = StackId(self.stacks.of(*stack) + 1);
        }
    }

    pub(super) fn renumber_records(&mut self, records: &mut [Record]) {
        for record in records {
            self.renumber(&mut record.stack);
            self.renumber(&mut record.alloc_stack);
        }
    }

    pub(super) fn renumber_segments(&mut self, records: &mut [SegmentRecord]) {
        records.iter_mut().for_each(|record| self.renumber(&mut record.stack));
    }

    pub(super) fn renumber_older(&mut self, times: &mut [OlderTime]) {
        times.iter_mut().flat_map(|time| &mut time.stacks).for_each(|row| self.renumber(&mut row.of));
    }

    pub(super) fn renumber_mappings(&mut self, mappings: &mut Mappings) {
        mappings.rows.iter_mut().for_each(|row| self.renumber(&mut row.stack));
    }

    pub(super) fn renumber_device(&mut self, DeviceCopy { ledger, uses, .. }: &mut DeviceCopy) {
        self.renumber_records(&mut ledger.records);
        ledger.live.iter_mut().chain(&mut ledger.peak.blocks).for_each(|block| self.renumber(&mut block.stack));
        ledger.ooms.iter_mut().for_each(|oom| self.renumber(&mut oom.stack));
        self.renumber_segments(&mut ledger.segment_records);
        ledger.calls.iter_mut().for_each(|time| self.renumber(&mut time.stack));
        self.renumber_uses(&mut uses.blocks);
    }

    pub(super) fn renumber_uses(&mut self, uses: &mut [BlockUses]) {
        for uses in uses {
            uses.first.iter_mut().chain(&mut uses.last).for_each(|used| self.renumber(&mut used.stack));
            uses.dead_write.iter_mut().for_each(|dead| self.renumber(&mut dead.stack));
        }
    }

    pub(super) fn renumber_work(&mut self, work: &mut GpuWork) {
        work.local.iter_mut().for_each(|local| self.renumber(&mut local.stack));
    }

    pub(super) fn has_new(&self) -> bool {
        !self.stacks.new.is_empty()
    }

    /// The stacks that were added since the last call, each as the ids of its addresses.
    pub(super) fn take_new(&mut self, known: &ObjectMap) -> Vec<Vec<u32>> {
        let new = self.stacks.take_new();
        new.into_iter().map(|stack| self.addresses_of(stack, known)).collect()
    }

    fn addresses_of(&mut self, stack: StackId, known: &ObjectMap) -> Vec<u32> {
        let mut addresses = Vec::new();
        let mark = STACKS.copy_to(stack, &mut addresses);
        addresses.into_iter().map(|address| self.addresses.of(known.address(address, mark))).collect()
    }
}
