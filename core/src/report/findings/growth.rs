//! Finding: memory growth, where each iteration of a loop leaves live blocks behind.

use std::collections::HashMap;
use std::num::NonZeroU64;

use super::finding::{Confidence, Cost, Finding, FindingKind, exactly, in_its_language, is_large, lines, then_at_most};
use crate::analysis::{accumulation, bytes_by_line, name_pattern, peak_if_replaced, peak_without_graphs};
use crate::attribute::{Attribution, has_backward_pass, has_variables, is_native};
use crate::numbered::Numbered;
use crate::recording::DeviceView;
use crate::snapshot::{Block, Category, ContextId, ContextNode, ThreadId};
use crate::units::{Bytes, grouped};

const STEPS: usize = 4;
/// The most enclosing scopes of a block that are tried as its loop.
const MOST_SCOPES: usize = 8;

const STAYS: [&str; 3] = [
    "What stays is kept by the program, or a kept result was computed from it. Keep numbers",
    "(`to_scalar()`), `detach()` a tensor that is kept, drop what is no longer read, or limit the size",
    "of the collection.",
];
const STAYS_IN_PYTHON: [&str; 3] = [
    "What stays is kept by the program, or a kept result was computed from it. Keep numbers",
    "(`.item()`), `.detach()` a tensor that is kept, `del` what is no longer read, or limit the size",
    "of the collection.",
];

/// The advice for a program of C or C++, which has no tensors that memtrace knows.
const STAYS_IN_C: [&str; 2] =
    ["What stays was never freed. Free what is no longer needed, or limit the size", "of the collection."];

const GRAPH_STAYS: [&str; 2] = [
    "The graph of a value that is kept, or that the next one is computed from, keeps them. Keep a loss as a number",
    "(`to_scalar()`), and a tensor as `x.detach()`; compute with `var.as_detached_tensor()` what no backward pass needs.",
];

fn release(data: &Attribution<'_>) -> Vec<String> {
    if is_native(data) { lines(&STAYS_IN_C) } else { in_its_language(data, &STAYS, &STAYS_IN_PYTHON) }
}

/// The iterations of a loop, in order.
struct LoopSteps {
    /// What the finding calls the iterations: their number, and the pattern of their scopes' names.
    of: String,
    /// Begin and end of each iteration.
    times: Vec<(u64, u64)>,
}

pub(super) fn growth(device: &DeviceView<'_>) -> Vec<Finding> {
    let loops = Loops::of(device);
    accumulates(device, &loops).or_else(|| left_by_steps(device, loops)).into_iter().collect()
}

/// Lines whose blocks accumulate, added up in one finding.
fn accumulates(device: &DeviceView<'_>, loops: &Loops) -> Option<Finding> {
    let all = accumulation(device);
    let fullest = all.first()?;
    let mut stays: Vec<_> = all.iter().flat_map(|line| &line.stays).map(|block| block.seq).collect();
    stays.sort_unstable();
    let of_peak = device.peak.blocks.iter().filter(|block| stays.binary_search(&block.seq).is_ok());
    let (peak, end) = (of_peak.map(|block| block.size).sum(), all.iter().map(|line| line.bytes_at_end).sum());
    let cost = if end > peak { Cost::AtEnd(end) } else { Cost::OfPeak(peak) };
    if !is_large(peak.max(end), device) {
        return None;
    }
    let (others, stay) = (all.len() - 1, fullest.stays.len() as u64);
    let here = match others {
        0 => String::new(),
        1 => ", here and at another line".to_owned(),
        others => format!(", here and at {} other lines", grouped(others as u64)),
    };
    let what = match steps_of(device.data(), &fullest.stays, loops) {
        Some((left, LoopSteps { of, .. })) => format!("{} of {of} left blocks that stay", grouped(left)),
        None => format!(
            "{} of {} blocks allocated here stay (mean {})",
            grouped(stay),
            grouped(fullest.repetitions as u64),
            Bytes(fullest.bytes / stay.max(1))
        ),
    };
    let (why, advice) = cause_of(device, &stays, all.iter().flat_map(|line| &line.stays));
    Some(Finding {
        kind: FindingKind::Growth,
        what: format!("memory accumulates{here}: {what}"),
        line: Some(fullest.line.clone()),
        cost,
        confidence: Confidence::Likely,
        why,
        advice,
    })
}

