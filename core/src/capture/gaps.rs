//! Skipped records of a streamed capture. They are replaced by the difference of the live blocks before and after them.

use std::num::NonZeroU64;

use super::by_seq;
use crate::hashed::HashMap;
use crate::snapshot::{Block, ContextId, Gap, Mark, OpenStack, Record, RecordKind, StackId, ThreadId};

/// A place in the log at which the writer skipped records and marks.
#[derive(Debug)]
pub(super) struct Skip {
    /// Number of records before this place. `marks_at` is the number of marks before it.
    pub(super) at: usize,
    pub(super) marks_at: usize,
    pub(super) records: u64,
    pub(super) marks: u64,
    /// The time at which the skipped records end.
    pub(super) to_ns: u64,
    /// The blocks that were live at that time.
    pub(super) live: Option<Vec<Block>>,
}

/// Live blocks by address.
pub(super) type BlocksByAddress = HashMap<u64, Block>;

/// The log with the known frees and allocs in place of skipped records, and the positions of these gaps. The log begins
/// at `start_ns`, with the blocks of `at_start`.
pub(super) fn bridge(records: &[Record], skips: &[Skip], at_start: &[Block], start_ns: u64) -> (Vec<Record>, Vec<Gap>) {
    let (mut bridged, mut gaps, mut live, mut from) = (Vec::new(), Vec::new(), by_address(at_start), 0);
    for skip in skips {
        let before = records.get(from..skip.at).unwrap_or_default();
        bridged.extend_from_slice(before);
        before.iter().for_each(|record| apply(&mut live, record));
        from = skip.at;
        let from_ns = bridged.last().map_or(start_ns, |record: &Record| record.time_ns);
        gaps.push(Gap { at: bridged.len(), records: skip.records, from_ns, to_ns: skip.to_ns.max(from_ns) });
        let blocks = skip.live.as_deref().unwrap_or_default();
        bridged.extend(difference(&live, blocks, from_ns));
        live = by_address(blocks);
    }
    bridged.extend_from_slice(records.get(from..).unwrap_or_default());
    (bridged, gaps)
}

pub(super) fn by_address(blocks: &[Block]) -> BlocksByAddress {
    blocks.iter().map(|block| (block.address, *block)).collect()
}

pub(super) fn apply(live: &mut BlocksByAddress, record: &Record) {
    match record.kind {
        RecordKind::Alloc => live.insert(record.address, record.block()),
        RecordKind::Free => live.remove(&record.address),
    };
}

/// Frees at the gap's beginning for the blocks that are gone, and allocs for the new blocks.
fn difference(before: &BlocksByAddress, after: &[Block], from_ns: u64) -> Vec<Record> {
    let stayed = |block: &&Block| before.get(&block.address).is_some_and(|known| known.seq == block.seq);
    let seqs: HashMap<u64, Option<NonZeroU64>> = after.iter().map(|block| (block.address, block.seq)).collect();
    let gone = before.values().filter(|block| seqs.get(&block.address) != Some(&block.seq)).copied().collect();
    let frees = by_seq(gone).into_iter().map(|block| {
        let alloc = Record::alloc_of(&block);
        Record { kind: RecordKind::Free, time_ns: from_ns, stack: StackId::NONE, ..alloc }
    });
    let new = by_seq(after.iter().filter(|block| !stayed(block)).copied().collect());
    let allocs = new.iter().map(|block| Record { time_ns: block.time_ns.max(from_ns), ..Record::alloc_of(block) });
    frees.chain(allocs).collect()
}

/// The marks, with all scopes left at each gap, because it is unknown which scopes the skipped marks left.
pub(super) fn close_scopes(marks: &[Mark], skips: &[Skip], gaps: &[Gap]) -> Vec<Mark> {
    let (mut whole, mut open, mut from) = (Vec::new(), OpenStack::default(), 0);
    for (skip, gap) in skips.iter().zip(gaps).filter(|(skip, _)| skip.marks > 0) {
        let before = marks.get(from..skip.marks_at).unwrap_or_default();
        whole.extend_from_slice(before);
        follow(&mut open, before);
        from = skip.marks_at;
        whole.extend(std::mem::take(&mut open).into_values().rev().map(|mark: Mark| Mark {
            time_ns: gap.from_ns.max(mark.time_ns),
            enter: false,
            ..mark
        }));
    }
    whole.extend_from_slice(marks.get(from..).unwrap_or_default());
    whole
}

/// Updates `open`, the marks of scopes that were entered and not left, in order.
fn follow(open: &mut OpenStack<(ThreadId, ContextId), Mark>, marks: &[Mark]) {
    for mark in marks {
        let scope = (mark.thread, mark.context);
        match mark.enter {
            true => open.enter(scope, *mark),
            false => drop(open.leave(scope)),
        }
    }
}
