//! Identifies gradients by counting. No stack distinguishes a gradient from other results of a backward pass, so the
//! number of results of each size is compared with the number of variables of that size.
//!
//! A backward pass leaves one gradient for each variable that the loss depends on, of the variable's size. It also
//! leaves gradients of operands that are not variables. If it leaves as many blocks of a size as there are variables of
//! that size, all of them are gradients of variables. If the loss does not depend on all variables, this is true only
//! for sizes that no other operand has.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

use super::hint::Hint;
use super::lifetimes::HintedLifetime;
use super::passes::{Pass, Passes, pass_at, passes_around};
use crate::hashed::{HashMap, HashSet, by_key};
use crate::snapshot::{Category, LogPosition, StackId, ThreadId};

#[derive(Debug, Default)]
pub(super) struct GradientCounts {
    pub(super) gradients: HashSet<NonZeroU64>,
    /// Results of a pass with a size that no variable has.
    pub(super) details: HashSet<NonZeroU64>,
    pub(super) parameters: HashSet<NonZeroU64>,
}

/// Counts the results of all passes. `are_all_known` says that nothing was allocated before the recording, and that no
/// record was lost.
pub(super) fn count(lives: &[HintedLifetime], backward: &Passes, are_all_known: bool) -> GradientCounts {
    // Keyed by the position where each pass begins.
    let mut passes: BTreeMap<LogPosition, Vec<&HintedLifetime>> = BTreeMap::new();
    for life in lives.iter().filter(|life| life.hint == Hint::Backward) {
        if let Some(pass) = pass_at(backward, life).filter(|pass| outlives(life, pass) && !pass.has_gradients) {
            passes.entry(pass.from).or_default().push(life);
        }
    }
    let begins: Vec<LogPosition> = passes.keys().copied().collect();
    let (mut counted, mut live) = (GradientCounts::default(), Live::of(lives, &begins));
    for (from, left) in passes {
        live.go_to(from);
        let (left, on_the_way): (Vec<&HintedLifetime>, Vec<&HintedLifetime>) =
            left.into_iter().partition(|life| life.of_stack.is_gradient);
        // If gradients retain their graph, gradients of intermediate results are also left.
        counted.pass(&sizes(left.into_iter()), &live, !on_the_way.is_empty(), are_all_known);
    }
    counted
}

/// Sweeps over the log and counts the live blocks by size, at increasing positions. Many passes leave only one block,
/// so a pass must not look at all live blocks.
pub(super) struct Live<'a> {
    /// Blocks that the sweep has not reached, in the order of the log.
    coming: std::iter::Peekable<std::vec::IntoIter<&'a HintedLifetime>>,
    /// Live blocks by the end of their lifetime.
    going: BTreeMap<(LogPosition, NonZeroU64), &'a HintedLifetime>,
    sizes: HashMap<u64, LiveOfSize>,
    /// Number of sizes with variables, and with variables that certainly belong to a model.
    with_variables: usize,
    with_sure: usize,
}

#[derive(Default)]
struct LiveOfSize {
    /// Variables that certainly belong to a model, and variables that may belong to an optimizer.
    sure: BTreeSet<NonZeroU64>,
    others: BTreeSet<NonZeroU64>,
    /// Operands that are not variables but also have gradients, and all other blocks.
    operands: usize,
    rest: usize,
}

impl LiveOfSize {
    fn variables(&self) -> usize {
        self.sure.len() + self.others.len()
    }
}

impl<'a> Live<'a> {
    /// Prepares a sweep over the blocks that are live at any of these sorted positions.
    pub(super) fn of(lives: &'a [HintedLifetime], positions: &[LogPosition]) -> Self {
        let mut next = 0;
        let is_live = |life: &&HintedLifetime| {
            // Lifetimes nearly always begin in order, so the next position is usually still right.
            let is_next = positions.get(next).is_none_or(|position| life.from <= *position)
                && next.checked_sub(1).is_none_or(|before| positions[before] < life.from);
            if !is_next {
                next = positions.partition_point(|position| *position < life.from);
            }
            life.hint != Hint::Backward && positions.get(next).is_some_and(|position| life.to > *position)
        };
        let mut coming: Vec<&HintedLifetime> = lives.iter().filter(is_live).collect();
        coming.sort_unstable_by_key(|life| life.from);
        let coming = coming.into_iter().peekable();
        Self { coming, going: BTreeMap::new(), sizes: HashMap::default(), with_variables: 0, with_sure: 0 }
    }

    /// Counts the blocks that are live at a position and at the next one. Positions must not decrease from call to
    /// call.
    pub(super) fn go_to(&mut self, position: LogPosition) {
        while let Some(life) = self.coming.next_if(|life| life.from <= position) {
            if life.to >= position + 2 {
                self.going.insert((life.to, life.seq), life);
                self.change(life, true);
            }
        }
        while let Some(first) = self.going.first_entry().filter(|first| first.key().0 < position + 2) {
            let life = first.remove();
            self.change(life, false);
        }
    }

