//! Pairings by uses: finds the gradients and the results of the forward pass that each step reads.
//!
//! A step of a node reads the gradient of the node. This gives the call of the step:
//! * A step that reads a gradient belongs to the call whose result has this gradient.
//! * A step of a view belongs to the call whose step made the gradient.
//! * If no gradient tells the call, the step belongs to the only live call of its arm and size that has read everything
//!   that the step reads.
//!
//! Which tensor a gradient belongs to follows from the call of the step that made the gradient. The tensor is one of
//! the call's operands: the next one in the order in which the arm handles them, or the one that the step did not read
//! to compute this gradient.

use std::num::NonZeroU64;

use super::kinds::{self, Gradients};
use super::operands::{Birth, Operands};
use super::pending::Owner;
use super::sites::{Site, Sites};
use super::steps::Step;
use crate::hashed::HashMap;
use crate::snapshot::Lifetime;

/// What is known about a gradient.
#[derive(Clone, Copy, Debug, Default)]
struct Gradient {
    /// The block of the tensor whose gradient it is.
    of: Option<NonZeroU64>,
    /// The only call whose step added to it.
    made_by: Owner,
}

/// Blocks that were read to compute something.
#[derive(Clone, Debug, Default)]
struct Reads {
    gradients: Vec<NonZeroU64>,
    forward: Vec<NonZeroU64>,
    /// Whether other blocks were read, too.
    is_more: bool,
}

/// The most blocks that are tracked; a step of candle reads fewer.
const MOST_READ: usize = 16;

impl Reads {
    fn add(&mut self, other: &Self) {
        other.gradients.iter().for_each(|gradient| self.add_gradient(*gradient));
        other.forward.iter().for_each(|block| self.add_forward(*block));
        self.is_more |= other.is_more;
    }

    fn add_gradient(&mut self, block: NonZeroU64) {
        self.is_more |= !add_once(&mut self.gradients, block);
    }

    fn add_forward(&mut self, block: NonZeroU64) {
        self.is_more |= !add_once(&mut self.forward, block);
    }

    /// The gradient, if it is the only one and nothing else was read.
    fn gradient(&self) -> Option<NonZeroU64> {
        self.gradients.first().copied().filter(|_| self.gradients.len() == 1 && !self.is_more)
    }
}

/// Returns false if there are too many blocks.
fn add_once(list: &mut Vec<NonZeroU64>, block: NonZeroU64) -> bool {
    let is_new = !list.contains(&block);
    if is_new && list.len() < MOST_READ {
        list.push(block);
    }
    !is_new || list.last() == Some(&block)
}

/// A sum of a step: the gradient of one tensor.
struct NewGradient {
    block: NonZeroU64,
    /// Blocks that were read to compute the addend.
    reads: Reads,
    /// The gradient to which the addend was added, if an earlier step made one.
    before: Option<NonZeroU64>,
}

/// The step that is being read.
struct Within<'s, 'a> {
    /// The step's blocks, in order.
    blocks: &'s [NonZeroU64],
    /// Whether its arm adds to gradients.
    adds: bool,
    sites: &'s mut Sites<'a>,
    known: HashMap<NonZeroU64, Reads>,
    /// The sums found so far.
    sums: Vec<NewGradient>,
}

