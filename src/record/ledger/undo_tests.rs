//! Compares the undo of refused frees with the same program without these frees.

use std::collections::BTreeMap;
use std::time::Instant;

use memtrace_core::snapshot::{Block, Record, RecordKind, StackId};
use proptest::prelude::*;

use super::*;
use crate::record::event_site::EventSite;
use crate::record::scarce::with_memory_for;

const BASE: u64 = 10_000;

#[derive(Clone, Copy, Debug)]
enum UndoStep {
    Alloc {
        address: u64,
        size: u64,
    },
    Free {
        address: u64,
    },
    FreeUnknown {
        size: u64,
    },
    /// Will be refused. The block is a recorded one or from before the recording.
    FreeInVain {
        address: u64,
    },
    Refuse {
        address: u64,
    },
}

fn steps() -> impl Strategy<Value = Vec<UndoStep>> {
    let step = prop_oneof![
        6 => (0..12u64, 0..1000u64).prop_map(|(address, size)| UndoStep::Alloc { address, size }),
        4 => (0..12u64).prop_map(|address| UndoStep::Free { address }),
        1 => (1..100u64).prop_map(|size| UndoStep::FreeUnknown { size }),
        3 => (0..14u64).prop_map(|address| UndoStep::FreeInVain { address }),
        2 => (0..14u64).prop_map(|address| UndoStep::Refuse { address }),
    ];
    prop::collection::vec(step, 0..120)
}

/// Addresses of blocks from before the recording whose frees are refused. Their size is `SIZE_BEFORE`.
const FROM_BEFORE: [u64; 2] = [12, 13];
const SIZE_BEFORE: u64 = 700;

struct UndoRun {
    ledger: Ledger,
    /// Whether the program tries frees that will be refused.
    tries: bool,
    out: BTreeMap<u64, Option<Block>>,
}

impl UndoRun {
    fn new(max_entries: usize, tries: bool) -> Self {
        let options = LedgerOptions { max_entries, stacks_in_log: true, ..LedgerOptions::default() };
        Self { ledger: Ledger::new(options, Instant::now()), tries, out: BTreeMap::new() }
    }

    fn take(&mut self, step: UndoStep) {
        match step {
            UndoStep::Alloc { address, .. } | UndoStep::Free { address } if self.out.contains_key(&address) => {}
            UndoStep::Alloc { address, size } => {
                self.ledger.alloc(
                    address,
                    size,
                    EventSite { stack: StackId(address as u32 + 1), ..EventSite::default() },
                );
            }
            UndoStep::Free { address } => _ = self.ledger.free(address, EventSite::default()),
            UndoStep::FreeUnknown { size } => self.ledger.free_unknown(99, size, EventSite::default()),
            UndoStep::FreeInVain { address } if !self.out.contains_key(&address) => self.free_in_vain(address),
            UndoStep::FreeInVain { .. } => {}
            UndoStep::Refuse { address } => self.refuse(address),
        }
    }

    fn free_in_vain(&mut self, address: u64) {
        let block = self.ledger.live.get(address);
        let from_before = FROM_BEFORE.contains(&address);
        if block.is_none() && !from_before {
            return;
        }
        self.out.insert(address, block);
        if self.tries && from_before {
            self.ledger.free_unknown(address, SIZE_BEFORE, EventSite::default());
        } else if self.tries {
            assert!(self.ledger.free(address, EventSite::default()).is_some());
        }
    }

    fn refuse(&mut self, address: u64) {
        let Some(block) = self.out.remove(&address).filter(|_| self.tries) else { return };
        match block {
            Some(block) => assert!(self.ledger.undo_free(&block)),
            None => self.ledger.undo_free_unknown(address, SIZE_BEFORE),
        }
    }

    fn end(mut self, steps: &[UndoStep]) -> LedgerCopy {
        steps.iter().for_each(|step| self.take(*step));
        let left: Vec<u64> = self.out.keys().copied().collect();
        left.into_iter().for_each(|address| self.refuse(address));
        self.ledger.copy(BASE)
    }
}

fn blocks(blocks: &[Block]) -> Vec<Block> {
    blocks.iter().map(|block| Block { time_ns: 0, ..*block }).collect()
}

fn records(copy: &LedgerCopy) -> Vec<Record> {
    copy.records.iter().map(|record| Record { time_ns: 0, ..*record }).collect()
}

/// What a reader has of a stream: lists of blocks at one position of the log, and the records since.
struct StreamReader {
    cursor: Cursor,
    listed: LedgerCopy,
}

