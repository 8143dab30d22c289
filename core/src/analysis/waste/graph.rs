//! What candle's graph keeps although nothing needs it. A result that was computed from variables keeps its arguments.
//!
//! A graph keeps a temporary (`statements`) that is still live when its line runs again, and that is freed after the result: a graph is dropped
//! from its result on. It is needed until the end of the first backward pass that begins in its life, if there is one.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::num::NonZeroU64;
use std::rc::Rc;

use super::replay::{LogChange, ReplayedLog};
use super::statements::{BackwardPass, Computed, Statement, StatementWalk};
use crate::analysis::{line_and_callers, line_label};
use crate::attribute::{has_backward_pass, has_variables, is_of_optimizer, once, operator};
use crate::snapshot::{Block, DeviceSnapshot, Record, RecordKind, SnapshotData, StackId, ThreadId};

/// Smaller blocks are not looked at.
const LEAST: u64 = 1024;

/// A block that a graph keeps from one record to another although nothing needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeptByGraph {
    pub(crate) seq: NonZeroU64,
    pub(crate) size: u64,
    pub(crate) stack: StackId,
    /// No other value can hold it.
    is_temporary: bool,
    alloc: usize,
    from: usize,
    until: usize,
    /// The backward pass that needed it, by its number.
    pass: Option<usize>,
}

impl KeptByGraph {
    fn changes(&self) -> [LogChange; 2] {
        let size = i64::try_from(self.size).unwrap_or(i64::MAX);
        [(self.from, -size), (self.until, size)]
    }

    fn is_at(&self, at: usize) -> bool {
        (self.from..self.until).contains(&at)
    }
}

/// Blocks that a graph keeps at the peak, and the peak without them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ungraphed {
    pub(crate) blocks: u64,
    pub(crate) bytes: u64,
    /// The line with most of them.
    pub(crate) line: String,
    /// The line of the backward pass that needed them, or empty.
    pub(crate) pass: String,
    pub(crate) peak_without: u64,
}

/// What graphs keep in vain; nothing in programs without variables, and if the log has lost records.
pub(crate) fn kept_by_graphs(data: &SnapshotData, device: &DeviceSnapshot) -> Rc<Graphs> {
    once(data, device, || Rc::new(Graphs::of(data, device)))
}

/// Is the block a temporary of the last backward pass that is live at the end? Only a graph can hold it.
pub(crate) fn is_left_by_a_pass(data: &SnapshotData, device: &DeviceSnapshot) -> impl Fn(&Block) -> bool + use<> {
    let graphs = kept_by_graphs(data, device);
    move |block| block.seq.is_some_and(|seq| graphs.left.contains(&seq))
}

/// Intermediate results that no backward pass needs.
pub(crate) fn without_a_pass(data: &SnapshotData, device: &DeviceSnapshot) -> Option<Ungraphed> {
    let graphs = kept_by_graphs(data, device);
    let (log, at) = graphs.log.as_ref().zip(peak_at(device))?;
    let kept: Vec<&KeptByGraph> =
        graphs.blocks.iter().filter(|kept| kept.is_temporary && kept.pass.is_none()).collect();
    ungraphed(data, log, &kept, at, String::new())
}

/// What is kept after its backward pass and up to the peak, and what other iterations keep likewise. The next pass does not need it: it has
/// fewer nodes than there are results.
pub(crate) fn past_their_pass(data: &SnapshotData, device: &DeviceSnapshot) -> Option<Ungraphed> {
    let graphs = kept_by_graphs(data, device);
    let (log, at) = graphs.log.as_ref().zip(peak_at(device))?;
    let mut by_pass: Vec<Vec<&KeptByGraph>> = vec![Vec::new(); graphs.passes.len()];
    for kept in &graphs.blocks {
        kept.pass.into_iter().for_each(|pass| by_pass[pass].push(kept));
    }
    let not_needed = |(pass, kept)| graphs.not_needed(data, device, kept, pass);
    let kept: Vec<&KeptByGraph> = by_pass.into_iter().enumerate().flat_map(not_needed).collect();
    let pass = kept.iter().find(|kept| kept.is_at(at)).and_then(|kept| graphs.passes.get(kept.pass?))?;
    ungraphed(data, log, &kept, at, line_and_callers(data, pass.stack, 0).concat())
}

/// The peak if a graph kept none of these blocks any longer than needed.
pub(crate) fn peak_without_graphs(
    data: &SnapshotData,
    device: &DeviceSnapshot,
    is_one: impl Fn(NonZeroU64) -> bool,
) -> Option<(u64, u64)> {
    let graphs = kept_by_graphs(data, device);
    let kept: Vec<&KeptByGraph> = graphs.blocks.iter().filter(|kept| kept.is_temporary && is_one(kept.seq)).collect();
    let bytes = kept.iter().map(|kept| kept.size).sum();
    Some((bytes, graphs.log.as_ref()?.peak_with(kept.iter().flat_map(|kept| kept.changes()))))
}

