//! Incremental reading of a ledger's log, for streamed captures.

use std::num::NonZeroU64;

use memtrace_core::snapshot::{BlockName, GraphNode, Mark, MemoryStats, Peak, Record, SegmentRecord};

use super::Ledger;
use super::names::NameCursor;
use super::ring::Ring;

/// Position of a reader in a device's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    records: u64,
    marks: u64,
    segments: u64,
    names: NameCursor,
    graph_nodes: u64,
}

impl Cursor {
    /// Whether nothing is left to read before `end`.
    pub(crate) fn has_reached(&self, end: &Self) -> bool {
        self.records >= end.records
            && self.marks >= end.marks
            && self.segments >= end.segments
            && self.names.has_reached(&end.names)
            && self.graph_nodes >= end.graph_nodes
    }

    /// Number of records before the cursor.
    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    /// Number of records and of marks between the cursor and `end`.
    pub(crate) fn behind(&self, end: &Self) -> (u64, u64) {
        (end.records.saturating_sub(self.records), end.marks.saturating_sub(self.marks))
    }
}

/// Records read from a log. They use the recorder's own stack ids.
#[derive(Debug, Default)]
pub(crate) struct LogPart {
    pub(crate) records: Vec<Record>,
    pub(crate) marks: Vec<Mark>,
    pub(crate) segments: Vec<SegmentRecord>,
    pub(crate) names: Vec<BlockName>,
    pub(crate) lost_names: u64,
    pub(crate) graph_nodes: Vec<GraphNode>,
    /// The counters just after these records, if the part ends at a checkpoint.
    pub(crate) counters: Option<Checkpoint>,
}

/// The ring overwrote records before they were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overwritten;

/// Bytes outside a ledger at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outside {
    pub(crate) below_threshold: u64,
    /// Bytes that were live when the recording began.
    pub(crate) base: u64,
}

/// The counters at one position of the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Checkpoint {
    records: u64,
    pub(crate) stats: MemoryStats,
    pub(crate) not_recorded: u64,
    peak: [u64; 5],
}

/// Allocs between two checkpoints.
const BETWEEN_CHECKPOINTS: u64 = 4096;

impl Checkpoint {
    pub(crate) fn peak(&self) -> Peak {
        let [bytes, time_ns, seq, not_recorded, below_threshold] = self.peak;
        Peak { bytes, time_ns, seq: NonZeroU64::new(seq), not_recorded, below_threshold, blocks: Vec::new() }
    }
}

/// Room for all checkpoints of a log with this capacity.
pub(super) fn checkpoints(max_entries: usize) -> Ring<Checkpoint> {
    Ring::new(max_entries.div_ceil(BETWEEN_CHECKPOINTS as usize))
}

impl Ledger {
    /// Whether a checkpoint is due after the alloc that was just entered.
    #[inline(always)]
    pub(crate) fn is_at_checkpoint(&self) -> bool {
        self.seq.is_multiple_of(BETWEEN_CHECKPOINTS)
    }

    /// Adds a checkpoint. A reader that stops at this position gets records and matching counters.
    #[cold]
    pub(crate) fn keep_counters(&mut self, outside: Outside) {
        let Outside { below_threshold, base } = outside;
        let Peak { bytes, time_ns, seq, not_recorded, below_threshold: below_at_peak, .. } = self.peak_numbers(base);
        let (stats, not_recorded_now) = self.look(base);
        self.checkpoints.push(Checkpoint {
            records: self.records.end(),
            stats: MemoryStats { below_threshold, ..stats },
            not_recorded: not_recorded_now,
            peak: [bytes, time_ns, seq.map_or(0, NonZeroU64::get), not_recorded, below_at_peak],
        });
    }

    /// The position after everything logged so far.
    pub(crate) fn end(&self) -> Cursor {
        Cursor {
            records: self.records.end(),
            marks: self.marks.pushed(),
            segments: self.segments.as_ref().map_or(0, |known| known.log().pushed()),
            names: self.names.end(),
            graph_nodes: self.graph_nodes.pushed(),
        }
    }

    /// Appends at most `limit` records from `cursor` up to `end` to `out`, and advances the cursor. Stops at the last
    /// checkpoint within that range, if there is one.
    pub(crate) fn copy_log(
        &self,
        cursor: &mut Cursor,
        end: &Cursor,
        limit: usize,
        out: &mut LogPart,
    ) -> Result<(), Overwritten> {
        let (lost, records) = self.records.since(cursor.records);
        let (lost_marks, marks) = self.marks.since(cursor.marks);
        if lost > 0 && end.records > cursor.records || lost_marks > 0 && end.marks > cursor.marks {
            return Err(Overwritten);
        }
        let most = end.records.min(cursor.records + limit as u64);
        out.counters = self.checkpoint_between(cursor.records, most);
        let to = out.counters.map_or(most, |kept| kept.records);
        let count = to.saturating_sub(cursor.records) as usize;
        out.records.extend(records.take(count).flatten());
        if out.records.len() < count {
            return Err(Overwritten);
        }
        cursor.records = to;
        let is_all = to >= end.records;
        let until = out.records.last().filter(|_| !is_all).map_or(u64::MAX, |record| record.time_ns);
        let marks = marks.take((end.marks.saturating_sub(cursor.marks) as usize).min(limit));
        out.marks.extend(marks.take_while(|mark| mark.time_ns <= until));
        cursor.marks += out.marks.len() as u64;
        if is_all {
            self.copy_rest(cursor, end, out);
        }
        Ok(())
    }

    /// Moves the cursor to `end` without copying records and marks.
    pub(crate) fn skip_log(&self, cursor: &mut Cursor, end: &Cursor, out: &mut LogPart) {
        self.copy_rest(cursor, end, out);
        *cursor = *end;
    }

    /// Copies segments, names and graph nodes, which are few.
    fn copy_rest(&self, cursor: &mut Cursor, end: &Cursor, out: &mut LogPart) {
        if let Some(segments) = &self.segments {
            let (lost, records) = segments.log().since(cursor.segments);
            let new = end.segments.saturating_sub(cursor.segments + lost);
            out.segments.extend(records.take(new as usize));
            cursor.segments = end.segments;
        }
        let (names, lost_names) = self.names.since(&mut cursor.names);
        out.names.extend(names);
        out.lost_names += lost_names;
        let (lost, nodes) = self.graph_nodes.since(cursor.graph_nodes);
        let new = end.graph_nodes.saturating_sub(cursor.graph_nodes + lost);
        out.graph_nodes.extend(nodes.take(new as usize));
        cursor.graph_nodes = end.graph_nodes;
    }

    /// The last checkpoint after `from`, but not after `to`.
    fn checkpoint_between(&self, from: u64, to: u64) -> Option<Checkpoint> {
        let kept = self.checkpoints.in_order().copied();
        kept.filter(|kept| kept.records > from && kept.records <= to).last()
    }
}
