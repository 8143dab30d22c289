//! Verdicts on single blocks, and how verdicts on similar blocks change them.

use super::either::Either;
use crate::attribute::hint::Hint;
use crate::attribute::lifetimes::HintedLifetime;
use crate::hashed::HashMap;
use crate::snapshot::{Category, LogPosition, NEVER, StackId};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Is(Category),
    /// Inferred from the block's lifetime. It is revoked if other blocks of the same site and size stay.
    Likely(Category),
    /// The category is unknown, and the block was not brief.
    Kept(Option<Either>),
    Open,
}

pub(super) const TEMPORARY: Verdict = Verdict::Likely(Category::Temporary);

/// The category for each verdict, and the possible ones if it is unknown.
pub(super) fn agreed(lives: &[HintedLifetime], verdicts: &[Verdict]) -> Vec<(Category, Option<Either>)> {
    let like = Like::of(lives, verdicts);
    let category = |(life, verdict): (&HintedLifetime, &Verdict)| match verdict {
        Verdict::Is(category) => (*category, None),
        Verdict::Likely(category) if !like.stays(life) => (*category, None),
        Verdict::Likely(_) | Verdict::Open => (Category::Unknown, None),
        Verdict::Kept(either) => (Category::Unknown, *either),
    };
    lives.iter().zip(verdicts).map(category).collect()
}

/// Finds a category for blocks of unknown category that are live at the end or have an open verdict. It is the category
/// of the other blocks with the same stack, if all of these agree.
pub(super) fn inherit(lives: &[HintedLifetime], verdicts: &[Verdict], found: &mut [(Category, Option<Either>)]) {
    let is_open = |life: &HintedLifetime, verdict: &Verdict| life.to == NEVER || *verdict == Verdict::Open;
    let may = |hint| matches!(hint, Hint::Forward | Hint::Join | Hint::Input | Hint::Step);
    let inherits = |life: &HintedLifetime, verdict: &Verdict, category: Category| {
        category == Category::Unknown && may(life.hint) && is_open(life, verdict)
    };
    let mut of_stack: HashMap<StackId, Option<Category>> = HashMap::default();
    for ((life, verdict), (category, _)) in lives.iter().zip(verdicts).zip(found.iter()) {
        if is_open(life, verdict) {
            continue;
        }
        let known = Some(*category).filter(|known| *known != Category::Unknown);
        of_stack.entry(life.stack).and_modify(|agreed| *agreed = agreed.filter(|_| *agreed == known)).or_insert(known);
    }
    for ((life, verdict), (category, either)) in lives.iter().zip(verdicts).zip(found) {
        if inherits(life, verdict, *category)
            && let Some(agreed) = of_stack.get(&life.stack).copied().flatten()
        {
            (*category, *either) = (agreed, None);
        }
    }
}

/// Blocks that stay, by site and size.
#[derive(Default)]
struct Like(HashMap<(StackId, u64), StayingBlocks>);

#[derive(Default)]
struct StayingBlocks {
    /// Whether they replace each other.
    are_replaced: bool,
    /// Sorted positions of their frees.
    freed: Vec<LogPosition>,
}

impl Like {
    fn of(lives: &[HintedLifetime], verdicts: &[Verdict]) -> Self {
        let mut like = Self::default();
        for (life, verdict) in lives.iter().zip(verdicts) {
            match verdict {
                Verdict::Kept(Some(_)) | Verdict::Is(Category::OptimizerState | Category::Parameter) => {
                    like.0.entry((life.stack, life.size)).or_default().are_replaced = true;
                }
                Verdict::Kept(None) if life.to != NEVER => {
                    like.0.entry((life.stack, life.size)).or_default().freed.push(life.to);
                }
                _ => {}
            }
        }
        // Most frees are already in order, which makes a stable sort fast.
        like.0.values_mut().for_each(|blocks| blocks.freed.sort());
        like
    }

    /// Whether other blocks of its site and size stay. The block is then the last of a collection that is dropped
    /// together, or the last of several blocks that replaced each other.
    fn stays(&self, life: &HintedLifetime) -> bool {
        /// Maximum number of records between the frees of a collection.
        const TOGETHER: LogPosition = 8;
        let Some(StayingBlocks { are_replaced, freed }) = self.0.get(&(life.stack, life.size)) else { return false };
        let next = freed.get(freed.partition_point(|at| *at + TOGETHER < life.to));
        *are_replaced || next.is_some_and(|at| *at <= life.to + TOGETHER)
    }
}
