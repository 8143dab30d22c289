//! Blocks that candle's graph keeps although nothing needs them. A result that was computed from variables keeps its
//! arguments.
//!
//! A temporary (see `statements`) counts as kept by a graph if it is still live when its line runs again, and if it is
//! freed after the result: a graph that is dropped frees its result first. The temporary is needed until the end of the
//! first backward pass that begins while it is live, if there is one.

use std::num::NonZeroU64;
use std::rc::Rc;

use super::replay::LogReplay;
use super::statements::{BackwardPass, Computed, Statement, StatementWalk};
use crate::analysis::absence::Absence;
use crate::attribute::{Attribution, has_backward_pass, has_variables, is_of_optimizer, operator};
use crate::hashed::{HashMap, HashSet, by_key};
use crate::snapshot::{DeviceSnapshot, Lifetimes, Record, RecordKind, StackId, ThreadId};

/// Smaller blocks are ignored.
const LEAST: u64 = 1024;

/// A block that a graph keeps from one record to another although nothing needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeptByGraph {
    pub(super) absence: Absence,
    pub(super) stack: StackId,
    /// Whether it is a temporary of a statement, so that no variable of the program can hold it.
    pub(super) is_temporary: bool,
    alloc: usize,
    /// The index of the backward pass that needed the block; `None` if no pass did.
    pub(super) pass: Option<usize>,
}

/// Blocks that graphs keep although nothing needs them, and the log.
#[derive(Debug, Default)]
pub(crate) struct Graphs {
    pub(super) log: Option<LogReplay>,
    pub(super) blocks: Vec<KeptByGraph>,
    /// Whether results may have a graph, because of variables or backward passes.
    has_any: bool,
    /// Where statements begin that are known to create a graph.
    forward: Vec<usize>,
    /// Temporaries that were computed for a thread's last backward pass and are live at the end.
    pub(super) left: HashSet<NonZeroU64>,
    pub(super) passes: Vec<BackwardPass>,
    /// The passes of each thread, in order.
    by_thread: HashMap<ThreadId, Vec<usize>>,
}