    /// Number of live blocks of this size.
    pub(super) fn of_size(&self, size: u64) -> usize {
        self.sizes.get(&size).map_or(0, |of_size| of_size.variables() + of_size.operands + of_size.rest)
    }

    fn change(&mut self, life: &HintedLifetime, comes: bool) {
        let of_size = self.sizes.entry(life.size).or_default();
        let before = (of_size.variables() > 0, !of_size.sure.is_empty());
        if is_variable(life) {
            let variables = if life.hint == Hint::Variable { &mut of_size.others } else { &mut of_size.sure };
            if comes {
                variables.insert(life.seq)
            } else {
                variables.remove(&life.seq)
            };
        } else {
            let count = if may_be_operand(life) { &mut of_size.operands } else { &mut of_size.rest };
            *count = if comes { *count + 1 } else { count.saturating_sub(1) };
        }
        let now = (of_size.variables() > 0, !of_size.sure.is_empty());
        let count = |all: &mut usize, before: bool, now: bool| *all = *all + usize::from(now) - usize::from(before);
        count(&mut self.with_variables, before.0, now.0);
        count(&mut self.with_sure, before.1, now.1);
    }
}

/// Results of a pass that are still live after a later pass of the thread, if no other pass leaves such a block at
/// their site. Programs that sum gradients over several batches have such a block in each round. If an optimizer keeps
/// the first gradient as its momentum, there is only that one.
pub(super) fn kept_once(lives: &[HintedLifetime], backward: &Passes) -> HashSet<NonZeroU64> {
    let mut kept: HashMap<(ThreadId, StackId), (Vec<NonZeroU64>, BTreeSet<LogPosition>)> = HashMap::default();
    for life in lives.iter().filter(|life| life.hint == Hint::Backward && life.from > 0) {
        if let ([.., pass], [later, ..]) = passes_around(backward, life.thread, life.from)
            && later.to < life.to
        {
            let (seqs, of) = kept.entry((life.thread, life.stack)).or_default();
            seqs.push(life.seq);
            of.insert(pass.from);
        }
    }
    kept.into_values().filter(|(_, of)| of.len() == 1).flat_map(|(seqs, _)| seqs).collect()
}

type Sizes<'a> = HashMap<u64, Vec<&'a HintedLifetime>>;

/// Whether the block may be an operand whose gradient outlives the pass: data, or weights that are not trained.
/// Gradients of intermediate results are freed within the pass, unless gradients retain their graph.
fn may_be_operand(life: &HintedLifetime) -> bool {
    matches!(life.hint, Hint::Input | Hint::Constant | Hint::Nothing | Hint::Rule(Category::Parameter))
}

/// Whether the block was still live when its thread began other work after the pass.
pub(super) fn outlives(life: &HintedLifetime, pass: &Pass) -> bool {
    pass.next.is_some_and(|next| life.to > next)
}

/// Whether the block is a variable that may belong to a model: any variable, unless it is certainly an optimizer's.
pub(super) fn is_variable(life: &HintedLifetime) -> bool {
    life.of_stack.is_variable && matches!(life.hint, Hint::Variable | Hint::Rule(Category::Parameter))
}

pub(super) fn sizes<'a>(lives: impl Iterator<Item = &'a HintedLifetime>) -> Sizes<'a> {
    by_key(lives.map(|life| (life.size, life)))
}