/// Why the blocks stay, and what helps. `stays` has the sorted sequence numbers of the blocks.
fn cause_of<'a>(
    device: &DeviceView<'_>,
    stays: &[Option<NonZeroU64>],
    blocks: impl Iterator<Item = &'a Block> + Clone,
) -> (&'static str, Vec<String>) {
    let data = device.data();
    let is_one = |seq| stays.binary_search(&Some(seq)).is_ok();
    let all: u64 = blocks.clone().map(|block| block.size).sum();
    match peak_without_graphs(device, is_one).filter(|(bytes, _)| *bytes >= all / 4) {
        Some((_, peak)) => (
            "they outlive their statements and are freed after their result, as a graph is.",
            lines(&GRAPH_STAYS).into_iter().chain([then_at_most(peak)]).collect(),
        ),
        None => {
            let mut advice = release(data);
            // With variables or a backward pass, a graph may keep the memory. Then replacing the value does not free
            // it.
            let is_held = !has_variables(data) && !has_backward_pass(data);
            advice.extend(is_held.then(|| peak_if_replaced(device, blocks)).flatten().map(|peak| {
                format!("If each were freed before the next, the peak would be at most {}.", exactly(peak))
            }));
            let why = "they were live when the last of them was allocated; a list of results or a cache grows like this as well.";
            (why, advice)
        }
    }
}

/// The enclosing loop whose iterations left most of these blocks, and the number of those iterations.
fn steps_of<'a>(data: &Attribution<'_>, stays: &[Block], loops: &'a Loops) -> Option<(u64, &'a LoopSteps)> {
    let block = stays.get(stays.len() / 2)?;
    let left = |steps: &LoopSteps| {
        let steps: Vec<usize> = stays.iter().filter_map(|block| step_at(&steps.times, block)).collect();
        // Blocks and iterations are both in order of time, so equal iterations are neighbours.
        steps.chunk_by(|a, b| a == b).count() as u64
    };
    let parent = |at: &ContextId| data.contexts.get(at.0 as usize).map(|node| node.parent).filter(|up| up != at);
    let around = std::iter::successors(Some(block.context), parent).take(MOST_SCOPES);
    let pattern = |context: ContextId| loops.patterns.get(context.0 as usize).copied().flatten();
    let steps = around.filter_map(|context| loops.of.get(&(block.thread, pattern(context)?)));
    let found = steps.map(|steps| (left(steps), steps)).filter(|(left, _)| *left as usize >= STEPS);
    found.max_by_key(|(left, _)| *left)
}

/// Blocks that nearly every iteration of a loop left and that are live at the end.
fn left_by_steps(device: &DeviceView<'_>, loops: Loops) -> Option<Finding> {
    let live = LiveByTime::of(no_state(device));
    let found = loops.of.into_values().filter_map(|steps| Some((live.left_by(&steps.times)?, steps)));
    let ((bytes, steps), LoopSteps { of, times }) = found
        .max_by(|((a, _), of_a), ((b, _), of_b)| (a, &of_a.of).cmp(&(b, &of_b.of)))
        .filter(|((bytes, _), _)| is_large(*bytes, device))?;
    Some(Finding {
        kind: FindingKind::Growth,
        what: format!(
            "{} of {of} left live blocks, at least {} each on average",
            grouped(steps as u64),
            Bytes(bytes / steps.max(1) as u64)
        ),
        line: live.fullest_line(device.data(), &times),
        cost: Cost::AtEnd(bytes),
        confidence: Confidence::Likely,
        why: "a list of results or a cache grows like this as well.",
        advice: release(device.data()),
    })
}

/// Live blocks and their bytes, except parameters and optimizer state, which are meant to stay.
fn no_state<'a>(device: &'a DeviceView<'_>) -> Vec<(&'a Block, u64)> {
    let categories = device.categories();
    let is_state = |block: &Block| matches!(categories.get(block.seq), Category::Parameter | Category::OptimizerState);
    let live = device.live_weights().filter(|(block, _)| block.time_ns > 0 && !is_state(block));
    live.map(|(block, weight)| (block, weight.bytes)).collect()
}

/// Loops: scopes that one thread opened repeatedly in one context. Numbers in their names are ignored.
struct Loops {
    /// For each context, the number of its pattern. Scopes of one parent have the same pattern if their names differ
    /// only in numbers. `None` for modules.
    patterns: Vec<Option<usize>>,
    of: HashMap<(ThreadId, usize), LoopSteps>,
}

