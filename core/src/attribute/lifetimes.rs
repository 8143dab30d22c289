//! Lifetimes of all blocks, as positions in the log.

use std::num::NonZeroU64;

use super::Attribution;
use super::hashed::HashMap;
use super::hint::{Hint, StackHint, is_step};
use crate::snapshot::{Block, ContextId, DeviceSnapshot, Record, RecordKind, StackId, ThreadId};

/// A position in the log, from 1; 0 is before the log. Records behind the largest are left out.
pub(crate) type RecordPosition = u32;

/// The end of the lifetime of a block that is live, or whose free is unknown.
pub(crate) const NEVER: RecordPosition = RecordPosition::MAX;

/// A block from its alloc to its free.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lifetime {
    pub(crate) seq: NonZeroU64,
    pub(crate) size: u64,
    pub(crate) stack: StackId,
    pub(crate) context: ContextId,
    pub(crate) thread: ThreadId,
    /// 0 if it was allocated before the log begins.
    pub(crate) from: RecordPosition,
    pub(crate) to: RecordPosition,
    pub(super) hint: Hint,
    pub(super) of_stack: StackHint,
}

impl Lifetime {
    pub(crate) fn is_live_at(&self, position: RecordPosition) -> bool {
        self.from <= position && position < self.to
    }
}

/// All blocks that the recording knows, in the order of their allocation.
pub(super) fn lifetimes(data: &Attribution<'_>, device: &DeviceSnapshot) -> Vec<Lifetime> {
    let steps: Vec<bool> = (0..data.contexts.len() as u32).map(|context| is_step(data, ContextId(context))).collect();
    let mut stacks: Vec<Option<StackHint>> = vec![None; data.stacks.len()];
    let mut hint = |stack: StackId, context: ContextId| {
        let make = || StackHint::of(data, stack);
        let hint = stacks.get_mut(stack.0 as usize).map_or_else(make, |hint| *hint.get_or_insert_with(make));
        let is_step = steps.get(context.0 as usize).is_some_and(|is_step| *is_step);
        (hint.within(is_step), hint)
    };
    let mut found = LifetimeTable::of(device);
    let mut life = |seq: NonZeroU64, block: &Block, from: RecordPosition| {
        let Block { size, stack, context, thread, .. } = *block;
        let (hint, of_stack) = hint(stack, context);
        Lifetime { seq, size, stack, context, thread, from, to: NEVER, hint, of_stack }
    };
    let first =
        device.records.iter().find(|record| record.kind == RecordKind::Alloc).and_then(|record| record.alloc_seq);
    let known = || device.live.iter().chain(&device.peak.blocks);
    // Nearly all lives are made in order, which makes the sort cheap.
    let mut older: Vec<&Block> = known().filter(|block| first.is_none_or(|first| block.seq < Some(first))).collect();
    older.sort_unstable_by_key(|block| block.seq);
    for block in older {
        if let Some(seq) = block.seq {
            found.or_insert_with(seq, || life(seq, block, 0));
        }
    }
    for (position, record) in (1..NEVER - 16).zip(&device.records) {
        let (Some(seq), block) = (record.alloc_seq, record.block()) else { continue };
        match record.kind {
            RecordKind::Alloc => {
                let new = life(seq, &block, position);
                *found.or_insert_with(seq, || new) = new;
            }
            RecordKind::Free => found.or_insert_with(seq, || life(seq, &block, 0)).to = position,
        }
    }
    for block in known() {
        if let Some(seq) = block.seq {
            found.or_insert_with(seq, || life(seq, block, 0));
        }
    }
    let mut lives = found.lives;
    lives.sort_by_key(|life| life.seq);
    lives
}

/// Lifetimes by the numbers of their blocks. The numbers of a log are dense, so a table finds them; those of a hostile
/// capture need not be, and a hash map finds these.
struct LifetimeTable {
    lives: Vec<Lifetime>,
    first: u64,
    /// One more than the position in `lives`; 0 for none.
    table: Vec<u32>,
    others: HashMap<NonZeroU64, usize>,
}

impl LifetimeTable {
    fn of(device: &DeviceSnapshot) -> Self {
        let last = device.records.iter().rfind(|record| record.kind == RecordKind::Alloc).map_or(0, Record::raw_seq);
        // Only the pages of the table that are used take memory.
        let length = last.min(4 * device.records.len() as u64 + 1024);
        let (first, table) = (last + 1 - length, vec![0; length as usize]);
        Self { lives: Vec::with_capacity(device.records.len() / 2), first, table, others: HashMap::default() }
    }

    fn or_insert_with(&mut self, seq: NonZeroU64, make: impl FnOnce() -> Lifetime) -> &mut Lifetime {
        let Self { lives, first, table, others } = self;
        let place = seq.get().checked_sub(*first).and_then(|at| table.get_mut(usize::try_from(at).ok()?));
        let next = lives.len();
        let at = match place {
            Some(0) | None if next >= u32::MAX as usize => *others.entry(seq).or_insert(next),
            Some(place) => {
                if *place == 0 {
                    *place = next as u32 + 1;
                }
                *place as usize - 1
            }
            None => *others.entry(seq).or_insert(next),
        };
        if at == next {
            lives.push(make());
        }
        &mut lives[at]
    }
}
