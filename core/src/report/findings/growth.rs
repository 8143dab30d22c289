//! What each step leaves behind.

use std::collections::HashMap;

use super::finding::{Cost, Finding, is_large, line_of, lines};
use crate::analysis::name_pattern;
use crate::attribute::has_backward_pass;
use crate::snapshot::{Block, ContextId, DeviceSnapshot, SnapshotData, ThreadId};
use crate::units::{Bytes, grouped};

/// Fewer steps tell nothing.
const STEPS: usize = 4;

const STEPS_LEAVE: [&str; 2] = [
    "Drop what a step made before the next one begins. `snapshot.since(&earlier)` says by line what grew",
    "between two steps.",
];
/// What training leaves is most often this.
const LOSSES: [&str; 3] = [
    "A loss that is kept keeps its step's graph: keep `loss.to_scalar()` or `loss.detach()` instead, and drop",
    "what a step made before the next one begins. `snapshot.since(&earlier)` says by line what grew between",
    "two steps.",
];

/// When the steps of one kind began and ended, in order.
type Steps = Vec<(u64, u64)>;

/// Nearly every step of a loop left something that is live at the end.
pub(super) fn growth(data: &SnapshotData, device: &DeviceSnapshot) -> Vec<Finding> {
    let loops = loops(data, device);
    let found = loops.into_iter().filter_map(|(name, steps)| Some((name, steps.len(), left_by(device, &steps)?)));
    let most = found
        .max_by(|a, b| (a.2.bytes, &a.0).cmp(&(b.2.bytes, &b.0)))
        .filter(|(.., left)| is_large(left.bytes, device));
    let finding = |(name, steps, left): (String, usize, Left<'_>)| Finding {
        kind: "growth",
        what: format!(
            "{} of {} scopes `{name}` left something that is still live, {} each",
            grouped(left.steps as u64),
            grouped(steps as u64),
            Bytes(left.bytes / left.steps.max(1) as u64)
        ),
        place: line_of(data, left.largest),
        cost: Cost::AtEnd(left.bytes),
        certainty: "Likely: a list of results or a cache grows like this, too.",
        advice: lines(if has_backward_pass(data) { &LOSSES } else { &STEPS_LEAVE }),
    };
    most.map(finding).into_iter().collect()
}

/// Scopes that one thread opened again and again in the same place: by their name, in which digits are `#`.
fn loops(data: &SnapshotData, device: &DeviceSnapshot) -> Vec<(String, Steps)> {
    let mut loops: HashMap<(ThreadId, ContextId, String), Steps> = HashMap::new();
    let mut entered: HashMap<(ThreadId, ContextId), u64> = HashMap::new();
    for mark in &device.marks {
        let Some(node) = data.contexts.get(mark.context.0 as usize).filter(|node| !node.module) else { continue };
        let scope = (mark.thread, mark.context);
        match entered.remove(&scope) {
            Some(since) if !mark.enter => {
                let key = (mark.thread, node.parent, name_pattern(&node.name));
                loops.entry(key).or_default().push((since, mark.time_ns));
            }
            _ if mark.enter => _ = entered.insert(scope, mark.time_ns),
            _ => {}
        }
    }
    let long = loops.into_iter().filter(|(_, steps)| steps.len() >= STEPS);
    long.map(|((_, _, name), steps)| (name, steps)).collect()
}

/// What steps left behind.
struct Left<'a> {
    /// How many did.
    steps: usize,
    bytes: u64,
    largest: &'a Block,
}

/// What these steps left, without the first one, which may make what all need, and without the one that left most.
fn left_by<'a>(device: &'a DeviceSnapshot, steps: &Steps) -> Option<Left<'a>> {
    let mut left = vec![0u64; steps.len()];
    let mut largest: Option<&Block> = None;
    for (block, weight) in device.live_weights().filter(|(block, _)| block.time_ns > 0) {
        let Some(at) = steps.partition_point(|(from, _)| *from <= block.time_ns).checked_sub(1) else { continue };
        if at == 0 || steps.get(at).is_none_or(|(_, to)| block.time_ns > *to) {
            continue;
        }
        *left.get_mut(at)? += weight.bytes;
        largest = largest.filter(|largest| largest.size >= block.size).or(Some(block));
    }
    let steps = left.iter().filter(|bytes| **bytes > 0).count();
    let bytes = left.iter().sum::<u64>() - left.iter().max()?;
    let nearly_all = (left.len() - 1) * 3 / 4;
    (steps >= nearly_all).then_some(Left { steps, bytes, largest: largest? })
}
