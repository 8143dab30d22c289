//! Pairings by uses: which gradients and which results of the forward pass each step reads.
//!
//! A step of a node reads the gradient of the node. So a step that reads a gradient is of the call whose result's gradient it is; of a view,
//! it is of the call whose step made the gradient. What each gradient is the gradient of follows from the call of the step that made it: of
//! the call's operands, in the order in which the arm handles them, or of the operand that the step did not read for it. Where no gradient
//! says it, a step is of the only live call of its arm and size that has read all that the step reads.

use std::num::NonZeroU64;

use super::super::hashed::{HashMap, HashSet};
use super::operands::{Birth, Operands};
use super::sites::Sites;
use super::steps::Step;
use super::kinds::{self, Gradients};
use super::pending::Owner;
use crate::snapshot::Lifetime;

/// What is known of a gradient.
#[derive(Clone, Copy, Debug, Default)]
struct Gradient {
    /// The block of the tensor whose gradient it is.
    of: Option<NonZeroU64>,
    /// The only call whose step added to it.
    made_by: Owner,
}

/// What was read to compute something.
#[derive(Clone, Debug, Default)]
struct Reads {
    gradients: Vec<NonZeroU64>,
    forward: Vec<NonZeroU64>,
    /// Something else, too.
    is_more: bool,
}

impl Reads {
    fn add(&mut self, other: &Self) {
        self.gradients.extend(&other.gradients);
        self.forward.extend(&other.forward);
        self.is_more |= other.is_more;
    }

    /// The gradient, if there is only one.
    fn gradient(&self) -> Option<NonZeroU64> {
        let first = *self.gradients.first()?;
        self.gradients.iter().all(|gradient| *gradient == first).then_some(first).filter(|_| !self.is_more)
    }
}

/// A sum of a step: the gradient of one tensor.
struct NewGradient {
    block: NonZeroU64,
    /// What was added to it.
    reads: Reads,
    /// The gradient that it was added to, if a step made one before.
    before: Option<NonZeroU64>,
    /// It is known what it was added to.
    is_known: bool,
}

/// The walk over the steps of a device.
pub(super) struct Flow<'a> {
    operands: Operands<'a>,
    gradients: HashMap<NonZeroU64, Gradient>,
}

impl<'a> Flow<'a> {
    pub(super) fn of(operands: Operands<'a>) -> Self {
        Self { operands, gradients: HashMap::default() }
    }

    /// The call of the next step.
    pub(super) fn owner(&mut self, step: &Step<'_>, sites: &mut Sites<'_>) -> Owner {
        let (read, sums) = self.read(step, sites);
        let call = self.call(step, &read);
        let owner = match call {
            Some(Call::Result(call)) => Some(call),
            Some(Call::View { owner, .. }) => owner,
            None => None,
        };
        let of = match call {
            Some(Call::Result(call)) => self.operands_of(step, call, &sums),
            Some(Call::View { of, .. }) if sums.len() == 1 => vec![of],
            _ => vec![None; sums.len()],
        };
        for (sum, of) in sums.into_iter().zip(of) {
            let new = Gradient { of, made_by: owner };
            let before = sum.before.and_then(|before| self.gradients.get(&before));
            self.gradients.insert(sum.block, before.map_or(new, |before| before.with(new)));
        }
        owner
    }

    /// What a step reads, and its sums.
    fn read(&mut self, step: &Step<'_>, sites: &mut Sites<'_>) -> (Reads, Vec<NewGradient>) {
        let (mut all, mut sums) = (Reads::default(), Vec::new());
        let mut of_step: HashMap<NonZeroU64, Reads> = HashMap::default();
        let mut zeros: HashSet<NonZeroU64> = HashSet::default();
        for block in &step.blocks {
            let (Some(life), Some(direct)) = (self.operands.life(*block), self.operands.direct(*block)) else {
                all.is_more = true;
                of_step.insert(*block, Reads { is_more: true, ..Reads::default() });
                continue;
            };
            let Some(site) = sites.at(life.block.stack) else { continue };
            if site.is_zero_fill {
                zeros.insert(*block);
            }
            let mut reads = Reads::default();
            let (to, rest) = match direct.split_first() {
                Some((to, rest)) if site.is_sum && kinds::adds(step.arm) => (Some(*to), rest),
                _ => (None, &direct[..]),
            };
            rest.iter().for_each(|operand| self.add_read(*operand, &of_step, sites, &mut reads));
            all.add(&reads);
            if let Some(to) = to {
                let before = (!zeros.contains(&to)).then_some(to);
                let is_known = before.is_none_or(|to| self.gradients.contains_key(&to) || of_step.contains_key(&to));
                sums.push(NewGradient { block: *block, reads: reads.clone(), before, is_known });
            }
            of_step.insert(*block, reads);
        }
        (all, sums)
    }