impl GradientCounts {
    /// Counts one pass. `left` are its results that may be gradients.
    fn pass(&mut self, left: &Sizes<'_>, live: &Live<'_>, has_graph: bool, are_all_known: bool) {
        let none = LiveOfSize::default();
        let of_size = |size: &u64| live.sizes.get(size).unwrap_or(&none);
        let sizes = |holds: &dyn Fn(usize, &LiveOfSize) -> bool| {
            left.iter().filter(|(size, left)| holds(left.len(), of_size(size))).count()
        };
        // An optimizer's variables have no gradients. So if every variable has one, all variables are parameters.
        let even = sizes(&|left, of_size| of_size.variables() > 0 && left == of_size.variables());
        let reached = sizes(&|left, of_size| !of_size.sure.is_empty() && left >= of_size.sure.len());
        let (all_are_even, all_are_reached) = (even == live.with_variables, reached == live.with_sure);
        for (size, left) in left {
            let seqs = left.iter().map(|life| life.seq);
            let of_size = of_size(size);
            let has_others = of_size.operands > 0 || has_graph && of_size.rest > 0;
            let is_clear = all_are_reached || !has_others;
            if of_size.variables() == 0 {
                let is_detail = are_all_known && live.with_variables > 0;
                self.details.extend(seqs.filter(|_| is_detail));
            } else if all_are_even || is_clear && left.len() == of_size.sure.len() {
                self.gradients.extend(seqs);
                self.parameters.extend(&of_size.sure);
                self.parameters.extend(of_size.others.iter().filter(|_| all_are_even));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::lifetimes::hinted;
    use super::super::passes::{exits, passes};
    use super::*;
    use crate::attribute::Attribution;
    use crate::snapshot::Lifetimes;
    use crate::snapshot::testing::{Story, frame, registry, stacks};
    use crate::snapshot::{SnapshotData, StackId};

    /// Stack 1 is a variable of a model, 2 a variable of unknown use. 3 and 4 are results of a backward pass; those of
    /// 3 may be gradients. 5 is data, 6 a forward pass, 7 unknown.
    fn story(ops: &[(u32, u64, usize)]) -> SnapshotData {
        let [core, nn] = ["candle-core-0.11.1/src", "candle-nn-0.11.1/src"];
        let frames = vec![
            frame("candle_nn::var_map::VarMap::get", &registry(&format!("{nn}/var_map.rs")), 1),
            frame("candle_core::variable::Var::from_tensor", &registry(&format!("{core}/variable.rs")), 2),
            frame("candle_core::tensor::Tensor::add", &registry(&format!("{core}/tensor.rs")), 3),
            frame("candle_core::tensor::Tensor::matmul", &registry(&format!("{core}/tensor.rs")), 4),
            frame("candle_core::backprop::Tensor::backward", &registry(&format!("{core}/backprop.rs")), 5),
            frame("candle_core::tensor::Tensor::from_vec", &registry(&format!("{core}/tensor.rs")), 6),
            frame("net::main", "/home/u/net/src/main.rs", 9),
            frame("candle_core::device::Device::rand_normal", &registry(&format!("{core}/device.rs")), 7),
        ];
        let of_frames = [&[7, 0, 6][..], &[1, 6], &[2, 4, 6], &[3, 4, 6], &[5, 6], &[3, 6], &[6]];
        let (mut story, mut live) = (Story::cpu(), Vec::new());
        story.stacks(stacks(frames, of_frames));
        for (time_ns, &(stack, size, nth)) in (1u64..).zip(ops) {
            story.at(time_ns);
            if stack < 8 {
                story.alloc(time_ns, 100 * size).on(StackId(stack));
                live.push(time_ns);
            } else if nth < live.len() {
                story.free(live.remove(nth));
            }
        }
        story.build()
    }

    /// The same as described at the top: looks at all blocks for each pass.
    fn by_definition(lives: &[HintedLifetime], backward: &Passes, are_all_known: bool) -> [BTreeSet<NonZeroU64>; 3] {
        let mut found: [BTreeSet<NonZeroU64>; 3] = Default::default();
        for pass in backward.values().flatten().filter(|pass| !pass.has_gradients) {
            let is_of_pass = |life: &&HintedLifetime| {
                life.hint == Hint::Backward && pass_at(backward, life).is_some_and(|of| of.from == pass.from)
            };
            let all_left: Vec<&HintedLifetime> =
                lives.iter().filter(is_of_pass).filter(|life| outlives(life, pass)).collect();
            if all_left.is_empty() {
                continue;
            }
            let has_graph = all_left.iter().any(|life| !life.of_stack.is_gradient);
            let left = sizes(all_left.into_iter().filter(|life| life.of_stack.is_gradient));
            let is_live = |life: &&HintedLifetime| life.from <= pass.from && life.to >= pass.from + 2;
            let live: Vec<&HintedLifetime> =
                lives.iter().filter(|life| life.hint != Hint::Backward).filter(is_live).collect();
            let variables = sizes(live.iter().copied().filter(|life| is_variable(life)));
            let sure = |size: &u64| variables[size].iter().filter(|life| life.hint != Hint::Variable).count();
            let number = |size: &u64| left.get(size).map_or(0, Vec::len);
            let is_even = variables.iter().all(|(size, variables)| number(size) == variables.len());
            let is_reached = variables.keys().all(|size| number(size) >= sure(size));
            let is_other = |life: &&HintedLifetime| !is_variable(life) && (has_graph || may_be_operand(life));
            for (size, left) in &left {
                let has_others = live.iter().copied().filter(is_other).any(|life| life.size == *size);
                let seqs = left.iter().map(|life| life.seq);
                match variables.get(size) {
                    None if are_all_known && !variables.is_empty() => found[1].extend(seqs),
                    None => {}
                    Some(of_size) if is_even || (is_reached || !has_others) && left.len() == sure(size) => {
                        found[0].extend(seqs);
                        let kept = of_size.iter().filter(|life| is_even || life.hint != Hint::Variable);
                        found[2].extend(kept.map(|life| life.seq));
                    }
                    Some(_) => {}
                }
            }
        }
        found
    }

    proptest! {
        #![proptest_config(crate::random::programs(2000))]

        #[test]
        fn counting_by_size_equals_a_look_at_all_blocks(
            ops in prop::collection::vec((1..11u32, 1..4u64, 0..6usize), 0..60),
            are_all_known in any::<bool>(),
        ) {
            let data = story(&ops);
            let lives = hinted(&Attribution::new(&data), &Lifetimes::of(&data.devices[0]));
            let backward = passes(&data.devices[0], &lives, Hint::Backward, &exits(&data.devices[0]));
            let GradientCounts { gradients, details, parameters } = count(&lives, &backward, are_all_known);
            let found = [gradients, details, parameters].map(|seqs| seqs.into_iter().collect::<BTreeSet<_>>());
            prop_assert_eq!(found, by_definition(&lives, &backward, are_all_known));
        }
    }
}
