//! Finding: memory growth, where each step of a loop leaves live blocks behind.

use std::collections::HashMap;

use super::finding::{Confidence, Cost, Finding, is_large, line_of, lines};
use crate::analysis::name_pattern;
use crate::attribute::{Categories, has_backward_pass};
use crate::snapshot::{Block, Category, ContextId, DeviceSnapshot, SnapshotData, ThreadId};
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
    let live = no_state(data, device);
    let steps = loops(data, device).into_iter().chain(requests(data, device));
    let found = steps.filter_map(|steps| Some((left_by(&live, &steps.times)?, steps.of)));
    let most = found
        .max_by(|(a, of_a), (b, of_b)| (a.bytes, of_a).cmp(&(b.bytes, of_b)))
        .filter(|(left, _)| is_large(left.bytes, device));
    let finding = |(left, of): (Left<'_>, String)| Finding {
        kind: "growth",
        what: format!(
            "{} of {of} left blocks that are still live, {} each",
            grouped(left.steps as u64),
            Bytes(left.bytes / left.steps.max(1) as u64)
        ),
        line: Some(line_of(data, left.largest)),
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
fn loops(data: &SnapshotData, device: &DeviceSnapshot) -> Vec<LoopSteps> {
    let mut loops: HashMap<(ThreadId, ContextId, String), Vec<(u64, u64)>> = HashMap::new();
    let mut entered: HashMap<(ThreadId, ContextId), u64> = HashMap::new();
    for mark in &device.marks {
        let Some((parent, name)) = scope(data, mark.context) else { continue };
        match entered.remove(&(mark.thread, mark.context)) {
            Some(since) if !mark.enter => {
                loops.entry((mark.thread, parent, name)).or_default().push((since, mark.time_ns));
            }
            _ if mark.enter => _ = entered.insert((mark.thread, mark.context), mark.time_ns),
            _ => {}
        }
    }
    let long = loops.into_iter().filter(|(_, times)| times.len() >= STEPS);
    long.map(|((.., name), times)| LoopSteps { of: format!("{} scopes `{name}`", grouped(times.len() as u64)), times })
        .collect()
}

/// Scopes opened at least `2 * PARTS` times, by any threads. The time since the first is divided so that each part opens an
/// equal number of them.
fn requests(data: &SnapshotData, device: &DeviceSnapshot) -> Vec<LoopSteps> {
    let mut opened: HashMap<(ContextId, String), Vec<u64>> = HashMap::new();
    for mark in device.marks.iter().filter(|mark| mark.enter) {
        if let Some(of) = scope(data, mark.context) {
            opened.entry(of).or_default().push(mark.time_ns);
        }
    }
    let often = opened.into_iter().filter(|(_, opened)| opened.len() >= 2 * PARTS);
    let parts = |((_, name), opened): ((ContextId, String), Vec<u64>)| {
        let begins: Vec<u64> = (0..PARTS).filter_map(|part| opened.get(part * opened.len() / PARTS).copied()).collect();
        let ends = begins.iter().skip(1).map(|next| next.saturating_sub(1)).chain([u64::MAX]);
        let times = begins.iter().copied().zip(ends).collect();
        LoopSteps { of: format!("{PARTS} parts of the time in which `{name}` was opened"), times }
    };
    often.map(parts).collect()
}

/// The parent of a scope and its name without numbers; `None` for a module.
fn scope(data: &SnapshotData, context: ContextId) -> Option<(ContextId, String)> {
    let node = data.contexts.get(context.0 as usize).filter(|node| !node.module)?;
    Some((node.parent, name_pattern(&node.name)))
}

struct Left<'a> {
    steps: usize,
    bytes: u64,
    largest: &'a Block,
}

/// What the steps left. The first step does not count, because it may set up what all need, nor does the largest amount.
fn left_by<'a>(live: &[(&'a Block, u64)], steps: &[(u64, u64)]) -> Option<Left<'a>> {
    let mut left = vec![0u64; steps.len()];
    let mut largest: Option<&Block> = None;
    for &(block, bytes) in live {
        let Some(at) = steps.partition_point(|(from, _)| *from <= block.time_ns).checked_sub(1) else { continue };
        if at == 0 || steps.get(at).is_none_or(|(_, to)| block.time_ns > *to) {
            continue;
        }
        *left.get_mut(at)? += bytes;
        largest = largest.filter(|largest| largest.size >= block.size).or(Some(block));
    }
    let steps = left.iter().filter(|bytes| **bytes > 0).count();
    let bytes = left.iter().sum::<u64>() - left.iter().max()?;
    let nearly_all = (left.len() - 1) * 3 / 4;
    (steps >= nearly_all).then_some(Left { steps, bytes, largest: largest? })
}
