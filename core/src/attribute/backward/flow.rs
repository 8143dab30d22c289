//! Pairings by uses: which gradients and which results of the forward pass each step reads.
//!
//! A step of a node reads the gradient of the node. So a step that reads a gradient is of the call whose result's gradient it is; of a view,
//! it is of the call whose step made the gradient. What each gradient is the gradient of follows from the call of the step that made it: of
//! the call's operands, in the order in which the arm handles them, or of the operand that the step did not read for it. Where no gradient
//! says it, a step is of the only live call of its arm and size that has read all that the step reads.

use std::num::NonZeroU64;

use super::kinds::{self, Gradients};
use super::operands::{Birth, Operands};
use super::pending::Owner;
use super::sites::{Site, Sites};
use super::steps::Step;
use crate::hashed::HashMap;
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

/// More blocks than a step of candle reads.
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

    /// The gradient, if there is only one.
    fn gradient(&self) -> Option<NonZeroU64> {
        self.gradients.first().copied().filter(|_| self.gradients.len() == 1 && !self.is_more)
    }
}

/// False if there are too many.
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
    /// What was added to it.
    reads: Reads,
    /// The gradient that it was added to, if a step made one before.
    before: Option<NonZeroU64>,
}

/// The step that is read.
struct Within<'s, 'a> {
    /// In order.
    blocks: &'s [NonZeroU64],
    /// Its arm adds to gradients.
    adds: bool,
    sites: &'s mut Sites<'a>,
    known: HashMap<NonZeroU64, Reads>,
    /// So far.
    sums: Vec<NewGradient>,
}

impl<'a> Within<'_, 'a> {
    fn site(&mut self, life: Option<&Lifetime>) -> Option<Site<'a>> {
        self.sites.at(life?.block.stack)
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

    /// What was read to compute a block of a step. What a sum is added to does not count.
    fn reads(&mut self, block: NonZeroU64, to: Owner, within: &mut Within<'_, '_>) -> Reads {
        let direct = self.operands.direct(block);
        let mut reads = Reads { is_more: direct.is_none(), ..Reads::default() };
        for operand in direct.into_iter().flatten().filter(|operand| Some(*operand) != to) {
            self.add_read(operand, within, &mut reads);
        }
        within.known.insert(block, reads.clone());
        reads
    }

    /// The gradient, or the zeros, that a block is the next sum of.
    fn added_to(&self, block: NonZeroU64, within: &mut Within<'_, '_>) -> Option<NonZeroU64> {
        let is_sum = within.adds && within.site(self.operands.life(block)).is_some_and(|site| site.is_sum);
        let direct = self.operands.direct(block).filter(|_| is_sum)?;
        let is_gradient = |operand: &NonZeroU64| {
            let is_of_step = || within.sums.binary_search_by_key(operand, |sum| sum.block).is_ok();
            self.gradients.contains_key(operand) || is_of_step() || within.is_zero_fill(self.operands.life(*operand))
        };
        // What describes the layout of an operand comes before.
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
            // The gradient of the loss comes before all arms.
            Some(Birth::Backward) if within.site(life).is_none() => reads.add_gradient(operand),
            _ => reads.is_more = true,
        }
    }

    /// A block that the step allocated after what was made of it: it describes the layout of an operand, and was used beside operands.
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
    View {
        owner: Owner,
        of: Option<NonZeroU64>,
    },
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
