//! Lifetimes of all blocks, as positions in the log.

use std::num::NonZeroU64;

use super::hashed::HashMap;
use super::hint::{Hint, StackHint, is_step};
use crate::snapshot::{Block, ContextId, DeviceSnapshot, RecordKind, SnapshotData, StackId, ThreadId};

/// A block from its alloc to its free, as positions in the log from 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lifetime {
    pub(super) seq: NonZeroU64,
    pub(super) size: u64,
    pub(super) stack: StackId,
    pub(super) context: ContextId,
    pub(super) thread: ThreadId,
    /// 0 if it was allocated before the log begins.
    pub(super) from: usize,
    /// `usize::MAX` if it is live or its free is unknown.
    pub(super) to: usize,
    pub(super) hint: Hint,
    pub(super) of_stack: StackHint,
}

impl Lifetime {
    pub(super) fn is_live_at(&self, position: usize) -> bool {
        self.from <= position && position < self.to
    }
}

/// All blocks that the recording knows, in the order of their allocation.
pub(super) fn lifetimes(data: &SnapshotData, device: &DeviceSnapshot) -> Vec<Lifetime> {
    let mut stacks: HashMap<StackId, StackHint> = HashMap::default();
    let mut contexts: HashMap<ContextId, bool> = HashMap::default();
    let mut hint = |stack, context| {
        let is_step = *contexts.entry(context).or_insert_with(|| is_step(data, context));
        let hint = *stacks.entry(stack).or_insert_with(|| StackHint::of(data, stack));
        (hint.within(is_step), hint)
    };
    let mut found = LifetimeTable::of(device);
    let mut life = |seq: NonZeroU64, block: &Block, from: usize| {
        let Block { size, stack, context, thread, .. } = *block;
        let (hint, of_stack) = hint(stack, context);
        Lifetime { seq, size, stack, context, thread, from, to: usize::MAX, hint, of_stack }
    };
    // Position 0 is before the log.
    for (position, record) in (1..).zip(&device.records) {
        let (Some(seq), block) = (record.alloc_seq, record.block()) else { continue };
        match record.kind {
            RecordKind::Alloc => {
                let new = life(seq, &block, position);
                *found.or_insert_with(seq, || new) = new;
            }
            RecordKind::Free => found.or_insert_with(seq, || life(seq, &block, 0)).to = position,
        }
    }
    for block in device.live.iter().chain(&device.peak.blocks) {
        if let Some(seq) = block.seq {
            found.or_insert_with(seq, || life(seq, block, 0));
        }
    }
    let mut lives = found.lives;
    lives.sort_unstable_by_key(|life| life.seq);
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
        let seqs = || device.records.iter().filter_map(|record| record.alloc_seq).map(NonZeroU64::get);
        let (first, last) = seqs().fold((u64::MAX, 0), |(first, last), seq| (first.min(seq), last.max(seq)));
        let most = 4 * device.records.len() as u64 + 1024;
        let length = last.checked_sub(first).map_or(0, |span| span.saturating_add(1).min(most));
        Self { lives: Vec::new(), first, table: vec![0; length as usize], others: HashMap::default() }
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
