//! The verdict from the stack and the lifetime of a block.

use super::either::Either;
use super::verdict::{TEMPORARY, Verdict};
use super::work::Work;
use crate::attribute::gradients::outlives;
use crate::attribute::hint::Hint;
use crate::attribute::lifetimes::HintedLifetime;
use crate::attribute::passes::{pass_at, passes_after};
use crate::attribute::workers::PartOf;
use crate::snapshot::{Category, NEVER};

impl Work {
    pub(super) fn by_lifetime(&self, life: &HintedLifetime) -> Verdict {
        if self.is_python && !matches!(life.hint, Hint::Rule(_) | Hint::Backward | Hint::Step) {
            return Verdict::Open;
        }
        match life.hint {
            Hint::Nothing | Hint::Forward if life.of_stack.is_workers => self.of_worker(life),
            Hint::Workspace => Verdict::Is(Category::Workspace),
            Hint::GivenOut => Verdict::Kept(Some(Either::GivenOut)),
            Hint::Rule(Category::Unknown) => Verdict::Open,
            Hint::Rule(_) if self.is_soon_freed(life) => TEMPORARY,
            Hint::Rule(_) if self.is_short(life) => Verdict::Open,
            Hint::Rule(Category::Parameter) if self.history.is_gone_unused(life) => Verdict::Open,
            Hint::Rule(category) => Verdict::Is(category),
            Hint::Variable if self.counted.parameters.contains(&life.seq) => Verdict::Is(Category::Parameter),
            Hint::Variable => Verdict::Kept(Some(Either::ModelOrOptimizer)),
            Hint::Backward => self.in_backward(life),
            Hint::Step => self.in_step(life),
            Hint::Input => self.input(life),
            Hint::Forward if self.copies.contains(&life.seq) => Verdict::Is(Category::Parameter),
            Hint::Forward | Hint::Join => self.in_forward(life),
            Hint::Nothing if self.is_soon_freed(life) => TEMPORARY,
            Hint::Nothing | Hint::Constant => self.otherwise(life),
        }
    }

    fn of_worker(&self, life: &HintedLifetime) -> Verdict {
        match self.programs.around(life, &self.backward) {
            PartOf::Backward => Verdict::Is(Category::AutogradDetail),
            PartOf::Operator => Verdict::Is(Category::Temporary),
            PartOf::Nothing if self.is_soon_freed(life) => TEMPORARY,
            PartOf::Nothing | PartOf::Either => self.otherwise(life),
        }
    }

    fn in_backward(&self, life: &HintedLifetime) -> Verdict {
        let Some(pass) = pass_at(&self.backward, life) else { return Verdict::Kept(None) };
        // When a pass ends, it frees its own blocks, but also the gradients if the program does not take them. So a
        // block that is freed then is the pass's own only if another result of the pass is kept.
        let has_result = |next| self.history.outlive(life.thread, pass.from, pass.to, next);
        let in_pass = life.to <= pass.to || !outlives(life, pass) && pass.next.is_some_and(has_result);
        let may_be_gradient = life.of_stack.is_gradient || self.is_python && (life.to == NEVER || outlives(life, pass));
        let is_detail = in_pass || pass.has_gradients || !may_be_gradient;
        if is_detail || self.counted.details.contains(&life.seq) {
            Verdict::Is(Category::AutogradDetail)
        } else if self.kept_once.contains(&life.seq) {
            Verdict::Kept(None)
        } else if self.counted.gradients.contains(&life.seq) {
            Verdict::Is(Category::Gradient)
        } else {
            Verdict::Kept(Some(Either::GradientOrGraph))
        }
    }

    fn in_step(&self, life: &HintedLifetime) -> Verdict {
        match pass_at(&self.steps, life) {
            Some(pass) if life.to <= pass.to => Verdict::Is(Category::Temporary),
            Some(pass) if pass.next.is_some_and(|next| life.to < next) => TEMPORARY,
            Some(pass) if pass.is_over => Verdict::Is(Category::OptimizerState),
            _ => Verdict::Open,
        }
    }

    fn input(&self, life: &HintedLifetime) -> Verdict {
        if life.of_stack.in_forward || self.is_short(life) {
            Verdict::Open
        } else if self.inputs.contains(&life.stack) {
            Verdict::Is(Category::Input)
        } else {
            Verdict::Kept(Some(Either::InputOrWeights))
        }
    }

    fn in_forward(&self, life: &HintedLifetime) -> Verdict {
        if life.from == 0 {
            return Verdict::Kept(None);
        }
        let (next, after) = match passes_after(&self.backward, life) {
            [next, rest @ ..] => (next.from, rest.first().map_or(NEVER, |pass| pass.from)),
            [] => (NEVER, NEVER),
        };
        match life.to {
            to if to < next && self.is_temporary(life) => TEMPORARY,
            to if to < next && next != NEVER && self.is_of_inference(life) => TEMPORARY,
            to if next < to && self.history.allocates_between(life.stack, next, to) => {
                Verdict::Kept(Some(Either::Replaced))
            }
            to if next < to && self.is_of_forward_pass(life, next) && (to < after || self.comes_again(life)) => {
                Verdict::Likely(Category::Activation)
            }
            _ => self.otherwise(life),
        }
    }

    /// The verdict without evidence: open if the block was brief.
    fn otherwise(&self, life: &HintedLifetime) -> Verdict {
        if self.is_short(life) { Verdict::Open } else { Verdict::Kept(None) }
    }
}
