//! Category hints: what a stack by itself tells about the purpose of a block.

use super::matched_frame::{MatchedFrame, matched_frames};
use super::torch::is_script;
use super::{Attribution, Origin, allocator, is_pool, library, operator};
use crate::snapshot::{Category, ContextId, Fact, StackId};

/// What a stack tells about a block's purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hint {
    /// A rule names the category.
    Rule(Category),
    /// Workspace of a matrix kernel or of a library that is not Rust.
    Workspace,
    /// Allocated by a framework's suballocator.
    GivenOut,
    /// Allocated in a backward pass.
    Backward,
    /// Allocated in an optimizer's step.
    Step,
    /// A variable, of a model or an optimizer.
    Variable,
    /// Data that the program loads.
    Input,
    /// Filled with a constant by the program.
    Constant,
    /// A concatenation of tensors, such as a growing cache.
    Join,
    /// Allocated by another operator of the forward pass.
    Forward,
    Nothing,
}

/// What a stack tells, regardless of scopes.
#[derive(Clone, Copy, Debug)]
pub(super) struct StackHint {
    hint: Hint,
    /// Whether an operator of the forward pass or of an optimizer allocated it. In the scope of an optimizer, such a
    /// block is the optimizer's.
    is_operator: bool,
    in_optimizer: bool,
    pub(super) is_variable: bool,
    /// Whether the block holds something else than a tensor's elements, such as a list or a table.
    pub(super) is_structure: bool,
    /// Whether a function in which a model works is on the stack.
    pub(super) in_forward: bool,
    pub(super) moves: bool,
    pub(super) multiplies: bool,
    /// Whether a thread of a thread pool allocated the block, with no line of the program on the stack.
    pub(super) is_workers: bool,
    /// Whether the operator's results in a backward pass are gradients.
    pub(super) is_gradient: bool,
}

impl StackHint {
    pub(super) fn of(data: &Attribution<'_>, stack: StackId) -> Self {
        let rules = &data.settings.rules;
        let run: Vec<MatchedFrame<'_>> = framework_run(data, stack).collect();
        let operator = operator(data, stack);
        let called = operator.and_then(|operator| run.iter().rfind(|frame| frame.function() == operator.root));
        let calls = |fact| called.is_some_and(|frame| frame.is(fact));
        let is_structure = run.first().is_some_and(|frame| frame.is(Fact::Structure));
        let is_variable = !is_structure && run.iter().any(|frame| frame.is(Fact::Variable));
        let hint = match (by_rule(&run), operator) {
            _ if allocator(data, stack).is_some() => Hint::GivenOut,
            _ if library(data, stack).is_some() => Hint::Workspace,
            (Some(Category::Workspace), _) => Hint::Workspace,
            (_, Some(operator)) if operator.is_backward => Hint::Backward,
            (Some(_), _) if is_structure => Hint::Nothing,
            (Some(category), _) => Hint::Rule(category),
            (None, _) if is_variable => Hint::Variable,
            (None, Some(_)) if calls(Fact::Input) => Hint::Input,
            (None, Some(_)) if calls(Fact::Constant) => Hint::Constant,
            (None, Some(operator)) if rules.names(Fact::Join, operator.root) => Hint::Join,
            (None, Some(_)) => Hint::Forward,
            // The program loads data without an operator.
            (None, None) if run.last().is_some_and(|frame| frame.is(Fact::Input)) => Hint::Input,
            (None, None) if is_scripts(data, stack) => Hint::Forward,
            (None, None) => Hint::Nothing,
        };
        // These hints hold regardless of the rest of the stack.
        let is_final =
            matches!(hint, Hint::GivenOut | Hint::Workspace | Hint::Backward | Hint::Rule(Category::Unknown));
        let is_operator = operator.is_some() && !is_final;
        let is_in = |fact| matched_frames(data, stack).any(|frame| frame.is(fact));
        let of = operator.and_then(|operator| operator.backward_of).unwrap_or_default();
        Self {
            hint,
            is_operator,
            in_optimizer: is_operator && is_in(Fact::Optimizer),
            is_variable,
            is_structure,
            in_forward: is_in(Fact::Forward),
            moves: calls(Fact::Move),
            multiplies: calls(Fact::Product),
            is_workers: is_workers(data, stack),
            is_gradient: operator.is_some_and(|operator| rules.is_gradient(operator.root, of)),
        }
    }

    /// Whether the category of its blocks depends on how the site repeats.
    pub(super) fn may_repeat(self) -> bool {
        matches!(self.hint, Hint::Input | Hint::Forward | Hint::Join)
    }

    /// The hint, given whether one of the block's scopes is an optimizer's.
    pub(super) fn within(self, is_step: bool) -> Hint {
        if self.in_optimizer || self.is_operator && is_step { Hint::Step } else { self.hint }
    }
}

