//! Compares the parts of a log, as a stream reads it, with the whole log.

use std::time::Instant;

use memtrace_core::snapshot::{ContextId, GraphNodeKind, Mark, MemoryStats, Peak, Record, ThreadId};
use proptest::prelude::*;

use super::graph_nodes::MOST;
use super::segments::{QueryTicket, SegmentAnswer};
use super::*;
use crate::record::event_site::EventSite;
use crate::record::scarce::with_memory_for;

#[derive(Clone, Copy, Debug)]
enum PartStep {
    Alloc { size: u64 },
    Free { address: u64 },
    Enter,
    Exit,
    KeepCounters { below_threshold: u64 },
    Read { limit: usize },
}

fn steps() -> impl Strategy<Value = Vec<PartStep>> {
    let step = prop_oneof![
        6 => (0..1000u64).prop_map(|size| PartStep::Alloc { size }),
        4 => (0..40u64).prop_map(|address| PartStep::Free { address }),
        2 => Just(PartStep::Enter),
        2 => Just(PartStep::Exit),
        2 => (0..100u64).prop_map(|below_threshold| PartStep::KeepCounters { below_threshold }),
        3 => (1..9usize).prop_map(|limit| PartStep::Read { limit }),
    ];
    prop::collection::vec(step, 0..120)
}

const BASE: u64 = 5_000;

/// Counters at a position of the log.
#[derive(Clone, Debug, PartialEq)]
struct Kept {
    position: usize,
    stats: MemoryStats,
    peak: Peak,
    not_recorded: u64,
}

impl Kept {
    fn of(ledger: &Ledger, below_threshold: u64) -> Self {
        let copy = ledger.copy(BASE);
        let stats = MemoryStats { below_threshold, ..copy.stats };
        let (peak, not_recorded) = (ledger.peak_numbers(BASE), copy.not_recorded);
        Self { position: copy.records.len(), stats, peak, not_recorded }
    }
}

struct Reader {
    ledger: Ledger,
    cursor: Cursor,
    records: Vec<Record>,
    marks: Vec<Mark>,
    kept: Vec<Kept>,
    scopes: u64,
}

impl Reader {
    fn new(max_entries: usize) -> Self {
        let options = LedgerOptions { max_entries, stacks_in_log: true, ..LedgerOptions::default() };
        let ledger = Ledger::new(options, Instant::now());
        let (cursor, records, marks, kept) = Default::default();
        Self { ledger, cursor, records, marks, kept, scopes: 0 }
    }

    fn take(&mut self, step: PartStep) {
        let site = EventSite::default();
        match step {
            PartStep::Alloc { size } => _ = self.ledger.alloc(self.ledger.seq % 40, size, site),
            PartStep::Free { address } if self.ledger.free(address, site).is_none() => {
                self.ledger.free_unknown(1000 + address, address, site);
            }
            PartStep::Free { .. } => {}
            PartStep::Enter => {
                self.scopes += 1;
                self.ledger.enter_scope(self.scopes, ContextId(1), ThreadId(1));
            }
            PartStep::Exit => self.ledger.exit_scope(self.scopes, ContextId(1), ThreadId(1)),
            PartStep::KeepCounters { below_threshold } => {
                self.ledger.keep_counters(Outside { below_threshold, base: BASE });
                self.kept.push(Kept::of(&self.ledger, below_threshold));
            }
            PartStep::Read { limit } => self.read(limit),
        }
    }

    /// Reads to the end, at most `limit` records at a time.
    fn read(&mut self, limit: usize) {
        let (all, end) = (self.ledger.copy(BASE), self.ledger.end());
        while !self.cursor.has_reached(&end) {
            let left = (all.records.len() - self.records.len(), all.marks.len() - self.marks.len());
            assert_eq!(self.cursor.behind(&end), (left.0 as u64, left.1 as u64));
            let mut part = LogPart::default();
            self.ledger.copy_log(&mut self.cursor, &end, limit, &mut part).unwrap();
            self.check(&part, limit, &all);
        }
        assert_eq!(self.cursor, end);
        assert_eq!((&self.records, &self.marks), (&all.records, &all.marks));
    }

    fn check(&mut self, part: &LogPart, limit: usize, all: &LedgerCopy) {
        let from = self.records.len();
        let most = all.records.len().min(from + limit);
        let kept = self.kept.iter().rev().find(|kept| kept.position > from && kept.position <= most);
        let to = kept.map_or(most, |kept| kept.position);
        assert_eq!(part.records, all.records[from..to]);
        let counters = part.counters.map(|kept| Kept {
            position: to,
            stats: kept.stats,
            peak: kept.peak(),
            not_recorded: kept.not_recorded,
        });
        assert_eq!(counters.as_ref(), kept);
        let is_all = to == all.records.len();
        let until = part.records.last().filter(|_| !is_all).map_or(u64::MAX, |record| record.time_ns);
        let marks = all.marks[self.marks.len()..].iter().take(limit).take_while(|mark| mark.time_ns <= until);
        assert_eq!(part.marks, marks.copied().collect::<Vec<_>>());
        self.records.extend_from_slice(&part.records);
        self.marks.extend_from_slice(&part.marks);
        assert_eq!(self.cursor.records(), to as u64);
    }
}

proptest! {
    #![proptest_config(crate::random::programs(400))]

    /// A part ends at the last position in it at which counters were kept, if there is one, and has these counters.
    #[test]
    fn parts_add_up_to_the_log(steps in steps()) {
        let mut reader = Reader::new(1 << 20);
        steps.into_iter().for_each(|step| reader.take(step));
        reader.read(5);
    }
}

