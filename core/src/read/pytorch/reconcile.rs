//! What was live before a log began, from the log and from the blocks that are live after it.

use std::num::NonZeroU64;

use super::segments::ActiveBlock;
use super::trace::{AtAddress, BEFORE, DeviceTrace};
use crate::snapshot::{Block, ContextId, MemoryKind, Record, RecordKind, StackId, ThreadId};

/// Blocks by when they came.
pub(super) struct Reconciled {
    /// Those that were there before the log began, in the order of their numbers, which begin at 1.
    pub(super) before: Vec<Block>,
    /// How many of these are still live; they come last.
    pub(super) still_live: usize,
    /// Positions of the allocs in the log whose blocks are still live.
    pub(super) live: Vec<u32>,
}

/// Completes a log so that it ends in exactly the blocks that are live. `active` is `None` where the file names no segments.
pub(super) fn reconcile(trace: &mut DeviceTrace, active: Option<&[ActiveBlock]>) -> Reconciled {
    let is_before = |record: &&Record| record.raw_seq() & BEFORE != 0;
    let mut before: Vec<Block> = trace.records.iter().filter(is_before).map(freed_later).collect();
    let freed = before.len();
    if let Some(active) = active {
        free_what_is_gone(trace, active);
        for block in active {
            match trace.addresses.get(&block.address) {
                Some(AtAddress::Live(_)) => {}
                Some(AtAddress::Freed) => alloc_unseen(trace, block),
                None => before.push(there_before(block)),
            }
        }
    }
    (1..).zip(&mut before).for_each(|(seq, block)| block.seq = NonZeroU64::new(seq));
    let position = |at: &AtAddress| if let AtAddress::Live(position) = at { Some(*position) } else { None };
    let mut live: Vec<u32> = trace.addresses.values().filter_map(position).collect();
    live.sort_unstable();
    Reconciled { still_live: before.len() - freed, before, live }
}

fn freed_later(free: &Record) -> Block {
    Block { thread: ThreadId::default(), ..free.block() }
}

fn there_before(block: &ActiveBlock) -> Block {
    let stack = StackId(block.stack);
    Block { address: block.address, size: block.requested, stack, memory: MemoryKind::Pool, ..Block::default() }
}

/// The log has blocks that are no longer there: their frees are missing.
fn free_what_is_gone(trace: &mut DeviceTrace, active: &[ActiveBlock]) {
    let is_there = |address| active.binary_search_by_key(&address, |block| block.address).is_ok();
    let gone = |(address, at): (&u64, &AtAddress)| match at {
        AtAddress::Live(position) if !is_there(*address) => Some((*position, *address)),
        _ => None,
    };
    let mut gone: Vec<(u32, u64)> = trace.addresses.iter().filter_map(gone).collect();
    gone.sort_unstable();
    trace.misfits += gone.len() as u64;
    for (position, address) in gone {
        trace.free_of(position, StackId::NONE);
        trace.addresses.insert(address, AtAddress::Freed);
    }
}

/// A block is there that the log last freed: its alloc is missing.
fn alloc_unseen(trace: &mut DeviceTrace, block: &ActiveBlock) {
    trace.misfits += 1;
    let position = trace.records.len();
    let alloc = Block { seq: NonZeroU64::new(position as u64 + 1), time_ns: trace.last_us, ..there_before(block) };
    trace.records.push(Record { context: ContextId::ROOT, kind: RecordKind::Alloc, ..Record::alloc_of(&alloc) });
    trace.addresses.insert(block.address, AtAddress::Live(position as u32));
}
