//! The verdict from the uses of a block.

use super::either::Either;
use super::verdict::Verdict;
use super::work::Work;
use crate::attribute::hint::Hint;
use crate::attribute::lifetimes::HintedLifetime;
use crate::attribute::passes::{pass_at, passes_after};
use crate::attribute::use_flow::{BlockFlow, TrainingPhase, UseMoment};
use crate::snapshot::Category;

impl Work {
    pub(super) fn by_uses(&self, life: &HintedLifetime, verdict: Verdict) -> Option<Verdict> {
        let (flow, last) = self.flows.get(life).and_then(|flow| Some((flow, flow.last?)))?;
        match (verdict, life.hint) {
            (Verdict::Kept(Some(Either::ModelOrOptimizer)), _) => self.variable(flow),
            (Verdict::Kept(Some(Either::GradientOrGraph)), _) => {
                let pass = pass_at(&self.backward, life)?;
                (pass.to < last.at && last.phase != TrainingPhase::Backward).then_some(Verdict::Is(Category::Gradient))
            }
            (_, Hint::Forward | Hint::Join) if life.from > 0 => self.result(life, flow, last),
            _ => None,
        }
    }

    /// A pass of the model reads parameters. An optimizer's state is not used during a whole backward pass.
    fn variable(&self, flow: &BlockFlow) -> Option<Verdict> {
        if flow.is_used_by_model() {
            return Some(Verdict::Is(Category::Parameter));
        }
        let is_state = flow.pause.is_some_and(|[begin, end]| self.whole_passes.is_any_within(begin.at, end.at));
        is_state.then_some(Verdict::Is(Category::OptimizerState))
    }

    /// The verdict on a result of a forward pass. An activation is used for the last time in the next backward pass. A
    /// block that is used later, and then replaced, is a parameter or an optimizer's state. All blocks of a site must
    /// agree.
    fn result(&self, life: &HintedLifetime, flow: &BlockFlow, last: UseMoment) -> Option<Verdict> {
        let next = passes_after(&self.backward, life).first()?;
        let may_be_input = life.of_stack.moves && !life.of_stack.in_forward;
        let site = self.flows.site(life.stack);
        // The backward pass also reads data that the program computes, but this data is not part of the forward pass.
        let is_of_pass = life.of_stack.in_forward || self.has_begun(life, next.from);
        let is_activation = (next.from..=next.to).contains(&last.at) && !site.outlasts && !may_be_input && is_of_pass;
        let is_replaced = next.to < last.at && self.history.allocates_between(life.stack, next.from, life.to);
        // Averages of weights also pause, but no gradient flows into them.
        let pauses = flow.pause.is_some_and(|[begin, end]| begin.at < next.from && next.to < end.at);
        let is_state = is_replaced && site.is_fed && !site.ends && pauses;
        // A function of a model replaces its statistics one by one. Results that it does not replace may be collected.
        let may_be_parameter = !life.of_stack.in_forward || self.history.is_replaced(life.stack, life.from, life.to);
        let category = if is_activation {
            Some(Category::Activation)
        } else if is_replaced && site.is_used_by_model && last.phase != TrainingPhase::Backward && may_be_parameter {
            Some(Category::Parameter)
        } else {
            is_state.then_some(Category::OptimizerState)
        };
        category.map(Verdict::Is)
    }
}