#[test]
fn counters_are_kept_after_each_4096_allocs() {
    let mut reader = Reader::new(100);
    let is_due = |reader: &mut Reader| {
        reader.take(PartStep::Alloc { size: 1 });
        reader.ledger.is_at_checkpoint()
    };
    let due: Vec<usize> = (1..10_000).filter(|_| is_due(&mut reader)).collect();
    assert_eq!(due, [4096, 8192]);
}

#[test]
fn overwritten_records_and_marks_are_an_error_if_they_were_to_be_read() {
    let allocs = |reader: &mut Reader, count| (0..count).for_each(|_| reader.take(PartStep::Alloc { size: 1 }));
    let marks = |reader: &mut Reader, count| (0..count).for_each(|_| reader.take(PartStep::Enter));
    let read = |reader: &Reader, mut cursor: Cursor, end: &Cursor| {
        let mut part = LogPart::default();
        reader.ledger.copy_log(&mut cursor, end, 100, &mut part).map(|()| (part.records.len(), part.marks.len()))
    };
    let mut reader = Reader::new(4);
    let nothing = reader.ledger.end();
    allocs(&mut reader, 4);
    marks(&mut reader, 4);
    let first = reader.ledger.end();
    assert_eq!(read(&reader, nothing, &first), Ok((4, 4)));
    allocs(&mut reader, 1);
    assert_eq!(read(&reader, nothing, &first), Err(Overwritten));
    assert_eq!(read(&reader, first, &reader.ledger.end()), Ok((1, 0)));
    assert_eq!(read(&reader, nothing, &nothing), Ok((0, 0)), "nothing was to be read");
    let mut reader = Reader::new(4);
    marks(&mut reader, 5);
    assert_eq!(read(&reader, nothing, &reader.ledger.end()), Err(Overwritten));
    assert_eq!(read(&reader, nothing, &nothing), Ok((0, 0)), "nothing was to be read");
}

/// Large blocks have records of their own kind. When memory runs out, the newest of these overwrite the oldest.
#[test]
fn records_that_were_lost_for_lack_of_memory_are_an_error() {
    let mut reader = Reader::new(1000);
    (0..100).for_each(|_| reader.take(PartStep::Alloc { size: 10 }));
    for address in 100..120 {
        assert!(reader.ledger.alloc(address, 1 << 50, EventSite::default()));
    }
    let before = reader.ledger.end();
    let read = |reader: &Reader, end: &Cursor| {
        let (mut cursor, mut part) = (Cursor::default(), LogPart::default());
        reader.ledger.copy_log(&mut cursor, end, 1000, &mut part).map(|()| part.records.len() as u64)
    };
    assert_eq!(read(&reader, &before), Ok(before.records()));
    with_memory_for(0, || (100..120).for_each(|address| _ = reader.ledger.free(address, EventSite::default())));
    assert_eq!(reader.ledger.records.overwritten(), 0);
    assert_eq!(read(&reader, &before), Err(Overwritten));
}

#[test]
fn what_is_skipped_has_names_but_no_records() {
    let mut reader = Reader::new(100);
    reader.take(PartStep::Alloc { size: 5 });
    reader.take(PartStep::Enter);
    reader.take(PartStep::Alloc { size: 5 });
    assert!(reader.ledger.name(0, "weight".into()));
    assert!(!with_memory_for(0, || reader.ledger.name(1, "bias".into())));
    let end = reader.ledger.end();
    let (mut cursor, mut part) = (Cursor::default(), LogPart::default());
    reader.ledger.skip_log(&mut cursor, &end, &mut part);
    assert_eq!((cursor, part.records.len(), part.marks.len()), (end, 0, 0));
    assert_eq!((part.names.len(), part.lost_names), (1, 1));
    assert!(cursor.has_reached(&end) && !Cursor::default().has_reached(&end));
    reader.take(PartStep::Free { address: 0 });
    assert!(!cursor.has_reached(&reader.ledger.end()));
}

#[test]
fn segments_and_nodes_are_read_up_to_the_end_without_those_that_are_gone() {
    let mut ledger = Ledger::new(LedgerOptions { has_segments: true, ..LedgerOptions::default() }, Instant::now());
    let mut number = 0;
    let mut add = |ledger: &mut Ledger, count| {
        for _ in 0..count {
            number += 1;
            // Removes the segment before, and adds this one.
            let answer = SegmentAnswer { address: 0, size: number, pool: 1, pool_reserved: number };
            ledger.segment(answer, QueryTicket::default(), EventSite::default());
            let (kind, block) = (GraphNodeKind::View, None);
            ledger.graph_nodes.push(GraphNode {
                time_ns: 1,
                thread: ThreadId(1),
                place: 0,
                kind,
                bytes: number,
                block,
            });
        }
        ledger.end()
    };
    let (mut cursor, mut part) = (Cursor::default(), LogPart::default());
    let mut read = |ledger: &Ledger, end| {
        part = LogPart::default();
        ledger.copy_log(&mut cursor, &end, 1, &mut part).unwrap();
        let sizes: Vec<u64> = part.segments.iter().map(|segment| segment.size).collect();
        let bytes: Vec<u64> = part.graph_nodes.iter().map(|node| node.bytes).collect();
        (sizes.len(), sizes.last().copied(), bytes.len(), bytes.last().copied())
    };
    let few = add(&mut ledger, 10);
    assert_eq!(read(&ledger, few), (19, Some(10), 10, Some(10)));
    let many = add(&mut ledger, 70_000);
    add(&mut ledger, 5);
    assert_eq!(read(&ledger, many), (MOST - 10, Some(70_010), MOST - 5, Some(70_010)));
    let all = ledger.end();
    assert_eq!(read(&ledger, all), (10, Some(70_015), 5, Some(70_015)));
}