fn ungraphed(
    data: &SnapshotData,
    log: &ReplayedLog,
    kept: &[&KeptByGraph],
    at: usize,
    pass: String,
) -> Option<Ungraphed> {
    let at_peak: Vec<&&KeptByGraph> = kept.iter().filter(|kept| kept.is_at(at)).collect();
    let (mut by_stack, mut by_line) = (HashMap::new(), BTreeMap::new());
    at_peak.iter().for_each(|kept| *by_stack.entry(kept.stack).or_insert(0u64) += kept.size);
    by_stack.into_iter().for_each(|(stack, bytes)| *by_line.entry(line_label(data, stack.0)).or_insert(0) += bytes);
    let (line, _) = by_line.into_iter().max_by_key(|(_, bytes)| *bytes)?;
    Some(Ungraphed {
        blocks: at_peak.len() as u64,
        bytes: at_peak.iter().map(|kept| kept.size).sum(),
        line,
        pass,
        peak_without: log.peak_with(kept.iter().flat_map(|kept| kept.changes())),
    })
}

fn peak_at(device: &DeviceSnapshot) -> Option<usize> {
    device.records.iter().position(|record| {
        record.kind == RecordKind::Alloc && record.alloc_seq.is_some() && record.alloc_seq == device.peak.seq
    })
}

/// Blocks that graphs keep in vain, with the log.
#[derive(Default)]
pub(crate) struct Graphs {
    log: Option<ReplayedLog>,
    blocks: Vec<KeptByGraph>,
    /// The program has variables, so results may have a graph.
    has_any: bool,
    /// Where statements begin that are known to make a graph.
    forward: Vec<usize>,
    /// Temporaries of the last backward pass that are live at the end.
    left: HashSet<NonZeroU64>,
    passes: Vec<BackwardPass>,
    /// The passes of each thread, in their order.
    by_thread: HashMap<ThreadId, Vec<usize>>,
}

impl Graphs {
    fn of(data: &SnapshotData, device: &DeviceSnapshot) -> Self {
        let may_have_any = has_variables(data) || has_backward_pass(data);
        let Some(log) = ReplayedLog::of(device).filter(|_| may_have_any) else { return Self::default() };
        let walk = StatementWalk::over(data, device);
        if !has_variables(data) && walk.passes.is_empty() {
            return Self::default();
        }
        let mut found = Self { has_any: true, ..Self::default() };
        for (number, pass) in walk.passes.iter().enumerate() {
            found.by_thread.entry(pass.thread).or_default().push(number);
        }
        found.passes = walk.passes;
        let mut kept = Vec::new();
        for statement in &walk.done {
            // What is left of earlier iterations accumulates.
            let last = found.by_thread.get(&statement.thread).and_then(|passes| passes.last());
            if last.is_some() && last == found.pass_in(statement.thread, statement.end - 1, usize::MAX).as_ref() {
                found.left.extend(left(statement, device, &log));
            }
            let again = walk.starts.get(&(statement.thread, statement.site.line)).and_then(|s| after(s, statement.end));
            kept.extend(again.into_iter().flat_map(|again| kept_of(statement, device, &log, again)));
        }
        let mut forward: Vec<usize> =
            kept.iter().filter_map(|(line, _)| walk.starts.get(line)).flatten().copied().collect();
        forward.sort_unstable();
        forward.dedup();
        found.forward = forward;
        let needed = |(line, block): ((ThreadId, usize), KeptByGraph)| found.until_needed(line.0, block);
        found.blocks = kept.into_iter().filter_map(needed).collect();
        found.log = Some(log);
        found
    }

    /// The first pass that begins in a life.
    fn pass_in(&self, thread: ThreadId, alloc: usize, until: usize) -> Option<usize> {
        let of_thread = self.by_thread.get(&thread)?;
        let pass = *of_thread.get(of_thread.partition_point(|pass| self.passes[*pass].from <= alloc))?;
        (self.passes[pass].from < until).then_some(pass)
    }

    /// The block from where on nothing needs it.
    fn until_needed(&self, thread: ThreadId, block: KeptByGraph) -> Option<KeptByGraph> {
        let pass = self.pass_in(thread, block.alloc, block.until);
        let from = match pass {
            None => block.from,
            Some(pass) => block.from.max(after(&self.forward, self.passes[pass].end)?),
        };
        (from < block.until).then_some(KeptByGraph { from, pass, ..block })
    }

