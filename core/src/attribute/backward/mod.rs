//! Finds the call of the forward pass to which the blocks of a backward pass belong (operation correlation; PyTorch's
//! profiler uses the sequence number of a backward function).
//!
//! candle's pass goes through the nodes of the graph in a fixed order and handles each node in one arm of a `match`.
//! What the pass does for one node is a *step*. The log shows the arms that the pass reached, as [`steps`]. Two sources
//! tell which step belongs to which node:
//! * the order of the nodes ([`GraphNode`]), which the program hands over; [`align`] compares the steps with it;
//! * recorded uses: the operands of each block lead from gradient to gradient ([`flow`]).
//!
//! # Rules
//! * A block belongs to the node whose step allocates it. That includes results on the way to the gradients, the sums
//!   of the gradients of its operands, and the zeros that a sum begins with. So a sum over several uses of a tensor
//!   belongs, block by block, to the use that was added.
//! * A node that is the result of an operator call stands for that call. The block of the node's value leads to the
//!   call.
//! * A view is not the result of a call in the log. Its step belongs to the call that used the view. If several calls
//!   used it, the step is unknown.
//! * A variable has no step. Its gradient belongs to the calls that used it, even if it is shared.
//! * Blocks that other threads allocate for a step are unknown, and so is the gradient of the loss itself.
//! * An optimizer's `backward_step` starts the pass itself, and no order is handed over for it. The blocks of the
//!   update do not belong to the pass.
//!
//! Nothing is guessed: if more than one node fits a step, the step is unknown.

mod align;
mod flow;
mod kinds;
mod operands;
mod pending;
mod sites;
mod steps;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use super::operator::has_backward_pass;
use super::{Attribution, operator};
use crate::hashed::{HashMap, by_key};
use crate::snapshot::{DeviceSnapshot, GraphNode, GraphNodeKind, Lifetime, Lifetimes, ThreadId, words};
use flow::Flow;
use operands::Operands;
use pending::PendingGradients;
use sites::{Sites, site};
use steps::{Step, steps};

words! {
    /// How a pairing was found.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum PairedBy {
        /// By the order of nodes that the program handed over.
        Order = "order",
        /// By the blocks that the launches of both passes used.
        Uses = "uses",
    }
}

/// The forward call of a block of a backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pairing {
    /// The number of the block that the call returned.
    pub forward: NonZeroU64,
    /// How it was found.
    pub by: PairedBy,
    /// Whether the block may be a sum that adds to a gradient which another call began.
    pub is_added: bool,
}

/// The forward calls of the blocks that backward passes allocated on a device. Only pairings that are certain are
/// included.
#[derive(Debug, Default)]
pub struct Pairings(HashMap<NonZeroU64, Pairing>);

impl Pairings {
    /// Finds the pairings of a device.
    pub fn of(data: &Attribution<'_>, device: &DeviceSnapshot, lifetimes: &Lifetimes) -> Self {
        let mut found = Self::default();
        // In a sample, too few blocks of each step are known.
        if device.sampling.is_on() || !has_backward_pass(data) {
            return found;
        }
        let mut sites = Sites::of(move |stack| site(data, stack));
        if !device.graph_nodes.is_empty() {
            found.add_ordered(data, device, lifetimes, &mut sites);
        }
        if !device.uses.is_empty() {
            found.add_used(data, device, lifetimes, &mut sites);
        }
        found
    }

