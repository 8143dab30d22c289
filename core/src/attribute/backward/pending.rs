//! Finds the call that used a view: the one whose step made the view's gradient.
//!
//! The log does not tell for which tensor a gradient was made. Two things are known:
//! * A view's step keeps nothing of the view's gradient. So the gradient is freed after the step's last allocation and
//!   before the first one of the next step. It is the first block of its size that is freed there. The parts of a sum
//!   are freed after it (a tensor drops its storage before its operands), and so are blocks of later nodes. If the step
//!   may have replaced a sum of the same size, all blocks of this size that are freed there must belong to one call.
//! * A gradient has the size of its tensor. If one call made all gradients of a size that wait for their nodes, only
//!   this call used a node of that size. Gradients of tensors that are not nodes wait forever, and leave more steps
//!   unknown.

use std::num::NonZeroU64;

use super::steps::{Step, Sum};
use crate::hashed::HashMap;
use crate::snapshot::{GraphNode, GraphNodeKind, LogPosition, NEVER};

/// A call, by the number of the block that it returned; `None` if it is not known.
pub(super) type Owner = Option<NonZeroU64>;

/// The gradients of one size that wait for their nodes.
#[derive(Debug, Default)]
struct Waiting {
    count: usize,
    owner: Owner,
    /// Whether they belong to several calls, or to unknown ones.
    is_mixed: bool,
}

impl Waiting {
    fn made_by(&mut self, owner: Owner) {
        self.is_mixed = owner.is_none() || self.count > 0 && (self.is_mixed || self.owner != owner);
        self.owner = owner;
    }
}

/// Waiting gradients by size.
#[derive(Debug, Default)]
pub(super) struct PendingGradients(HashMap<u64, Waiting>);

impl PendingGradients {
    /// The call that each step belongs to. `pins` are the positions of the steps' nodes.
    pub(super) fn owners(nodes: &[GraphNode], steps: &[Step<'_>], pins: &[Option<usize>]) -> Vec<Owner> {
        let (mut pending, freed, mut rest) = (Self::default(), FreedSums::of(steps), nodes.iter());
        let mut owners: Vec<Owner> = Vec::with_capacity(steps.len());
        for (at, (step, pin)) in steps.iter().zip(pins).enumerate() {
            let owner = pin.and_then(|place| {
                let passed = (place + 1).saturating_sub(nodes.len() - rest.len());
                let (node, waited) = rest.by_ref().take(passed).map(|node| (node, pending.take(node.bytes))).last()?;
                match node.kind {
                    GraphNodeKind::View => freed.during(steps, at, node.bytes, &owners).or(waited),
                    _ => node.block,
                }
            });
            pending.add(step, owner);
            owners.push(owner);
        }
        owners
    }

    /// Adds the gradients that a step makes. A sum that does not begin with new zeros adds to a gradient of its size;
    /// to which one is unknown.
    fn add(&mut self, step: &Step<'_>, owner: Owner) {
        for size in &step.zeros {
            let waiting = self.0.entry(*size).or_default();
            waiting.made_by(owner);
            waiting.count += 1;
        }
        for size in step.later_sums() {
            self.0.entry(size).or_default().made_by(owner);
        }
    }

    /// Removes the gradient that a node uses. Returns the call that made it, if that is certain.
    fn take(&mut self, bytes: u64) -> Owner {
        let waiting = self.0.get_mut(&bytes).filter(|waiting| waiting.count > 0)?;
        waiting.count -= 1;
        let owner = waiting.owner.filter(|_| !waiting.is_mixed);
        if waiting.count == 0 {
            *waiting = Waiting::default();
        }
        owner
    }
}

/// A sum that was freed.
#[derive(Clone, Copy)]
struct FreedSum {
    freed: LogPosition,
    size: u64,
    step: usize,
    /// Whether it may have been added to a gradient that another step began.
    is_later: bool,
}

/// All sums of a pass, in the order of their frees.
struct FreedSums(Vec<FreedSum>);

impl FreedSums {
    fn of(steps: &[Step<'_>]) -> Self {
        let mut sums = Vec::new();
        for (step, of_step) in steps.iter().enumerate() {
            let later = of_step.later_sums();
            let freed = |&Sum { size, freed }: &Sum| FreedSum { freed, size, step, is_later: later.contains(&size) };
            sums.extend(of_step.sums.iter().filter(|sum| sum.freed != NEVER).map(freed));
        }
        sums.sort_unstable_by_key(|sum| sum.freed);
        Self(sums)
    }

    /// The call whose gradient was freed at the end of a step, if there is only one.
    fn during(&self, steps: &[Step<'_>], at: usize, size: u64, owners: &[Owner]) -> Owner {
        let step = steps.get(at)?;
        let before = steps.get(at + 1).map_or(NEVER, |next| next.from);
        let from = self.0.partition_point(|sum| sum.freed <= step.to);
        let within = self.0.get(from..)?.iter().take_while(|sum| sum.freed < before);
        let mut makers = within.filter(|sum| sum.size == size && sum.step < at).map(|sum| {
            let owner = owners.get(sum.step).copied().flatten();
            owner.filter(|_| !sum.is_later)
        });
        let first = makers.next()?;
        // The parts of the gradient are freed after the gradient. But a sum that the step itself replaces is freed
        // before it.
        let is_first = !step.later_sums().contains(&size);
        first.filter(|_| is_first || makers.all(|other| other == first))
    }
}