    /// From where on the program can do without a block, given where its last use was and where it was freed, and the stack of the backward
    /// pass whose loss it has to drop for it. `None` if it cannot, or if who holds the block is not known. A block that is not to be freed
    /// earlier has no `until`.
    pub(super) fn way_out(
        &self,
        data: &SnapshotData,
        (at, record): (usize, &Record),
        from: usize,
        until: Option<usize>,
    ) -> Option<(usize, Option<StackId>)> {
        if !self.has_any {
            return Some((from, None));
        }
        let is_backward = operator(data, record.stack).is_some_and(|operator| operator.is_backward);
        let Some(until) = until else { return (!is_backward).then_some((from, None)) };
        if is_backward || is_of_optimizer(data, record.stack, record.context) {
            return None;
        }
        let pass = &self.passes[self.pass_in(record.thread, at, until)?];
        let from = from.max(after(&self.forward, pass.end).unwrap_or(pass.end));
        (from < until).then_some((from, Some(pass.stack)))
    }

    /// Those of the blocks, needed by this pass, that the thread's next one does not need: it has fewer nodes of their operators.
    fn not_needed<'a>(
        &self,
        data: &SnapshotData,
        device: &DeviceSnapshot,
        mut kept: Vec<&'a KeptByGraph>,
        pass: usize,
    ) -> Vec<&'a KeptByGraph> {
        let (log, Some((pass, later))) = (self.log.as_ref(), self.passes.get(pass..).and_then(<[_]>::split_first))
        else {
            return Vec::new();
        };
        let (Some(log), Some(next)) = (log, later.iter().find(|next| next.thread == pass.thread)) else { return kept };
        let leaf = |stack| operator(data, stack).filter(|found| !found.is_backward).map_or("", |found| found.leaf);
        // The nodes of each operator that the next pass has beside those of its own forward pass.
        let mut older: HashMap<&str, usize> = HashMap::new();
        let between = device.records.get(pass.end..next.from.max(pass.end)).unwrap_or_default();
        let is_own =
            |record: &&Record| record.kind == RecordKind::Alloc && record.size >= LEAST && record.thread == next.thread;
        for record in between.iter().filter(is_own) {
            if record.alloc_seq.and_then(|seq| log.freed_at(seq)).is_none_or(|freed| freed > next.from) {
                let nodes = older.entry(leaf(record.stack)).or_insert_with(|| next.nodes_of(leaf(record.stack)));
                *nodes = nodes.saturating_sub(1);
            }
        }
        // It may need the largest ones, so not too much is promised.
        kept.sort_by_key(|kept| (std::cmp::Reverse(kept.size), kept.alloc));
        kept.retain(|kept| {
            let leaf = leaf(kept.stack);
            let nodes = older.entry(leaf).or_insert_with(|| next.nodes_of(leaf));
            let may_need = kept.until > next.from && (leaf.is_empty() || *nodes > 0);
            *nodes = nodes.saturating_sub(usize::from(may_need));
            !may_need
        });
        kept
    }
}

/// The first of the sorted positions that is not before this one.
fn after(sorted: &[usize], at: usize) -> Option<usize> {
    sorted.get(sorted.partition_point(|start| *start < at)).copied()
}

/// The temporaries that are live at the end.
fn left(statement: &Statement, device: &DeviceSnapshot, log: &ReplayedLog) -> impl Iterator<Item = NonZeroU64> {
    let temporaries = statement.parts().0.iter().filter_map(|block| device.records.get(block.at));
    let left = temporaries.filter(|record| record.size >= LEAST).filter_map(|record| record.alloc_seq);
    left.filter(|seq| log.freed_at(*seq).is_none())
}

/// The temporaries that a graph keeps, and the result, from where the line runs again.
fn kept_of(
    statement: &Statement,
    device: &DeviceSnapshot,
    log: &ReplayedLog,
    again: usize,
) -> Vec<((ThreadId, usize), KeptByGraph)> {
    let (temporaries, result) = statement.parts();
    let kept = |is_temporary: bool| {
        move |block: &Computed| {
            let record = device.records.get(block.at).filter(|record| record.size >= LEAST || !is_temporary)?;
            let (seq, size, stack) = (record.alloc_seq?, record.size, record.stack);
            let until = log.freed_at(seq).filter(|freed| *freed > again)?;
            Some(KeptByGraph { seq, size, stack, is_temporary, alloc: block.at, from: again, until, pass: None })
        }
    };
    let result: Vec<KeptByGraph> = result.iter().filter_map(kept(false)).collect();
    let Some(dropped) = result.iter().map(|block| block.until).min() else { return Vec::new() };
    let mut found: Vec<KeptByGraph> =
        temporaries.iter().filter_map(kept(true)).filter(|block| block.until > dropped).collect();
    if !found.is_empty() {
        found.extend(result.into_iter().filter(|block| block.size >= LEAST));
    }
    found.into_iter().map(|block| ((statement.thread, statement.site.line), block)).collect()
}
