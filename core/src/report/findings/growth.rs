//! Finding: memory growth, where each step of a loop leaves live blocks behind.

use std::collections::HashMap;

use super::finding::{Confidence, Cost, Finding, is_large, line_of, lines};
use crate::analysis::name_pattern;
use crate::attribute::{Categories, has_backward_pass};
use crate::snapshot::{Block, Category, ContextId, ContextNode, DeviceSnapshot, SnapshotData, ThreadId};
use crate::units::{Bytes, grouped};

const STEPS: usize = 4;

const STEPS_LEAVE: [&str; 2] = [
    "Drop a step's results before the next step begins. `snapshot.since(&earlier)` shows by line what",
    "grew between two steps.",
];
/// The usual cause in training.
const LOSSES: [&str; 3] = [
    "A retained loss retains its step's graph: keep `loss.to_scalar()` or `loss.detach()` instead, and drop",
    "a step's results before the next step begins. `snapshot.since(&earlier)` shows by line what grew",
    "between two steps.",
];

/// Overlapping scopes, such as requests of a server, are judged in this number of parts.
const PARTS: usize = 8;

/// Steps of a loop, in order.
struct LoopSteps {
    /// What the finding calls them.
    of: String,
    /// Begin and end of each.
    times: Vec<(u64, u64)>,
}

pub(super) fn growth(data: &SnapshotData, device: &DeviceSnapshot) -> Vec<Finding> {
    let live = LiveByTime::of(no_state(data, device));
    let patterns = ScopePatterns::of(data);
    let steps = loops(device, &patterns).into_iter().chain(requests(device, &patterns));
    let found = steps.filter_map(|steps| Some((live.left_by(&steps.times)?, steps)));
    let most = found
        .max_by(|(a, of_a), (b, of_b)| (a.bytes, &of_a.of).cmp(&(b.bytes, &of_b.of)))
        .filter(|(left, _)| is_large(left.bytes, device));
    let finding = |(left, LoopSteps { of, times }): (Left, LoopSteps)| Finding {
        kind: "growth",
        what: format!(
            "{} of {of} left blocks that are still live, {} each",
            grouped(left.steps as u64),
            Bytes(left.bytes / left.steps.max(1) as u64)
        ),
        line: live.largest(&times).map(|largest| line_of(data, largest)),
        cost: Cost::AtEnd(left.bytes),
        confidence: Confidence::Likely,
        why: "a list of results or a cache grows like this as well.",
        advice: lines(if has_backward_pass(data) { &LOSSES } else { &STEPS_LEAVE }),
    };
    most.map(finding).into_iter().collect()
}

/// Live blocks and their bytes, except parameters and optimizer state, which are meant to stay.
fn no_state<'a>(data: &SnapshotData, device: &'a DeviceSnapshot) -> Vec<(&'a Block, u64)> {
    let categories = Categories::of(data, device);
    let is_state = |block: &Block| matches!(categories.get(block.seq), Category::Parameter | Category::OptimizerState);
    let live = device.live_weights().filter(|(block, _)| block.time_ns > 0 && !is_state(block));
    live.map(|(block, weight)| (block, weight.bytes)).collect()
}

/// Loops: scopes that one thread opened repeatedly in one context, by their names without numbers.
fn loops(device: &DeviceSnapshot, patterns: &ScopePatterns) -> Vec<LoopSteps> {
    let mut loops: HashMap<(ThreadId, usize), Vec<(u64, u64)>> = HashMap::new();
    let mut entered: HashMap<(ThreadId, ContextId), u64> = HashMap::new();
    for mark in &device.marks {
        let Some(pattern) = patterns.number(mark.context) else { continue };
        match entered.remove(&(mark.thread, mark.context)) {
            Some(since) if !mark.enter => {
                loops.entry((mark.thread, pattern)).or_default().push((since, mark.time_ns));
            }
            _ if mark.enter => _ = entered.insert((mark.thread, mark.context), mark.time_ns),
            _ => {}
        }
    }
    let long = loops.into_iter().filter(|(_, times)| times.len() >= STEPS);
    let steps = |((_, pattern), times): ((ThreadId, usize), Vec<(u64, u64)>)| {
        let of = format!("{} scopes `{}`", grouped(times.len() as u64), patterns.names[pattern]);
        LoopSteps { of, times }
    };
    long.map(steps).collect()
}

