//! Categories of blocks: stated by the program, or inferred from stacks and lifetimes.
//!
//! A block first gets a verdict by itself: from its stack (`hint`), from its thread's passes (`passes`), from the history of
//! its site (`history`), from counting gradients against variables (`gradients`, `torch_gradients`), from growing caches (`growing`,
//! `reordered`), from copies of the model (`copies`) and from the thread that a worker works for (`workers`). Functions in which a model
//! works are found first (`model_functions`). Where that is open and uses were recorded, they decide (`use_flow`). A
//! verdict inferred from a lifetime alone is only likely: other blocks of the same site and size that stay revoke it. Where
//! the evidence does not decide, the category is unknown, and [`Either`] narrows it down if it can.

mod by_lifetime;
mod by_uses;
mod either;
mod facts;
mod verdict;
mod work;

use std::num::NonZeroU64;

use super::lifetimes::{HintedLifetime, hinted};
use super::passes::{Passes, pass_at};
use super::{Attribution, model_functions};
use crate::snapshot::{Category, DeviceSnapshot, Lifetimes, LogPosition};
use verdict::{Verdict, agreed, inherit};
use work::Work;

pub use either::Either;

/// The category of each block of a device.
///
/// A category stated by the program (`name_as` and related functions) takes precedence. Otherwise:
///
/// | allocated | freed | category |
/// |---|---|---|
/// | where a rule of [`Rules`](crate::Rules) names a category | | that one, or TEMPORARY if freed soon |
/// | in a matrix kernel or a library that is not Rust | | WORKSPACE |
/// | by a suballocator | | unknown |
/// | as a variable that has gradients | | PARAMETER |
/// | by `copy`, one block for each variable, in one function | | PARAMETER |
/// | in a backward pass, by workers for it, too | within it | AUTOGRAD_DETAIL |
/// | in a backward pass | later | GRADIENT if the pass leaves as many blocks of this size as there are variables of it; AUTOGRAD_DETAIL if there are none, or if the program named the pass's gradients; unknown if it outlives a later pass and no other sum of its site does |
/// | in an optimizer's step | within it | TEMPORARY |
/// | in an optimizer's step | later | OPTIMIZER_STATE |
/// | by the program itself from data, repeatedly | before the next but one is allocated | INPUT |
/// | by `cat`, repeatedly growing by the same amount while the previous block is live and read | | KV_CACHE |
/// | by another operator | soon, or before a repeatedly entered scope ends | TEMPORARY |
/// | by another operator, in a function in which a model works | before the next backward pass begins | TEMPORARY |
/// | by another operator, in a forward pass | after the next backward pass began, before the one after that, and before its site allocates again | ACTIVATION |
///
/// A block that is live at the end, or outlives all of these, gets the category of the other blocks with its stack, if they
/// agree; otherwise it is unknown.
#[derive(Clone, Debug, Default)]
pub struct Categories {
    /// Sorted.
    seqs: Vec<NonZeroU64>,
    /// The category of each, and what it can only be if it is unknown.
    found: Vec<(Category, Option<Either>)>,
    lives: Vec<HintedLifetime>,
    /// Backward passes and steps of optimizers.
    passes: [Passes; 2],
}

impl Categories {
    /// The category of the block with this number ([`Block::seq`](crate::snapshot::Block::seq)).
    pub fn get(&self, seq: Option<NonZeroU64>) -> Category {
        self.of_block(seq).0
    }

    /// What the block can only be, if its category is unknown but narrowed down.
    pub fn either(&self, seq: Option<NonZeroU64>) -> Option<Either> {
        self.of_block(seq).1
    }

    /// The lifetimes of all blocks that the recording knows, in the order of their allocation, with their categories.
    pub(crate) fn lives(&self) -> impl Iterator<Item = (&HintedLifetime, Category)> {
        self.lives.iter().zip(&self.found).map(|(life, (category, _))| (life, *category))
    }

    /// Where the backward pass, or the optimizer's step, that allocated the block begins.
    pub(crate) fn pass_of(&self, life: &HintedLifetime) -> Option<LogPosition> {
        let mut found = self.passes.iter().filter_map(|passes| pass_at(passes, life));
        found.find(|pass| life.from <= pass.to).map(|pass| pass.from)
    }

    /// The label in tables: the category, or what [`either`](Self::either) knows.
    #[doc(hidden)]
    pub fn label(&self, seq: Option<NonZeroU64>) -> &'static str {
        match self.of_block(seq) {
            (Category::Unknown, Some(either)) => either.label(),
            (category, _) => category.word(),
        }
    }
}

impl Categories {
    /// The categories of all blocks that the recording knows. A [`DeviceView`](crate::DeviceView) has them.
    pub(crate) fn of(data: &Attribution<'_>, device: &DeviceSnapshot, lifetimes: &Lifetimes) -> Self {
        let mut lives = hinted(data, lifetimes);
        model_functions::learn(data, &mut lives);
        let work = Work::of(data, device, &lives);
        let mut names = device.names.iter().filter(|name| name.category != Category::Unknown).peekable();
        // Names and lives are in the same order.
        let mut told = |life: &HintedLifetime| {
            while names.next_if(|name| name.seq < life.seq).is_some() {}
            names.peek().filter(|name| name.seq == life.seq).map(|name| name.category)
        };
        let verdict = |life: &HintedLifetime| match told(life) {
            Some(category) => Verdict::Is(category),
            None if !work.is_python && work.caches.contains(&life.seq) => Verdict::Is(Category::KvCache),
            None => work.verdict(life),
        };
        let verdicts: Vec<Verdict> = lives.iter().map(verdict).collect();
        let mut found = agreed(&lives, &verdicts);
        inherit(&lives, &verdicts, &mut found);
        let passes = [work.backward, work.steps];
        Self { seqs: lives.iter().map(|life| life.seq).collect(), found, lives, passes }
    }

    fn of_block(&self, seq: Option<NonZeroU64>) -> (Category, Option<Either>) {
        let at = seq.and_then(|seq| self.seqs.binary_search(&seq).ok());
        at.and_then(|at| self.found.get(at)).copied().unwrap_or_default()
    }
}

impl Work {
    /// The verdict from stacks and lifetimes; where that is open, from the uses.
    fn verdict(&self, life: &HintedLifetime) -> Verdict {
        let verdict = self.by_lifetime(life);
        match verdict {
            Verdict::Is(_) | Verdict::Likely(_) => verdict,
            Verdict::Kept(_) | Verdict::Open => self.by_uses(life, verdict).unwrap_or(verdict),
        }
    }
}