impl<'a> Within<'_, 'a> {
    fn site(&mut self, life: Option<&Lifetime>) -> Option<Site<'a>> {
        self.sites.get(life?.block.stack)
    }

    fn is_zero_fill(&mut self, life: Option<&Lifetime>) -> bool {
        self.site(life).is_some_and(|site| site.is_zero_fill)
    }
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

    /// The call of a step. Steps must come in order.
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

    /// Blocks that a step reads, and the step's sums.
    fn read(&mut self, step: &Step<'_>, sites: &mut Sites<'_>) -> (Reads, Vec<NewGradient>) {
        let (blocks, known, sums) = (&step.blocks, HashMap::default(), Vec::new());
        let mut within = Within { blocks, adds: kinds::adds(step.arm), sites, known, sums };
        let mut all = Reads::default();
        for block in blocks {
            let to = self.added_to(*block, &mut within);
            let reads = self.reads(*block, to, &mut within);
            all.add(&reads);
            if let Some(to) = to {
                let before = (!within.is_zero_fill(self.operands.life(to))).then_some(to);
                within.sums.push(NewGradient { block: *block, reads, before });
            }
        }
        (all, within.sums)
    }

    /// Blocks that were read to compute a block of a step, without the block that a sum is added to.
    fn reads(&mut self, block: NonZeroU64, to: Owner, within: &mut Within<'_, '_>) -> Reads {
        let direct = self.operands.direct(block);
        let mut reads = Reads { is_more: direct.is_none(), ..Reads::default() };
        for operand in direct.into_iter().flatten().filter(|operand| Some(*operand) != to) {
            self.add_read(operand, within, &mut reads);
        }
        within.known.insert(block, reads.clone());
        reads
    }

    /// If the block is a sum, the gradient or the zeros to which it adds.
    fn added_to(&self, block: NonZeroU64, within: &mut Within<'_, '_>) -> Option<NonZeroU64> {
        let is_sum = within.adds && within.site(self.operands.life(block)).is_some_and(|site| site.is_sum);
        let direct = self.operands.direct(block).filter(|_| is_sum)?;
        let is_gradient = |operand: &NonZeroU64| {
            let is_of_step = || within.sums.binary_search_by_key(operand, |sum| sum.block).is_ok();
            self.gradients.contains_key(operand) || is_of_step() || within.is_zero_fill(self.operands.life(*operand))
        };
        // Blocks that describe the layout of an operand may come before the gradient.
        direct.into_iter().find(is_gradient)
    }

    fn add_read(&mut self, operand: NonZeroU64, within: &mut Within<'_, '_>, reads: &mut Reads) {
        if within.blocks.binary_search(&operand).is_ok() {
            return match within.known.get(&operand) {
                Some(known) => reads.add(known),
                None => self.add_later(operand, within, reads),
            };
        }
        let life = self.operands.life(operand);
        match life.map(|life| self.operands.birth(life.block.stack)) {
            _ if self.gradients.contains_key(&operand) => reads.add_gradient(operand),
            Some(Birth::Forward(_)) => reads.add_forward(operand),
            // The gradient of the loss is computed before any arm runs.
            Some(Birth::Backward) if within.site(life).is_none() => reads.add_gradient(operand),
            _ => reads.is_more = true,
        }
    }

    /// Adds a block that the step allocated after the blocks computed from it. It describes the layout of an operand,
    /// and was used together with operands.
    fn add_later(&mut self, block: NonZeroU64, within: &mut Within<'_, '_>, reads: &mut Reads) {
        let Some(beside) = self.operands.direct(block) else { return reads.is_more = true };
        for operand in beside {
            match within.known.get(&operand) {
                None if within.blocks.binary_search(&operand).is_ok() => reads.is_more = true,
                _ => self.add_read(operand, within, reads),
            }
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
        let is_read =
            |block: &NonZeroU64| Some(*block) == found || operands.as_ref().is_some_and(|all| all.contains(block));
        found.filter(|_| operands.is_none() || read.forward.iter().all(is_read)).map(Call::Result)
    }

    /// Whether the step is of a view. A view shares the block of its tensor. `None` if that is not known.
    fn is_view(&mut self, arm: &str, known: &Gradient, read: &Reads, bytes: u64) -> Option<bool> {
        let is_call = |flow: &mut Self| known.of.map(|of| flow.is_of_arm(of, arm, bytes));
        match arm {
            // `narrow` counts as `recip`. But only a step of `recip` itself reads what the forward pass computed.
            "recip" => Some(read.forward.is_empty()),
            "reshape" => is_call(self).filter(|is_call| !is_call).map(|_| true),
            _ => Some(kinds::is_view(arm)),
        }
    }

    fn is_of_arm(&mut self, call: NonZeroU64, arm: &str, bytes: u64) -> bool {
        let Some(life) = self.operands.life(call).filter(|life| life.block.size == bytes) else { return false };
        matches!(self.operands.birth(life.block.stack), Birth::Forward(of) if of.is_none_or(|of| arm.split('|').any(|word| word == of)))
    }

    /// The tensors whose gradients are the sums of a call's step.
    fn operands_of(&self, step: &Step<'_>, call: NonZeroU64, sums: &[NewGradient]) -> Vec<Owner> {
        let unknown = vec![None; sums.len()];
        let operands = self.operands.of_call(call, step.from);
        let (Some(operands), Some(rule)) = (operands, kinds::gradients_of(step.arm)) else { return unknown };
        let not_read = |sum: &NewGradient| {
            let is_read = |operand: &&NonZeroU64| sum.reads.forward.contains(operand);
            operands.iter().filter(|operand| !is_read(operand)).copied().collect::<Vec<_>>()
        };
        match (rule, sums) {
            (Gradients::OfOne, [_]) if operands.len() == 1 => vec![operands.first().copied()],
            (Gradients::InOrder, [first, _]) if not_read(first).len() == 2 => {
                not_read(first).into_iter().map(Some).collect()
            }
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
    /// The gradient after another part was added to it.
    fn with(self, new: Self) -> Self {
        let of = match (self.of, new.of) {
            (Some(one), Some(other)) if one != other => None,
            (one, other) => one.or(other),
        };
        Self { of, made_by: self.made_by.filter(|_| self.made_by == new.made_by) }
    }
}

/// The tensor that a step handles.
enum Call {
    Result(NonZeroU64),
    /// A view of the tensor in the block `of`. The call `owner` used the view.
    View {
        owner: Owner,
        of: Option<NonZeroU64>,
    },
}