    fn add_read(
        &mut self,
        operand: NonZeroU64,
        of_step: &HashMap<NonZeroU64, Reads>,
        sites: &mut Sites<'_>,
        reads: &mut Reads,
    ) {
        if let Some(within) = of_step.get(&operand) {
            return reads.add(within);
        }
        let stack = self.operands.life(operand).map(|life| life.block.stack);
        match stack.map(|stack| self.operands.birth(stack)) {
            _ if self.gradients.contains_key(&operand) => reads.gradients.push(operand),
            Some(Birth::Forward(_)) => reads.forward.push(operand),
            // The gradient of the loss comes before all arms.
            Some(Birth::Backward) if stack.is_some_and(|stack| sites.at(stack).is_none()) => {
                reads.gradients.push(operand);
            }
            _ => reads.is_more = true,
        }
    }

    fn call(&mut self, step: &Step<'_>, read: &Reads) -> Option<Call> {
        let gradient = read.gradient()?;
        let known = self.gradients.get(&gradient).copied().unwrap_or_default();
        let bytes = self.operands.life(gradient)?.block.size;
        if self.is_view(step.arm, &known, read, bytes)? {
            return Some(Call::View { owner: known.made_by, of: known.of });
        }
        let found = match known.of {
            Some(of) => Some(of).filter(|of| self.is_of_arm(*of, step.arm, bytes)),
            None => self.operands.only_call((step.arm, bytes), &read.forward, step.from),
        };
        let operands = found.and_then(|call| self.operands.of_call(call, step.from));
        let is_read = |block: &NonZeroU64| Some(*block) == found || operands.as_ref().is_some_and(|all| all.contains(block));
        found.filter(|_| operands.is_none() || read.forward.iter().all(is_read)).map(Call::Result)
    }

    /// Is the step of a view, which has the block of the tensor that it is a view of? `None` if it may be.
    fn is_view(&mut self, arm: &str, known: &Gradient, read: &Reads, bytes: u64) -> Option<bool> {
        let is_call = |flow: &mut Self| known.of.map(|of| flow.is_of_arm(of, arm, bytes));
        match arm {
            // `narrow` counts as `recip`, which reads what the forward pass computed.
            "recip" => Some(read.forward.is_empty()),
            "reshape" => is_call(self).filter(|is_call| !is_call).map(|_| true),
            _ => Some(kinds::is_view(arm)),
        }
    }

    fn is_of_arm(&mut self, call: NonZeroU64, arm: &str, bytes: u64) -> bool {
        let Some(life) = self.operands.life(call).filter(|life| life.block.size == bytes) else { return false };
        matches!(self.operands.birth(life.block.stack), Birth::Forward(of) if of.is_none_or(|of| arm.split('|').any(|word| word == of)))
    }

    /// The tensors whose gradients the sums of a call's step are.
    fn operands_of(&self, step: &Step<'_>, call: NonZeroU64, sums: &[NewGradient]) -> Vec<Owner> {
        let unknown = vec![None; sums.len()];
        let operands = self.operands.of_call(call, step.from).filter(|_| sums.iter().all(|sum| sum.is_known));
        let (Some(operands), Some(rule)) = (operands, kinds::gradients_of(step.arm)) else { return unknown };
        let not_read = |sum: &NewGradient| {
            let is_read = |operand: &&NonZeroU64| sum.reads.forward.contains(operand);
            operands.iter().filter(|operand| !is_read(operand)).copied().collect::<Vec<_>>()
        };
        match (rule, sums) {
            (Gradients::OfOne, [_]) if operands.len() == 1 => vec![operands.first().copied()],
            (Gradients::InOrder, [first, _]) if not_read(first).len() == 2 => not_read(first).into_iter().map(Some).collect(),
            (Gradients::OfTheOther, [_] | [_, _]) if operands.len() == 2 => {
                let only = |sum| <[NonZeroU64; 1]>::try_from(not_read(sum)).ok().map(|[only]| only);
                let found: Vec<Owner> = sums.iter().map(only).collect();
                if found.len() == 2 && found[0] == found[1] { unknown } else { found }
            }
            _ => unknown,
        }
    }
}

impl Gradient {
    /// After something was added to it.
    fn with(self, new: Self) -> Self {
        let of = match (self.of, new.of) {
            (Some(one), Some(other)) if one != other => None,
            (one, other) => one.or(other),
        };
        Self { of, made_by: self.made_by.filter(|_| self.made_by == new.made_by) }
    }
}

/// What a step is of.
enum Call {
    Result(NonZeroU64),
    /// Of the tensor in this block, used by this call.
    View { owner: Owner, of: Option<NonZeroU64> },
}

/// All steps of a device by thread, in order.
pub(super) fn lives_by_thread<'l>(
    lives: impl Iterator<Item = &'l Lifetime>,
    sites: &mut Sites<'_>,
) -> Vec<Vec<&'l Lifetime>> {
    let mut by_thread: HashMap<_, Vec<&Lifetime>> = HashMap::default();
    for life in lives.filter(|life| life.from > 0 && sites.at(life.block.stack).is_some()) {
        by_thread.entry(life.block.thread).or_default().push(life);
    }
    by_thread.into_values().collect()
}
