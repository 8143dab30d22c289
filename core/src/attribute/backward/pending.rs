//! Whose steps made the gradients that are not used yet, to find the call that used a view.
//!
//! The log does not say for which tensor a gradient was begun, but its size is that of the tensor. While all gradients of a size
//! that wait were made by steps of one call, a node of that size was used by that call alone. Gradients of tensors that are no
//! nodes wait for ever, and then more is unknown.

use std::num::NonZeroU64;

use super::super::hashed::HashMap;
use super::steps::Step;
use crate::snapshot::{GraphNode, GraphNodeKind};

/// A call, by the number of the block that it returned; `None` if it is not known.
type Owner = Option<NonZeroU64>;

/// The gradients of a size that wait for their nodes.
#[derive(Debug, Default)]
struct Waiting {
    count: usize,
    owner: Owner,
    /// Of more than one call, or of unknown ones.
    is_mixed: bool,
}

impl Waiting {
    fn made_by(&mut self, owner: Owner) {
        self.is_mixed = owner.is_none() || self.count > 0 && (self.is_mixed || self.owner != owner);
        self.owner = owner;
    }
}

/// By size.
#[derive(Debug, Default)]
pub(super) struct PendingGradients(HashMap<u64, Waiting>);

impl PendingGradients {
    /// The call that each step belongs to, given the places of their nodes.
    pub(super) fn owners(nodes: &[GraphNode], steps: &[Step<'_>], pins: &[Option<usize>]) -> Vec<Owner> {
        let (mut pending, mut rest) = (Self::default(), nodes.iter());
        let mut owner = |(step, pin): (&Step<'_>, &Option<usize>)| {
            let owner = pin.and_then(|at| {
                let passed = (at + 1).saturating_sub(nodes.len() - rest.len());
                let (node, used_by) = rest.by_ref().take(passed).map(|node| (node, pending.take(node.bytes))).last()?;
                if node.kind == GraphNodeKind::View { used_by } else { node.block }
            });
            pending.add(step, owner);
            owner
        };
        steps.iter().zip(pins).map(&mut owner).collect()
    }

    /// What a step makes. A sum without new zeros adds to a gradient of that size, and which one is not known.
    fn add(&mut self, step: &Step<'_>, owner: Owner) {
        for size in &step.zeros {
            let waiting = self.0.entry(*size).or_default();
            waiting.made_by(owner);
            waiting.count += 1;
        }
        let mut begun: HashMap<u64, usize> = HashMap::default();
        step.zeros.iter().for_each(|size| *begun.entry(*size).or_default() += 1);
        for size in &step.sums {
            match begun.get_mut(size).filter(|begun| **begun > 0) {
                Some(begun) => *begun -= 1,
                None => self.0.entry(*size).or_default().made_by(owner),
            }
        }
    }

    /// A node's gradient is used: the call that made it, if it is certain.
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
