//! The blocks that a recording knows, with their lifetimes.

use std::collections::HashMap;
use std::num::NonZeroU64;

use foldhash::fast::RandomState;

use super::log_start_ns;
use crate::recording::DeviceView;
use crate::snapshot::{Block, RecordKind};

/// A block with its lifetime, as far as the recording knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownBlock {
    /// The block.
    pub block: Block,
    /// Its alloc, or the beginning of the log if its alloc is not known.
    pub from_ns: u64,
    /// Its free, or the end of the recording; the beginning of the log if it was freed before.
    pub to_ns: u64,
    /// Its alloc is not in the log.
    pub is_older: bool,
    /// Its free is in the log.
    pub is_freed: bool,
}

/// All blocks of the log, of the peak and of the end, each once, in the order of their allocation.
pub fn known_blocks(device: &DeviceView<'_>) -> Vec<KnownBlock> {
    let (log_start, end) = (log_start_ns(device), device.data().process.duration_ns);
    let mut known: HashMap<NonZeroU64, KnownBlock, RandomState> = HashMap::default();
    let older = |block: &Block| {
        let from_ns = if block.time_ns == 0 { log_start } else { block.time_ns };
        KnownBlock { block: *block, from_ns, to_ns: log_start, is_older: true, is_freed: false }
    };
    for block in &device.peak.blocks {
        if let Some(seq) = block.seq {
            known.insert(seq, older(block));
        }
    }
    for record in &device.records {
        let Some(seq) = record.alloc_seq else { continue };
        let block = record.block();
        match record.kind {
            RecordKind::Alloc => {
                let from_ns = record.time_ns;
                known.insert(seq, KnownBlock { block, from_ns, to_ns: end, is_older: false, is_freed: false });
            }
            RecordKind::Free => {
                let known = known.entry(seq).or_insert_with(|| older(&block));
                (known.to_ns, known.is_freed) = (record.time_ns, true);
            }
        }
    }
    for block in &device.live {
        if let Some(seq) = block.seq {
            known.entry(seq).or_insert_with(|| older(block)).to_ns = end;
        }
    }
    let mut known: Vec<(NonZeroU64, KnownBlock)> = known.into_iter().collect();
    known.sort_unstable_by_key(|(seq, _)| *seq);
    known.into_iter().map(|(_, known)| known).collect()
}
