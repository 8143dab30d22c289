//! Lifetimes of all blocks, as positions in the log.

use std::collections::HashMap;
use std::num::NonZeroU64;

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
    let mut stacks: HashMap<StackId, StackHint> = HashMap::new();
    let mut contexts: HashMap<ContextId, bool> = HashMap::new();
    let mut hint = |stack, context| {
        let is_step = *contexts.entry(context).or_insert_with(|| is_step(data, context));
        let hint = *stacks.entry(stack).or_insert_with(|| StackHint::of(data, stack));
        (hint.within(is_step), hint)
    };
    let mut found: HashMap<NonZeroU64, Lifetime> = HashMap::new();
    let mut life = |seq: NonZeroU64, block: &Block, from: usize| {
        let Block { size, stack, context, thread, .. } = *block;
        let (hint, of_stack) = hint(stack, context);
        Lifetime { seq, size, stack, context, thread, from, to: usize::MAX, hint, of_stack }
    };
    // Position 0 is before the log.
    for (position, record) in (1..).zip(&device.records) {
        let (Some(seq), block) = (record.alloc_seq, record.block()) else { continue };
        match record.kind {
            RecordKind::Alloc => drop(found.insert(seq, life(seq, &block, position))),
            RecordKind::Free => found.entry(seq).or_insert_with(|| life(seq, &block, 0)).to = position,
        }
    }
    for block in device.live.iter().chain(&device.peak.blocks) {
        if let Some(seq) = block.seq {
            found.entry(seq).or_insert_with(|| life(seq, block, 0));
        }
    }
    let mut lives: Vec<Lifetime> = found.into_values().collect();
    lives.sort_unstable_by_key(|life| life.seq);
    lives
}