impl Graphs {
    pub(crate) fn of(data: &Attribution<'_>, device: &DeviceSnapshot, lives: &Rc<Lifetimes>) -> Self {
        let may_have_any = has_variables(data) || has_backward_pass(data);
        let Some(log) = LogReplay::with(device, lives).filter(|_| may_have_any) else { return Self::default() };
        let walk = StatementWalk::over(data, device);
        if !has_variables(data) && walk.passes.is_empty() {
            return Self::default();
        }
        let by_thread = by_key(walk.passes.iter().enumerate().map(|(number, pass)| (pass.thread, number)));
        let mut found = Self { has_any: true, passes: walk.passes, by_thread, ..Self::default() };
        let mut kept = Vec::new();
        for statement in &walk.done {
            // Only for the last pass: temporaries of earlier iterations that are still live accumulate.
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

    /// The first pass that begins while a block is live.
    fn pass_in(&self, thread: ThreadId, alloc: usize, until: usize) -> Option<usize> {
        let of_thread = self.by_thread.get(&thread)?;
        let pass = *of_thread.get(of_thread.partition_point(|pass| self.passes[*pass].from <= alloc))?;
        (self.passes[pass].from < until).then_some(pass)
    }

    /// The block, absent from the record after which nothing needs it. `None` if there is no such record.
    fn until_needed(&self, thread: ThreadId, block: KeptByGraph) -> Option<KeptByGraph> {
        let absence = block.absence;
        let pass = self.pass_in(thread, block.alloc, absence.until);
        let from = match pass {
            None => absence.from,
            Some(pass) => absence.from.max(after(&self.forward, self.passes[pass].end)?),
        };
        let absence = Absence { from, ..absence };
        (from < absence.until).then_some(KeptByGraph { absence, pass, ..block })
    }

    /// The record from which the program can do without a block. Also the stack of a backward pass, if the program must
    /// drop the loss of this pass to free the block. `from` is after the block's last use. `until` is the block's free;
    /// `None` if the block is not to be freed earlier. Returns `None` if the program needs the block, or if its holder
    /// is not known.
    pub(super) fn way_out(
        &self,
        data: &Attribution<'_>,
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

    /// Of the blocks `kept` for this pass, those that the thread's next pass does not need: it has too few nodes of
    /// their operators.
    pub(super) fn not_needed<'a>(
        &self,
        data: &Attribution<'_>,
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
        // For each operator, the nodes of the next backward pass that do not belong to the forward pass right before
        // it.
        let mut older: HashMap<&str, usize> = HashMap::default();
        let between = device.records.get(pass.end..next.from.max(pass.end)).unwrap_or_default();
        let is_own =
            |record: &&Record| record.kind == RecordKind::Alloc && record.size >= LEAST && record.thread == next.thread;
        for record in between.iter().filter(is_own) {
            if record.alloc_seq.and_then(|seq| log.freed_at(seq)).is_none_or(|freed| freed > next.from) {
                let nodes = older.entry(leaf(record.stack)).or_insert_with(|| next.nodes_of(leaf(record.stack)));
                *nodes = nodes.saturating_sub(1);
            }
        }
        // The next pass may need any of the blocks. To promise no more than is certain, it is taken to need the
        // largest.
        kept.sort_by_key(|kept| (std::cmp::Reverse(kept.absence.size), kept.alloc));
        kept.retain(|kept| {
            let leaf = leaf(kept.stack);
            let nodes = older.entry(leaf).or_insert_with(|| next.nodes_of(leaf));
            let may_need = kept.absence.until > next.from && (leaf.is_empty() || *nodes > 0);
            *nodes = nodes.saturating_sub(usize::from(may_need));
            !may_need
        });
        kept
    }
}

/// The first of the sorted positions at or after this one.
fn after(sorted: &[usize], at: usize) -> Option<usize> {
    sorted.get(sorted.partition_point(|start| *start < at)).copied()
}

/// The statement's temporaries that are live at the end of the log.
fn left(statement: &Statement, device: &DeviceSnapshot, log: &LogReplay) -> impl Iterator<Item = NonZeroU64> {
    let temporaries = statement.parts().0.iter().filter_map(|block| device.records.get(block.at));
    let left = temporaries.filter(|record| record.size >= LEAST).filter_map(|record| record.alloc_seq);
    left.filter(|seq| log.freed_at(*seq).is_none())
}

/// The temporaries and the result of a statement that a graph keeps after the statement's line runs again.
fn kept_of(
    statement: &Statement,
    device: &DeviceSnapshot,
    log: &LogReplay,
    again: usize,
) -> Vec<((ThreadId, usize), KeptByGraph)> {
    let (temporaries, result) = statement.parts();
    let kept = |is_temporary: bool| {
        move |block: &Computed| {
            let record = device.records.get(block.at).filter(|record| record.size >= LEAST || !is_temporary)?;
            let (seq, size, stack) = (record.alloc_seq?, record.size, record.stack);
            let until = log.freed_at(seq).filter(|freed| *freed > again)?;
            let absence = Absence { seq, from: again, until, size };
            Some(KeptByGraph { absence, stack, is_temporary, alloc: block.at, pass: None })
        }
    };
    let result: Vec<KeptByGraph> = result.iter().filter_map(kept(false)).collect();
    let Some(dropped) = result.iter().map(|block| block.absence.until).min() else { return Vec::new() };
    let mut found: Vec<KeptByGraph> =
        temporaries.iter().filter_map(kept(true)).filter(|block| block.absence.until > dropped).collect();
    if !found.is_empty() {
        found.extend(result.into_iter().filter(|block| block.absence.size >= LEAST));
    }
    found.into_iter().map(|block| ((statement.thread, statement.site.line), block)).collect()
}