impl Loops {
    fn of(device: &DeviceView<'_>) -> Self {
        let mut names = Numbered::<(ContextId, String)>::default();
        let mut number = |node: &ContextNode| names.number((node.parent, name_pattern(&node.name)));
        let contexts = device.data().contexts.iter();
        let patterns: Vec<_> = contexts.map(|node| (!node.module).then(|| number(node))).collect();
        let mut times: HashMap<(ThreadId, usize), Vec<(u64, u64)>> = HashMap::new();
        let mut entered: HashMap<(ThreadId, ContextId), u64> = HashMap::new();
        for mark in &device.marks {
            let Some(&Some(pattern)) = patterns.get(mark.context.0 as usize) else { continue };
            match entered.remove(&(mark.thread, mark.context)) {
                Some(since) if !mark.enter => {
                    times.entry((mark.thread, pattern)).or_default().push((since, mark.time_ns));
                }
                _ if mark.enter => _ = entered.insert((mark.thread, mark.context), mark.time_ns),
                _ => {}
            }
        }
        let long = times.into_iter().filter(|(_, times)| times.len() >= STEPS);
        let of = long.map(|((thread, pattern), times)| {
            let of = format!("{} scopes `{}`", grouped(times.len() as u64), names.rows()[pattern].0.1);
            ((thread, pattern), LoopSteps { of, times })
        });
        Self { of: of.collect(), patterns }
    }
}

/// Live blocks by time. There may be as many loops as blocks, so the bytes that an iteration left must be found fast:
/// as the difference of two sums.
struct LiveByTime<'a> {
    /// In order of time.
    blocks: Vec<(&'a Block, u64)>,
    times: Vec<u64>,
    /// For each block, the bytes of all blocks before it. The last element has the bytes of all blocks.
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

    /// Bytes of the blocks between two times.
    fn between(&self, from_ns: u64, to_ns: u64) -> u64 {
        let first = self.times.partition_point(|time_ns| *time_ns < from_ns);
        let end = self.times.partition_point(|time_ns| *time_ns <= to_ns).max(first);
        self.sums.get(end).zip(self.sums.get(first)).map_or(0, |(end, first)| end - first)
    }

    /// The bytes that the iterations left, and how many iterations left any; `None` if fewer than about three quarters
    /// did. The first iteration is excluded, because it may set up what all need. The bytes also exclude the largest
    /// amount that one iteration left.
    fn left_by(&self, steps: &[(u64, u64)]) -> Option<(u64, usize)> {
        let left: Vec<u64> = parts(steps).map(|(from_ns, to_ns)| self.between(from_ns, to_ns)).collect();
        let steps = left.iter().filter(|bytes| **bytes > 0).count();
        let bytes = left.iter().sum::<u64>() - left.iter().max()?;
        let nearly_all = left.len() * 3 / 4;
        (steps >= nearly_all && steps > 0).then_some((bytes, steps))
    }

    /// The line that allocated most of what the iterations left.
    fn fullest_line(&self, data: &Attribution<'_>, steps: &[(u64, u64)]) -> Option<String> {
        let is_left = |block: &Block| step_at(steps, block).is_some_and(|at| at > 0);
        let left = self.blocks.iter().filter(|(block, _)| is_left(block)).map(|(block, bytes)| (block.stack, *bytes));
        bytes_by_line(data, left).into_iter().rev().max_by_key(|(_, bytes)| *bytes).map(|(line, _)| line)
    }
}

/// The iteration in which a block was allocated.
fn step_at(steps: &[(u64, u64)], block: &Block) -> Option<usize> {
    let at = steps.partition_point(|(from, _)| *from <= block.time_ns).checked_sub(1)?;
    steps.get(at).is_some_and(|(_, to)| block.time_ns <= *to).then_some(at)
}

/// All iterations but the first, each cut off where the next one begins.
fn parts(steps: &[(u64, u64)]) -> impl Iterator<Item = (u64, u64)> + '_ {
    let ends = steps.iter().skip(2).map(|(next, _)| next.saturating_sub(1)).chain([u64::MAX]);
    steps.iter().skip(1).zip(ends).map(|((from, to), end)| (*from, end.min(*to)))
}
