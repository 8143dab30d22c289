//! Categories of blocks: stated by the program, or inferred from stacks and lifetimes.
//!
//! Each block first gets a verdict of its own, from this evidence:
//! * its stack (`hint`);
//! * its thread's passes (`passes`);
//! * the history of its site (`history`);
//! * the number of gradients compared with the number of variables (`gradients`, `torch_gradients`);
//! * growing caches (`growing`, `reordered`);
//! * copies of the model (`copies`);
//! * the thread that a worker works for (`workers`).
//!
//! Before that, `model_functions` finds the functions in which a model works. If the verdict is open and uses were
//! recorded, the uses decide (`use_flow`). A verdict inferred only from a lifetime is likely, not certain: it is
//! revoked if other blocks of the same site and size stay. If the evidence does not decide, the category is unknown,
//! and [`Either`] narrows it down if possible.

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
/// | in a backward pass, also by workers for it | within it | AUTOGRAD_DETAIL |
/// | in a backward pass | later | GRADIENT if the pass leaves as many blocks of this size as there are variables of it; AUTOGRAD_DETAIL if there are none, or if the program named the pass's gradients; unknown if it outlives a later pass and no other sum of its site does |
/// | in an optimizer's step | within it | TEMPORARY |
/// | in an optimizer's step | later | OPTIMIZER_STATE |
/// | by the program itself from data, repeatedly | before the next but one is allocated | INPUT |
/// | by `cat`, repeatedly growing by the same amount while the previous block is live and read | | KV_CACHE |
/// | by another operator | soon, or before a repeatedly entered scope ends | TEMPORARY |
/// | by another operator, in a function in which a model works | before the next backward pass begins | TEMPORARY |
/// | by another operator, in a forward pass | after the next backward pass began, before the one after that, and before its site allocates again | ACTIVATION |
///
/// A block that is live at the end, or outlives all of these, gets the category of the other blocks with its stack, if
/// they agree. Otherwise it is unknown.
#[derive(Clone, Debug, Default)]
pub struct Categories {
    /// Block numbers, sorted.
    seqs: Vec<NonZeroU64>,
    /// The category of each block, and the possible ones if it is unknown.
    found: Vec<(Category, Option<Either>)>,
    lives: Vec<HintedLifetime>,
    /// Backward passes and optimizer steps.
    passes: [Passes; 2],
}

impl Categories {
    /// The category of the block with this number ([`Block::seq`](crate::snapshot::Block::seq)).
    pub fn get(&self, seq: Option<NonZeroU64>) -> Category {
        self.of_block(seq).0
    }

    /// The possible categories of the block, if its category is unknown but narrowed down.
    pub fn either(&self, seq: Option<NonZeroU64>) -> Option<Either> {
        self.of_block(seq).1
    }

    /// The lifetimes of all blocks in the recording, in the order of their allocation, with their categories.
    pub(crate) fn lives(&self) -> impl Iterator<Item = (&HintedLifetime, Category)> {
        self.lives.iter().zip(&self.found).map(|(life, (category, _))| (life, *category))
    }

    /// The beginning of the backward pass or optimizer step that allocated the block.
    pub(crate) fn pass_of(&self, life: &HintedLifetime) -> Option<LogPosition> {
        let mut found = self.passes.iter().filter_map(|passes| pass_at(passes, life));
        found.find(|pass| life.from <= pass.to).map(|pass| pass.from)
    }

    /// The label in tables: the category, or the label of [`either`](Self::either).
    #[doc(hidden)]
    pub fn label(&self, seq: Option<NonZeroU64>) -> &'static str {
        match self.of_block(seq) {
            (Category::Unknown, Some(either)) => either.label(),
            (category, _) => category.word(),
        }
    }
}

impl Categories {
    /// The categories of all blocks in the recording. A [`DeviceView`](crate::DeviceView) caches them.
    pub(crate) fn of(data: &Attribution<'_>, device: &DeviceSnapshot, lifetimes: &Lifetimes) -> Self {
        let mut lives = hinted(data, lifetimes);
        model_functions::learn(data, &mut lives);
        let work = Work::of(data, device, &lives);
        let mut names = device.names.iter().filter(|name| name.category != Category::Unknown).peekable();
        // Names and lifetimes are in the same order.
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
    /// The verdict from stacks and lifetimes. If it is open, the uses decide.
    fn verdict(&self, life: &HintedLifetime) -> Verdict {
        let verdict = self.by_lifetime(life);
        match verdict {
            Verdict::Is(_) | Verdict::Likely(_) => verdict,
            Verdict::Kept(_) | Verdict::Open => self.by_uses(life, verdict).unwrap_or(verdict),
        }
    }
}
