//! What a stack alone says of what a block is for.

use super::operator::FramePlace;
use super::{Origin, library, operator};
use crate::snapshot::{Category, ContextId, SnapshotData, StackId};

/// What a stack alone says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hint {
    /// A rule names the place.
    Rule(Category),
    /// A library that is not Rust, or a matrix kernel, works in it.
    Workspace,
    /// A backward pass needed it.
    Backward,
    /// An optimizer needed it at its work.
    Step,
    /// The program brings data in.
    Input,
    /// Tensors were joined: a cache that grows does that.
    Join,
    /// Another operator of the forward pass.
    Forward,
    /// None of these.
    Nothing,
}

impl Hint {
    /// Of an allocation with this stack, within these scopes.
    pub(super) fn of(data: &SnapshotData, stack: StackId, context: ContextId) -> Self {
        let by_rule = by_rule(data, stack);
        let operator = operator(data, stack);
        let in_step = || in_step(data, stack, context);
        match (by_rule, operator) {
            _ if library(data, stack).is_some() => Self::Workspace,
            (Some(Category::Workspace), _) => Self::Workspace,
            (_, Some(operator)) if operator.is_backward => Self::Backward,
            (_, Some(_)) if in_step() => Self::Step,
            (Some(category), _) => Self::Rule(category),
            (None, Some(operator)) if is_input(data, stack, operator.root) => Self::Input,
            (None, Some(operator)) if operator.root == "cat" => Self::Join,
            (None, Some(_)) => Self::Forward,
            (None, None) => Self::Nothing,
        }
    }

    /// Is it part of what the program works out, so that a pass of another kind is over?
    pub(super) fn is_work(self) -> bool {
        !matches!(self, Self::Workspace | Self::Nothing)
    }
}

/// The calls within frameworks that led to a block, the innermost first.
fn framework_run(data: &SnapshotData, stack: StackId) -> impl Iterator<Item = FramePlace<'_>> {
    let rules = &data.settings.rules;
    let frames = data.stacks.frames(stack).map(|frame| (Origin::of(rules, frame), frame));
    let run = frames.take_while(|(origin, _)| !matches!(origin, Origin::Workspace | Origin::Library));
    run.filter(|(origin, _)| *origin == Origin::Framework).map(|(_, frame)| FramePlace::of(frame))
}

/// A workspace wherever it stands; else what the outermost call says that a rule names.
fn by_rule(data: &SnapshotData, stack: StackId) -> Option<Category> {
    let rules = &data.settings.rules;
    let mut found = None;
    for place in framework_run(data, stack) {
        match rules.category(&place.package, &place.file, place.function) {
            Some(Category::Workspace) => return Some(Category::Workspace),
            Some(category) => found = Some(category),
            None => {}
        }
    }
    found
}

/// Is the operator that the program called one that brings data in?
fn is_input(data: &SnapshotData, stack: StackId, root: &str) -> bool {
    let is_root = |place: &FramePlace<'_>| place.function == root;
    let called = framework_run(data, stack).filter(is_root).last();
    called.is_some_and(|place| data.settings.rules.is_input(&place.package, &place.file, place.function))
}

/// Did an optimizer need it at its work: one of its functions, or a scope that is called so?
fn in_step(data: &SnapshotData, stack: StackId, context: ContextId) -> bool {
    let rules = &data.settings.rules;
    let works = |place: FramePlace<'_>| rules.is_optimizer(&place.package, &place.file, place.function);
    data.stacks.frames(stack).any(|frame| works(FramePlace::of(frame)))
        || data.context_names(context).into_iter().any(|name| rules.is_step(name))
}
