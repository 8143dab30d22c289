//! What the recording knows about scopes.

use std::collections::BTreeMap;

use super::ids::{ContextId, ThreadId};
use super::record::{Record, RecordKind};

/// A scope name below its parent: one node of the tree of contexts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextNode {
    /// The enclosing context.
    pub parent: ContextId,
    /// The scope's own name.
    pub name: String,
    /// A span of one of candle's models was entered by this path; if not, it is the program's own.
    pub model_span: bool,
}

/// Totals of one context path on one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScopeStats {
    /// Which context.
    pub context: ContextId,
    /// How often it was entered while recording.
    pub calls: u64,
    /// Allocations made inside it, nested scopes included.
    pub allocations: u64,
    /// Bytes of those allocations.
    pub allocated_bytes: u64,
    /// "Memory of this block": the most bytes live at once among what was allocated inside it.
    pub own_peak: u64,
    /// "Total while in this block": the largest allocated total of the device while it was open,
    /// whoever allocated; without blocks below the threshold. `None` if it was never open while recording (its blocks came from a
    /// scope that was already open when the recording began).
    pub total_peak: Option<u64>,
}

/// A scope was entered or left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Nanoseconds since the recording began.
    pub time_ns: u64,
    /// The path that was entered or left.
    pub context: ContextId,
    /// On which thread.
    pub thread: ThreadId,
    /// Entered (true) or left.
    pub enter: bool,
}

/// The scopes of a log that holds every record and mark, worked out from it; `end` is the allocated
/// total after its last record.
pub(crate) fn scopes_of_log(records: &[Record], marks: &[Mark], contexts: &[ContextNode], end: u64) -> Vec<ScopeStats> {
    let change = |record: &Record| match record.kind {
        RecordKind::Alloc => record.size as i64,
        RecordKind::Free => -(record.size as i64),
    };
    let start = end as i64 - records.iter().map(change).sum::<i64>();
    let mut log = ScopeLog { contexts, total: start, cells: BTreeMap::new(), open: Vec::new() };
    let mut marks = marks.iter().peekable();
    for record in records {
        while let Some(mark) = marks.next_if(|mark| mark.time_ns <= record.time_ns) {
            log.mark(mark);
        }
        log.total += change(record);
        log.record(record);
    }
    marks.for_each(|mark| log.mark(mark));
    log.cells.into_values().map(|cell| cell.stats).collect()
}

struct ScopeLog<'a> {
    contexts: &'a [ContextNode],
    total: i64,
    cells: BTreeMap<ContextId, ScopeCell>,
    /// Entered and not yet left.
    open: Vec<(ThreadId, ContextId)>,
}

#[derive(Default)]
struct ScopeCell {
    stats: ScopeStats,
    /// Bytes of its own blocks live now.
    now: u64,
}

impl ScopeLog<'_> {
    fn mark(&mut self, mark: &Mark) {
        let scope = (mark.thread, mark.context);
        if mark.enter {
            self.open.push(scope);
            self.cell(mark.context).stats.calls += 1;
            self.see_total(mark.context);
        } else if let Some(at) = self.open.iter().rposition(|open| *open == scope) {
            self.open.remove(at);
        }
    }

    fn record(&mut self, record: &Record) {
        let mut at = record.context;
        while at != ContextId::ROOT {
            let cell = self.cell(at);
            match record.kind {
                RecordKind::Alloc => cell.alloc(record.size),
                RecordKind::Free => cell.now = cell.now.saturating_sub(record.size),
            }
            at = self.contexts.get(at.0 as usize).map_or(ContextId::ROOT, |node| node.parent);
        }
        if record.kind == RecordKind::Alloc {
            let mut open: Vec<ContextId> = self.open.iter().map(|(_, context)| *context).collect();
            open.dedup();
            open.into_iter().for_each(|context| self.see_total(context));
        }
    }

    fn see_total(&mut self, context: ContextId) {
        let total = u64::try_from(self.total).unwrap_or(0);
        let stats = &mut self.cell(context).stats;
        stats.total_peak = stats.total_peak.max(Some(total));
    }

    fn cell(&mut self, context: ContextId) -> &mut ScopeCell {
        let cell = self.cells.entry(context).or_default();
        cell.stats.context = context;
        cell
    }
}

impl ScopeCell {
    fn alloc(&mut self, size: u64) {
        self.stats.allocations += 1;
        self.stats.allocated_bytes += size;
        self.now += size;
        self.stats.own_peak = self.stats.own_peak.max(self.now);
    }
}
