//! The blocks of a recording with the time for which each was there.

use std::num::NonZeroU64;
use std::collections::HashMap;

use super::hint::{Hint, StackHint, is_step};
use crate::snapshot::{Block, ContextId, DeviceSnapshot, RecordKind, SnapshotData, StackId, ThreadId};

/// A block, from its alloc to its free, as positions in the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lifetime {
    pub(super) seq: NonZeroU64,
    pub(super) size: u64,
    pub(super) stack: StackId,
    pub(super) context: ContextId,
    pub(super) thread: ThreadId,
    /// 0 if the log no longer has it.
    pub(super) from: usize,
    /// `usize::MAX` if it is live, or nobody knows.
    pub(super) to: usize,
    pub(super) hint: Hint,
    /// It is a variable, a model's or an optimizer's.
    pub(super) is_variable: bool,
    /// By the names of the calls it is part of what a model works out.
    pub(super) in_forward: bool,
    /// Its operator only moves elements.
    pub(super) moves: bool,
    /// In a backward pass it may be a gradient.
    pub(super) may_be_gradient: bool,
}

impl Lifetime {
    /// Is it there at this position?
    pub(super) fn is_live_at(&self, position: usize) -> bool {
        self.from <= position && position < self.to
    }
}

/// All blocks of which the recording knows anything, in the order of their allocation.
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
        let (hint, StackHint { is_variable, in_forward, moves, is_gradient: may_be_gradient, .. }) =
            hint(stack, context);
        Lifetime {
            seq,
            size,
            stack,
            context,
            thread,
            from,
            to: usize::MAX,
            hint,
            is_variable,
            in_forward,
            moves,
            may_be_gradient,
        }
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
