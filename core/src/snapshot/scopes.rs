//! Scopes: the context tree, statistics per scope, and the events of entering and leaving.

use std::collections::HashMap;

use super::Sampling;
use super::ids::{ContextId, ThreadId};
use super::record::{Record, RecordKind};

/// A node of the context tree: a scope name under its parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextNode {
    /// The enclosing context.
    pub parent: ContextId,
    /// The scope's own name.
    pub name: String,
    /// True if the scope is a module of a model: it was entered by a span of a candle model, or by `memtrace::module`.
    pub module: bool,
}

/// Statistics of one context on one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScopeStats {
    /// The context.
    pub context: ContextId,
    /// Number of times it was entered while recording.
    pub calls: u64,
    /// Allocations inside it, nested scopes included.
    pub allocations: u64,
    /// Bytes of those allocations.
    pub allocated_bytes: u64,
    /// Largest number of bytes live at once among blocks allocated inside it.
    pub own_peak: u64,
    /// Largest number of bytes live at once on the device while the scope was open, allocated by any thread, without
    /// blocks below the threshold. `None` if the scope was never entered while recording, because it was already open
    /// when the recording began.
    pub total_peak: Option<u64>,
}

/// A scope was entered or left on a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Nanoseconds since the recording began.
    pub time_ns: u64,
    /// The context that was entered or left.
    pub context: ContextId,
    /// The thread.
    pub thread: ThreadId,
    /// Entered (true) or left (false).
    pub enter: bool,
}

/// The statistics of all scopes, computed from a log that has every record and mark. `end` is the number of live bytes
/// after the last record.
pub(crate) fn scopes_of_log(
    records: &[Record],
    marks: &[Mark],
    contexts: &[ContextNode],
    sampling: Sampling,
    end: u64,
) -> Vec<ScopeStats> {
    let change = |record: &Record| match record.kind {
        RecordKind::Alloc => sampling.bytes(record.size) as i64,
        RecordKind::Free => -(sampling.bytes(record.size) as i64),
    };
    let start = end as i64 - records.iter().map(change).sum::<i64>();
    let mut log = ScopeLog::new(contexts, sampling, start);
    let mut marks = marks.iter().peekable();
    for record in records {
        while let Some(mark) = marks.next_if(|mark| mark.time_ns <= record.time_ns) {
            log.mark(mark);
        }
        log.total += change(record);
        log.record(record);
    }
    marks.for_each(|mark| log.mark(mark));
    log.finish()
}

struct ScopeLog<'a> {
    contexts: &'a [ContextNode],
    sampling: Sampling,
    total: i64,
    totals: Totals,
    /// Indexed by context.
    cells: Vec<Option<ScopeCell>>,
    /// For each open scope, the positions in `totals` at which it was entered.
    open: HashMap<(ThreadId, ContextId), Vec<usize>>,
}

#[derive(Clone, Default)]
struct ScopeCell {
    stats: ScopeStats,
    /// Number of allocations in fixed point.
    allocations: u64,
    now: u64,
}

impl<'a> ScopeLog<'a> {
    fn new(contexts: &'a [ContextNode], sampling: Sampling, total: i64) -> Self {
        let (totals, cells, open) = (Totals::default(), vec![None; contexts.len()], HashMap::new());
        Self { contexts, sampling, total, totals, cells, open }
    }

    fn mark(&mut self, mark: &Mark) {
        let scope = (mark.thread, mark.context);
        if mark.enter {
            let at = self.totals.push(self.total);
            self.open.entry(scope).or_default().push(at);
            self.at(mark.context, |cell| cell.stats.calls += 1);
        } else if let Some(at) = self.open.get_mut(&scope).and_then(Vec::pop) {
            self.left(mark.context, at);
        }
    }

    fn record(&mut self, record: &Record) {
        let (bytes, parts) = (self.sampling.bytes(record.size), self.sampling.parts(record.size));
        let mut at = record.context;
        while at != ContextId::ROOT {
            self.at(at, |cell| match record.kind {
                RecordKind::Alloc => cell.alloc(bytes, parts),
                RecordKind::Free => cell.now = cell.now.saturating_sub(bytes),
            });
            at = self.contexts.get(at.0 as usize).map_or(ContextId::ROOT, |node| node.parent);
        }
        if record.kind == RecordKind::Alloc {
            self.totals.push(self.total);
        }
    }

