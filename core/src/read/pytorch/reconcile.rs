//! Finds the blocks that were live before a log began, from the log and from the blocks that are live at its end.

use std::num::NonZeroU64;

use super::segments::ActiveBlock;
use super::trace::{AtAddress, BEFORE, DeviceTrace};
use crate::snapshot::{Block, ContextId, MemoryKind, Record, RecordKind, StackId, ThreadId};

/// Blocks from before the log, and live blocks from the log.
pub(super) struct Reconciled {
    /// The blocks from before the log, in the order of their numbers, which begin at 1.
    pub(super) before: Vec<Block>,
    /// How many blocks of `before` are still live. These blocks come last.
    pub(super) still_live: usize,
    /// Positions of the allocs in the log whose blocks are still live.
    pub(super) live: Vec<u32>,
}

/// Completes a log so that it ends in exactly the live blocks. `active` is `None` if the file has no segments.
pub(super) fn reconcile(trace: &mut DeviceTrace, active: Option<&[ActiveBlock]>) -> Reconciled {
    let is_before = |record: &&Record| record.raw_seq() & BEFORE != 0;
    let freed_later = |free: &Record| Block { thread: ThreadId::default(), ..free.block() };
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

fn there_before(block: &ActiveBlock) -> Block {
    let stack = StackId(block.stack);
    Block { address: block.address, size: block.requested, stack, memory: MemoryKind::Pool, ..Block::default() }
}

/// Adds the missing frees of blocks that are live in the log but not in the segments.
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

/// Adds the missing alloc of a block that is live in the segments, but that the log freed last.
fn alloc_unseen(trace: &mut DeviceTrace, block: &ActiveBlock) {
    trace.misfits += 1;
    let position = trace.records.len();
    let alloc = Block { seq: NonZeroU64::new(position as u64 + 1), time_ns: trace.last_us, ..there_before(block) };
    trace.records.push(Record { context: ContextId::ROOT, kind: RecordKind::Alloc, ..Record::alloc_of(&alloc) });
    trace.addresses.insert(block.address, AtAddress::Live(position as u32));
}