/// Scopes opened at least `2 * PARTS` times, by any threads. The time since the first is divided so that each part opens an
/// equal number of them.
fn requests(device: &DeviceSnapshot, patterns: &ScopePatterns) -> Vec<LoopSteps> {
    let mut opened: HashMap<usize, Vec<u64>> = HashMap::new();
    for mark in device.marks.iter().filter(|mark| mark.enter) {
        if let Some(pattern) = patterns.number(mark.context) {
            opened.entry(pattern).or_default().push(mark.time_ns);
        }
    }
    let often = opened.into_iter().filter(|(_, opened)| opened.len() >= 2 * PARTS);
    let parts = |(pattern, opened): (usize, Vec<u64>)| {
        let begins: Vec<u64> = (0..PARTS).filter_map(|part| opened.get(part * opened.len() / PARTS).copied()).collect();
        let ends = begins.iter().skip(1).map(|next| next.saturating_sub(1)).chain([u64::MAX]);
        let times = begins.iter().copied().zip(ends).collect();
        LoopSteps { of: format!("{PARTS} parts of the time in which `{}` was opened", patterns.names[pattern]), times }
    };
    often.map(parts).collect()
}

/// Scopes without the numbers in their names, numbered: those of one parent with equal names have one number.
struct ScopePatterns {
    /// By context; `None` for modules.
    numbers: Vec<Option<usize>>,
    names: Vec<String>,
}

impl ScopePatterns {
    fn of(data: &SnapshotData) -> Self {
        let (mut known, mut names) = (HashMap::new(), Vec::new());
        let mut number = |node: &ContextNode| {
            let name = name_pattern(&node.name);
            *known.entry((node.parent, name.clone())).or_insert_with(|| {
                names.push(name);
                names.len() - 1
            })
        };
        let numbers = data.contexts.iter().map(|node| (!node.module).then(|| number(node))).collect();
        Self { numbers, names }
    }

    fn number(&self, context: ContextId) -> Option<usize> {
        self.numbers.get(context.0 as usize).copied().flatten()
    }
}

struct Left {
    steps: usize,
    bytes: u64,
}

/// Live blocks by time. There may be as many loops as blocks, so what a step left is a difference of sums.
struct LiveByTime<'a> {
    /// In the order of the recording.
    blocks: Vec<(&'a Block, u64)>,
    times: Vec<u64>,
    /// Bytes of the blocks before each, and of all.
    sums: Vec<u64>,
}

impl<'a> LiveByTime<'a> {
    fn of(blocks: Vec<(&'a Block, u64)>) -> Self {
        let mut sorted: Vec<(u64, u64)> = blocks.iter().map(|(block, bytes)| (block.time_ns, *bytes)).collect();
        sorted.sort_unstable();
        let sum = |sum: &mut u64, (_, bytes): &(u64, u64)| {
            *sum = sum.saturating_add(*bytes);
            Some(*sum)
        };
        let sums = std::iter::once(0).chain(sorted.iter().scan(0, sum)).collect();
        Self { blocks, times: sorted.iter().map(|(time_ns, _)| *time_ns).collect(), sums }
    }

    /// Bytes of the blocks from a time up to another one.
    fn between(&self, from_ns: u64, to_ns: u64) -> u64 {
        let first = self.times.partition_point(|time_ns| *time_ns < from_ns);
        let end = self.times.partition_point(|time_ns| *time_ns <= to_ns).max(first);
        self.sums.get(end).zip(self.sums.get(first)).map_or(0, |(end, first)| end - first)
    }

    /// What the steps left. The first step does not count, because it may set up what all need, nor does the largest amount.
    fn left_by(&self, steps: &[(u64, u64)]) -> Option<Left> {
        let left: Vec<u64> = parts(steps).map(|(from_ns, to_ns)| self.between(from_ns, to_ns)).collect();
        let steps = left.iter().filter(|bytes| **bytes > 0).count();
        let bytes = left.iter().sum::<u64>() - left.iter().max()?;
        let nearly_all = left.len() * 3 / 4;
        (steps >= nearly_all && steps > 0).then_some(Left { steps, bytes })
    }

    /// The first of the largest blocks that the steps left.
    fn largest(&self, steps: &[(u64, u64)]) -> Option<&'a Block> {
        let is_left = |block: &Block| {
            let at = steps.partition_point(|(from, _)| *from <= block.time_ns).checked_sub(1);
            at.filter(|at| *at > 0).and_then(|at| steps.get(at)).is_some_and(|(_, to)| block.time_ns <= *to)
        };
        let left = self.blocks.iter().map(|(block, _)| *block).filter(|block| is_left(block));
        left.reduce(|largest, block| if block.size > largest.size { block } else { largest })
    }
}

/// All steps but the first, each up to the next one at most.
fn parts(steps: &[(u64, u64)]) -> impl Iterator<Item = (u64, u64)> + '_ {
    let ends = steps.iter().skip(2).map(|(next, _)| next.saturating_sub(1)).chain([u64::MAX]);
    steps.iter().skip(1).zip(ends).map(|((from, to), end)| (*from, end.min(*to)))
}