impl StreamReader {
    fn new(ledger: &Ledger) -> Self {
        Self { cursor: ledger.end(), listed: ledger.copy_state(BASE) }
    }

    /// The blocks of the peak; `None` if records are missing.
    fn peak_blocks(mut self, ledger: &Ledger) -> Option<Vec<Block>> {
        let mut part = LogPart::default();
        ledger.copy_log(&mut self.cursor, &ledger.end(), 1000, &mut part).ok()?;
        let peak = ledger.peak_numbers(BASE).seq;
        if peak == self.listed.peak.seq {
            return Some(self.listed.peak.blocks);
        }
        let mut live: BTreeMap<_, _> = self.listed.live.iter().map(|block| (block.seq, *block)).collect();
        for record in part.records {
            match record.kind {
                RecordKind::Alloc => live.insert(record.alloc_seq, record.block()),
                RecordKind::Free => live.remove(&record.alloc_seq),
            };
            if record.kind == RecordKind::Alloc && record.alloc_seq == peak {
                return Some(live.into_values().collect());
            }
        }
        Some(Vec::new())
    }
}

proptest! {
    #![proptest_config(crate::random::programs(600))]

    /// Lists are needed again only after a refused free, or if a freed block of the peak could not be kept.
    #[test]
    fn the_peak_follows_from_older_lists_and_later_records_or_was_corrected(
        before in steps(),
        after in steps(),
        is_scarce: bool,
        max_entries in prop::sample::select(vec![12, usize::MAX]),
    ) {
        let mut run = UndoRun::new(max_entries, true);
        before.iter().for_each(|step| run.take(*step));
        let reader = StreamReader::new(&run.ledger);
        let mut is_refused = false;
        for step in after {
            is_refused |= matches!(step, UndoStep::Refuse { address } if run.out.contains_key(&address));
            let frees = matches!(step, UndoStep::Free { .. } | UndoStep::FreeInVain { .. });
            with_memory_for(if is_scarce && frees { 0 } else { usize::MAX }, || run.take(step));
        }
        let is_corrected = run.ledger.peak.corrections > reader.listed.peak_corrections;
        prop_assert!(!is_corrected || is_refused || is_scarce);
        if let Some(found) = reader.peak_blocks(&run.ledger).filter(|_| !is_corrected) {
            prop_assert_eq!(blocks(&found), blocks(&run.ledger.copy_state(BASE).peak.blocks));
        }
    }

    #[test]
    fn a_refused_free_leaves_no_trace(steps in steps()) {
        let (with, without) = (UndoRun::new(usize::MAX, true).end(&steps), UndoRun::new(usize::MAX, false).end(&steps));
        prop_assert_eq!(records(&with), records(&without));
        prop_assert_eq!((with.overwritten, blocks(&with.live)), (0, blocks(&without.live)));
        prop_assert_eq!((with.peak.bytes, with.peak.seq), (without.peak.bytes, without.peak.seq));
        prop_assert_eq!(blocks(&with.peak.blocks), blocks(&without.peak.blocks));
        prop_assert_eq!(with.peak.not_recorded, without.peak.not_recorded);
        prop_assert_eq!((with.stats.allocated_bytes, with.lost_blocks), (without.stats.allocated_bytes, 0));
        let sizes = |copy: &LedgerCopy| (copy.stats.allocations.allocated, copy.stats.allocations.freed);
        prop_assert_eq!(sizes(&with), sizes(&without));
    }

    /// This also holds where the log does not reach back to the free.
    #[test]
    fn what_is_there_adds_up_whatever_was_overwritten(steps in steps(), max_entries in 0..12usize) {
        let (with, without) = (UndoRun::new(max_entries, true).end(&steps), UndoRun::new(usize::MAX, false).end(&steps));
        let peak: u64 = with.peak.blocks.iter().map(|block| block.size).sum();
        prop_assert_eq!(peak + with.peak.not_recorded, with.peak.bytes);
        prop_assert!(with.peak.bytes <= without.peak.bytes);
        prop_assert_eq!(blocks(&with.live), blocks(&without.live));
        prop_assert_eq!(with.stats.allocated_bytes.current, without.stats.allocated_bytes.current);
        let all = without.records.len() as u64;
        prop_assert!(max_entries == 0 || with.overwritten + with.records.len() as u64 == all, "{}", all);
        let known = records(&with);
        prop_assert!(records(&without).ends_with(&known), "{:?}", known);
    }
}