impl Hint {
    /// Whether it is part of the program's computation. Such a block ends a pass of another kind.
    pub(super) fn is_work(self) -> bool {
        !matches!(self, Self::GivenOut | Self::Workspace | Self::Nothing)
    }
}

/// Whether a line of a Python program allocates the block itself, outside of functions that are part of a backward
/// pass.
fn is_scripts(data: &Attribution<'_>, stack: StackId) -> bool {
    let frame = matched_frames(data, stack).find(|frame| frame.origin() == Origin::Workspace);
    frame.is_some_and(|frame| is_script(frame.frame.file_or_empty()) && !frame.function().contains("backward"))
}

fn is_workers(data: &Attribution<'_>, stack: StackId) -> bool {
    let is_programs = |frame: MatchedFrame<'_>| matches!(frame.origin(), Origin::Workspace | Origin::Library);
    let is_of_pool = |frame: MatchedFrame<'_>| is_pool(&data.settings.rules, frame.frame);
    !matched_frames(data, stack).any(is_programs) && matched_frames(data, stack).any(is_of_pool)
}

/// The framework frames that are further inside than all frames of the program, innermost first.
fn framework_run<'d>(data: &'d Attribution<'_>, stack: StackId) -> impl Iterator<Item = MatchedFrame<'d>> {
    let frames = matched_frames(data, stack);
    let run = frames.take_while(|frame| !matches!(frame.origin(), Origin::Workspace | Origin::Library));
    run.filter(|frame| frame.origin() == Origin::Framework)
}

/// [`Category::Workspace`] if the rule of any frame names it. Otherwise, the category of the outermost frame that has a
/// rule.
fn by_rule(run: &[MatchedFrame<'_>]) -> Option<Category> {
    let mut found = run.iter().filter_map(|frame| frame.category());
    let outermost = found.clone().next_back();
    found.find(|category| *category == Category::Workspace).or(outermost)
}

/// Whether the block was created from data or a constant, not from other tensors.
pub(crate) fn is_made_anew(data: &Attribution<'_>, stack: StackId) -> bool {
    matches!(StackHint::of(data, stack).hint, Hint::Input | Hint::Constant | Hint::Variable)
}

/// Whether an operator allocated the block in an optimizer's step.
pub(crate) fn is_of_optimizer(data: &Attribution<'_>, stack: StackId, context: ContextId) -> bool {
    StackHint::of(data, stack).within(is_step(data, context)) == Hint::Step
}

pub(super) fn is_step(data: &Attribution<'_>, context: ContextId) -> bool {
    data.context_names(context).into_iter().any(|name| data.settings.rules.names(Fact::Step, name))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;
    use crate::recording::DeviceView;
    use crate::snapshot::SnapshotData;
    use crate::snapshot::testing::{Story, frame, registry, stacks};

    #[test]
    fn of_operators_of_other_frameworks_nothing_is_guessed() {
        let in_step = |operator| {
            let step = frame("step", &registry("burn-optim-0.21.0/src/optim/adam.rs"), 60);
            let main = frame("net::main", "/home/u/net/src/main.rs", 9);
            let mut trace = Story::cpu();
            trace.stacks(stacks(vec![operator, step, main], [[0, 1, 2]]));
            trace.alloc("soon", 2000).on(StackId(1)).free("soon");
            trace.alloc("last", 2000).on(StackId(1));
            trace.build()
        };
        let category =
            |data: &SnapshotData| DeviceView::of(data, &data.devices[0]).categories().get(NonZeroU64::new(1));
        let data = in_step(frame("mul_scalar", &registry("burn-tensor-0.21.0/src/tensor/api/numeric.rs"), 300));
        assert_eq!(category(&data), Category::Unknown);
        assert_eq!(operator(&Attribution::new(&data), StackId(1)).map(|operator| operator.root), Some("mul_scalar"));
        let hint = StackHint::of(&Attribution::new(&data), StackId(1));
        assert_eq!([false, true].map(|is_step| hint.within(is_step)), [Hint::Rule(Category::Unknown); 2]);
        let candles = in_step(frame("mul", &registry("candle-core-0.11.1/src/tensor.rs"), 300));
        assert_eq!(StackHint::of(&Attribution::new(&candles), StackId(1)).within(false), Hint::Step);
        assert_eq!(category(&candles), Category::Temporary);
    }

    #[test]
    fn without_an_operator_a_line_of_python_works_forward_outside_of_backward_functions() {
        let hint = |function, file| {
            let mut story = Story::cpu();
            story.stacks(stacks(vec![frame(function, file, 3)], [[0]]));
            StackHint::of(&Attribution::new(&story.build()), StackId(1)).within(false)
        };
        assert_eq!(hint("attend", "/home/u/train.py"), Hint::Forward);
        assert_eq!(hint("attend_backward", "/home/u/train.py"), Hint::Nothing);
        assert_eq!(hint("net::attend", "/home/u/net/src/main.rs"), Hint::Nothing);
    }
}