    /// Leaves a scope that was entered at position `since` of the totals.
    fn left(&mut self, context: ContextId, since: usize) {
        let total = self.totals.highest_since(since).map(|(_, total)| u64::try_from(total).unwrap_or(0));
        self.at(context, |cell| cell.stats.total_peak = cell.stats.total_peak.max(total));
    }

    fn at(&mut self, context: ContextId, change: impl FnOnce(&mut ScopeCell)) {
        let Some(cell) = self.cells.get_mut(context.0 as usize) else { return };
        let cell = cell.get_or_insert_default();
        cell.stats.context = context;
        change(cell);
    }

    fn finish(mut self) -> Vec<ScopeStats> {
        for ((_, context), places) in std::mem::take(&mut self.open) {
            places.into_iter().for_each(|since| self.left(context, since));
        }
        let stats = |cell: ScopeCell| ScopeStats { allocations: Sampling::whole(cell.allocations), ..cell.stats };
        self.cells.into_iter().flatten().map(stats).collect()
    }
}

/// Totals of live bytes, kept in a monotonic stack. It finds the maximum since a position, for any number of open
/// scopes.
#[derive(Default)]
pub(crate) struct Totals {
    count: usize,
    /// Positions and totals that no later total exceeds. So from one to the next, totals never rise.
    falling: Vec<(usize, i64)>,
}

impl Totals {
    /// Appends a total and returns its position.
    pub(crate) fn push(&mut self, total: i64) -> usize {
        while self.falling.pop_if(|(_, before)| *before < total).is_some() {}
        self.falling.push((self.count, total));
        self.count += 1;
        self.count - 1
    }

    /// The maximum from a position on, with the position where it was first reached.
    pub(crate) fn highest_since(&self, place: usize) -> Option<(usize, i64)> {
        let first = self.falling.partition_point(|(at, _)| *at < place);
        self.falling.get(first).copied()
    }
}

impl ScopeCell {
    fn alloc(&mut self, bytes: u64, parts: u64) {
        self.allocations = self.allocations.saturating_add(parts);
        self.stats.allocated_bytes += bytes;
        self.now += bytes;
        self.stats.own_peak = self.stats.own_peak.max(self.now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::StackId;

    fn alloc(time_ns: u64, size: u64) -> Record {
        Record {
            time_ns,
            address: 0x1000 * time_ns,
            size,
            stack: StackId::NONE,
            alloc_stack: StackId::NONE,
            context: ContextId::ROOT,
            thread: ThreadId(1),
            alloc_seq: std::num::NonZeroU64::new(time_ns),
            stream: 0,
            memory: crate::snapshot::MemoryKind::Heap,
            kind: RecordKind::Alloc,
        }
    }

    fn free(time_ns: u64, of: &Record) -> Record {
        Record { time_ns, kind: RecordKind::Free, ..*of }
    }

    #[test]
    fn a_scope_sees_the_largest_total_while_it_is_open() {
        let contexts =
            ["", "a", "b", "c"].map(|name| ContextNode { parent: ContextId::ROOT, name: name.into(), module: false });
        let (one, two, three) = (alloc(1, 100), alloc(3, 20), alloc(6, 7));
        let records = [one, free(2, &one), two, free(5, &two), three];
        let mark = |time_ns, context, enter| Mark { time_ns, context: ContextId(context), thread: ThreadId(1), enter };
        // a: the whole log; b: around the 20; c: after it, and never left.
        let marks = [mark(0, 1, true), mark(3, 2, true), mark(4, 2, false), mark(6, 3, true), mark(9, 1, false)];
        let scopes = scopes_of_log(&records, &marks, &contexts, Sampling::default(), 7);
        assert_eq!(scopes.iter().map(|scope| scope.total_peak).collect::<Vec<_>>(), [Some(100), Some(20), Some(7)]);
    }

    /// The cost is linear in scopes and records.
    #[test]
    fn a_hundred_thousand_open_scopes_are_no_trouble() {
        let contexts = vec![ContextNode { parent: ContextId::ROOT, name: String::new(), module: false }; 2];
        let mark = |thread, enter| Mark { time_ns: 0, context: ContextId(1), thread: ThreadId(thread), enter };
        let mut marks: Vec<Mark> = (0..100_000).map(|thread| mark(thread, true)).collect();
        marks.extend((0..50_000).map(|thread| mark(thread, false)));
        let records: Vec<Record> = (1..=100_000).map(|n| alloc(n, 1)).collect();
        let scopes = scopes_of_log(&records, &marks, &contexts, Sampling::default(), 100_000);
        assert_eq!((scopes[0].calls, scopes[0].total_peak), (100_000, Some(100_000)));
    }
}