    fn add_ordered<'a>(
        &mut self,
        data: &'a Attribution<'a>,
        device: &DeviceSnapshot,
        lifetimes: &Lifetimes,
        sites: &mut Sites<'a>,
    ) {
        let orders = Orders::of(device);
        for (begin, lives) in orders.blocks(device, lifetimes, sites) {
            if let Some(order) = orders.0.get(&begin) {
                let (pass, steps) = (Pass { data, lifetimes, nodes: &order.nodes }, steps(&lives, sites));
                let Some(pins) = align::pins(&pass, &steps) else { continue };
                let owners = PendingGradients::owners(pass.nodes, &steps, &pins);
                steps.iter().zip(owners).for_each(|(step, owner)| self.add(step, owner, PairedBy::Order, lifetimes));
            }
        }
    }

    fn add_used<'a>(
        &mut self,
        data: &'a Attribution<'a>,
        device: &'a DeviceSnapshot,
        lifetimes: &'a Lifetimes,
        sites: &mut Sites<'a>,
    ) {
        let mut flow = Flow::of(Operands::of(data, device, lifetimes));
        let mut all: Vec<Step<'_>> = Vec::new();
        let of_steps = lifetimes.iter().filter(|life| life.from > 0 && sites.get(life.block.stack).is_some());
        let by_thread = by_key(of_steps.map(|life| (life.block.thread, life)));
        by_thread.values().for_each(|lives| all.extend(steps(lives, sites)));
        all.sort_by_key(|step| step.from);
        for step in &all {
            let owner = flow.owner(step, sites);
            self.add(step, owner, PairedBy::Uses, lifetimes);
        }
    }

    /// The pairing of the block with this number.
    pub fn get(&self, block: Option<NonZeroU64>) -> Option<&Pairing> {
        self.0.get(&block?)
    }

    /// Whether there are no pairings.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a step's blocks, except those that are already paired.
    fn add(&mut self, step: &Step<'_>, owner: Option<NonZeroU64>, by: PairedBy, lifetimes: &Lifetimes) {
        let Some(forward) = owner else { return };
        let later = step.later_sums();
        for block in &step.blocks {
            let is_added = lifetimes.get(*block).is_some_and(|life| later.contains(&life.block.size));
            self.0.entry(*block).or_insert(Pairing { forward, by, is_added });
        }
    }
}

/// A backward pass whose order is known.
struct Pass<'a> {
    data: &'a Attribution<'a>,
    lifetimes: &'a Lifetimes,
    /// All nodes, including variables.
    nodes: &'a [GraphNode],
}

impl<'a> Pass<'a> {
    /// The arm that handles a node, if the stack of its value tells it.
    fn arm(&self, node: &GraphNode) -> Option<&'static str> {
        let life = self.lifetimes.get(node.block?)?;
        operator(self.data, life.block.stack).and_then(|operator| kinds::arm_of(operator.leaf))
    }

    fn is_recorded(&self, bytes: u64) -> bool {
        bytes >= self.data.settings.min_size
    }
}

/// An order of nodes that the program handed over. It is valid until the end of its backward pass.
struct Order {
    nodes: Vec<GraphNode>,
    end_ns: u64,
}

/// Orders by thread and begin time.
struct Orders(BTreeMap<(ThreadId, u64), Order>);

impl Orders {
    /// Leaves out orders whose beginning has been overwritten.
    fn of(device: &DeviceSnapshot) -> Self {
        let mut orders = BTreeMap::new();
        let mut open: HashMap<ThreadId, (ThreadId, u64)> = HashMap::default();
        for node in &device.graph_nodes {
            let begin = (node.thread, node.time_ns);
            if node.kind == GraphNodeKind::End {
                let order = open.remove(&node.thread).and_then(|begin| orders.get_mut(&begin));
                order.into_iter().for_each(|order: &mut Order| order.end_ns = node.time_ns);
                continue;
            }
            if node.place == 0 {
                orders.insert(begin, Order { nodes: Vec::new(), end_ns: u64::MAX });
                open.insert(node.thread, begin);
            }
            if let Some(order) = orders.get_mut(&begin).filter(|order| order.nodes.len() == node.place as usize) {
                order.nodes.push(*node);
            }
        }
        orders.retain(|(_, begin), order| is_whole(device, *begin, order.end_ns));
        Self(orders)
    }

    /// Blocks that each pass allocated on its thread, in order.
    fn blocks<'l>(
        &self,
        device: &DeviceSnapshot,
        lifetimes: &'l Lifetimes,
        sites: &mut Sites<'_>,
    ) -> BTreeMap<(ThreadId, u64), Vec<&'l Lifetime>> {
        let mut found: BTreeMap<_, Vec<&Lifetime>> = BTreeMap::new();
        for life in lifetimes {
            let Some(time_ns) = life.alloc(device).map(|alloc| alloc.time_ns) else { continue };
            let Some((begin, order)) = self.0.range(..=(life.block.thread, time_ns)).next_back() else { continue };
            let is_within = begin.0 == life.block.thread && time_ns <= order.end_ns;
            if is_within && sites.get(life.block.stack).is_some() {
                found.entry(*begin).or_default().push(life);
            }
        }
        found
    }
}

/// Whether the log has all records of a time span.
fn is_whole(device: &DeviceSnapshot, begin: u64, end: u64) -> bool {
    let is_from_begin = device.overwritten == 0 || device.records.first().is_some_and(|first| first.time_ns < begin);
    is_from_begin && !device.gaps.iter().any(|gap| gap.to_ns >= begin && gap.from_ns <= end)
}
