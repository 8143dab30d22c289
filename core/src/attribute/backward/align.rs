//! Finds the node of each step. Steps and nodes are both in the order of the pass. A node whose step allocates nothing
//! that is recorded has no step. One walk assigns to each step the first node that fits; another walk, from the end,
//! assigns the last one. The node of a step cannot lie outside these two nodes. So if both walks assign the same node,
//! it is certain.

use super::steps::Step;
use super::{Pass, kinds};
use crate::snapshot::{GraphNode, GraphNodeKind};

/// For each step, the position of its node if that is certain. `None` if the steps contradict the nodes.
pub(super) fn pins(pass: &Pass<'_>, steps: &[Step<'_>]) -> Option<Vec<Option<usize>>> {
    let arms: Vec<Option<&str>> = pass.nodes.iter().map(|node| pass.arm(node)).collect();
    let fits = |step: &Step<'_>, at: usize| {
        let (node, arm) = (pass.nodes.get(at), arms.get(at).copied().flatten());
        node.is_some_and(|node| fits(step, node, arm))
    };
    let first = walk(steps.iter(), 0..pass.nodes.len(), fits)?;
    let mut last = walk(steps.iter().rev(), (0..pass.nodes.len()).rev(), fits)?;
    last.reverse();
    let pins: Vec<Option<usize>> =
        first.into_iter().zip(last).map(|(first, last)| (first == last).then_some(first)).collect();
    is_possible(pass, &arms, &pins).then_some(pins)
}

fn walk<'s, 'a: 's>(
    steps: impl Iterator<Item = &'s Step<'a>>,
    mut places: impl Iterator<Item = usize>,
    fits: impl Fn(&Step<'_>, usize) -> bool,
) -> Option<Vec<usize>> {
    steps.map(|step| places.find(|at| fits(step, *at))).collect()
}

fn fits(step: &Step<'_>, node: &GraphNode, arm: Option<&str>) -> bool {
    let has_size =
        !kinds::keeps_size(step.arm, node.kind) || step.sums.last().is_some_and(|sum| sum.size == node.bytes);
    kinds::fits(step.arm, node.kind, arm) && has_size
}

/// Whether there are enough steps: between two certain steps, at least one for each node that certainly has a step.
fn is_possible(pass: &Pass<'_>, arms: &[Option<&str>], pins: &[Option<usize>]) -> bool {
    let has_step = |(node, arm): (&GraphNode, &Option<&str>)| {
        let keeps_size = arm.is_some_and(|arm| kinds::keeps_size(arm, node.kind));
        node.kind == GraphNodeKind::Result && keeps_size && pass.is_recorded(node.bytes)
    };
    let (mut from, mut unknown) = (0, 0);
    for pin in pins.iter().copied().chain([Some(pass.nodes.len())]) {
        let Some(to) = pin else {
            unknown += 1;
            continue;
        };
        let between = pass.nodes.get(from..to).unwrap_or_default().iter().zip(arms.get(from..to).unwrap_or_default());
        if between.filter(|node| has_step(*node)).count() > unknown {
            return false;
        }
        (from, unknown) = (to + 1, 0);
    }
    true
}
