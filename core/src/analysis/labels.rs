//! Row labels of tables, by any key.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::rc::Rc;

use crate::attribute::{
    AllocationSite, Attribution, Origin, allocation_site, allocator, library, model_line, module, operator,
    package_and_path,
};
use crate::hashed::{HashMap, summed};
use crate::numbered::Numbered;
use crate::snapshot::{Block, ContextId, Frame, StackId, SymbolName};

/// Shortens a path: relative to the working directory, or without the folders of a registry, checkout or toolchain.
pub fn shorten_path<'a>(path: &'a str, working_dir: &str) -> &'a str {
    if let Some(below) = path.strip_prefix(working_dir).and_then(|rest| rest.strip_prefix('/'))
        && !working_dir.is_empty()
    {
        return below;
    }
    let registry = path.split_once("/registry/src/").and_then(|(_, rest)| rest.split_once('/'));
    let checkout = path.split_once("/git/checkouts/");
    let std = path.split_once("/library/").filter(|_| path.starts_with("/rustc/") || path.contains("/rustlib/src/"));
    registry.or(checkout).or(std).map_or(path, |(_, rest)| rest)
}

/// A frame as `src/main.rs:42 (forward)`; only the function if the file is unknown.
pub fn frame_location(frame: &Frame, working_dir: &str) -> String {
    let name = frame.function_or_empty();
    match frame.known_file() {
        Some(_) => format!("{} ({})", place(frame, working_dir), SymbolName(name).short()),
        None => name.to_owned(),
    }
}

/// `src/main.rs:42`; only the file if the line is unknown.
pub(crate) fn place(frame: &Frame, working_dir: &str) -> String {
    let file = shorten_path(frame.file_or_empty(), working_dir);
    frame.line.map_or_else(|| file.to_owned(), |line| format!("{file}:{line}"))
}

/// The label of a stack's line, and up to `callers` lines of the program that called it.
pub fn line_and_callers(data: &Attribution<'_>, stack: StackId, callers: usize) -> Vec<String> {
    let line = line_label(data, stack.0);
    let is_users = |frame: &&Frame| Origin::of(&data.settings.rules, frame) == Origin::Workspace;
    let users = data.stacks.frames(stack).filter(is_users);
    let calls = users.map(|frame| frame_location(frame, &data.process.working_dir)).filter(|call| *call != line);
    let calls: Vec<String> = calls.take(callers).collect();
    std::iter::once(line).chain(calls).collect()
}

/// Makes the label of a stack or a context from its number.
pub(super) type LabelOf = fn(&Attribution<'_>, u32) -> String;

/// What decides the label of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeySource {
    Stack,
    Context,
    Block,
}

impl KeySource {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Stack => "stack",
            Self::Context => "context",
            Self::Block => "block",
        }
    }
}

/// The label of a block.
type BlockLabel<'a> = dyn Fn(&Block) -> Cow<'a, str> + 'a;

pub(super) enum LabelSource<'a> {
    Stack(LabelOf),
    Context(LabelOf),
    Block(Box<BlockLabel<'a>>),
}

/// Labels of blocks by a key. Equal labels have the same number. A stack's or a context's label is made only once.
pub(crate) struct Labels<'a> {
    data: &'a Attribution<'a>,
    source: LabelSource<'a>,
    /// The label's number of each stack or context that was asked for.
    known: HashMap<u32, usize>,
    names: Numbered<Rc<str>>,
}

impl<'a> Labels<'a> {
    pub(super) fn of_stacks(data: &'a Attribution<'a>, label: LabelOf) -> Self {
        Self::new(data, LabelSource::Stack(label))
    }

    pub(super) fn new(data: &'a Attribution<'a>, source: LabelSource<'a>) -> Self {
        Self { data, source, known: HashMap::default(), names: Numbered::default() }
    }

    pub(crate) fn source(&self) -> KeySource {
        match self.source {
            LabelSource::Stack(_) => KeySource::Stack,
            LabelSource::Context(_) => KeySource::Context,
            LabelSource::Block(_) => KeySource::Block,
        }
    }

    /// The number of the block's label. Labels are numbered in the order of their first use.
    pub(crate) fn number(&mut self, block: &Block) -> usize {
        match &self.source {
            LabelSource::Stack(_) => self.number_at(block.stack.0),
            LabelSource::Context(_) => self.number_at(block.context.0),
            LabelSource::Block(label) => {
                let label = label(block);
                self.number_of(&label)
            }
        }
    }

    /// The number of the label of the stack or context `key`. The label is empty if labels depend on neither.
    pub(crate) fn number_at(&mut self, key: u32) -> usize {
        if let Some(&number) = self.known.get(&key) {
            return number;
        }
        let label = match self.source {
            LabelSource::Stack(label) | LabelSource::Context(label) => label(self.data, key),
            LabelSource::Block(_) => String::new(),
        };
        let number = self.number_of(&label);
        self.known.insert(key, number);
        number
    }

    pub(crate) fn number_of(&mut self, label: &str) -> usize {
        self.names.get(label).unwrap_or_else(|| self.names.number(label.into()))
    }

    pub(super) fn is_named(&mut self, block: &Block, name: &str) -> bool {
        self.name(block) == name
    }

    pub(crate) fn name(&mut self, block: &Block) -> &str {
        let number = self.number(block);
        self.names.rows().get(number).map_or("", |(name, ())| name)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(|name| &**name)
    }
}

/// Label of memory from before the recording.
pub const BEFORE_RECORDING: &str = "(allocated before recording)";

pub(crate) const NO_STACK: &str = "(no stack)";

/// Label of a stack in which no function has a name.
pub(crate) const NO_NAMES: &str = "(no names)";

fn nameless(data: &Attribution<'_>, stack: StackId) -> Cow<'static, str> {
    match (data.stacks.addresses(stack).next(), library(data, stack)) {
        (Some(_), Some(library)) => format!("({library})").into(),
        (Some(_), None) => NO_NAMES.into(),
        (None, _) if data.stacks.is_before_recording(stack) => BEFORE_RECORDING.into(),
        (None, _) => NO_STACK.into(),
    }
}

pub(crate) fn line_label(data: &Attribution<'_>, stack: u32) -> String {
    user_label(data, stack, frame_location)
}

/// The bytes of each line.
pub(crate) fn bytes_by_line(
    data: &Attribution<'_>,
    bytes: impl IntoIterator<Item = (StackId, u64)>,
) -> BTreeMap<String, u64> {
    let bytes = summed(bytes).into_iter();
    summed(bytes.map(|(stack, bytes)| (line_label(data, stack.0), bytes))).into_iter().collect()
}

/// The end of labels without a user line.
pub(crate) const NO_USER_FRAME: &str = "[no user frame]";

/// The label of the user's frame. If the stack has no user frame, the label names the suballocator, or else the
/// framework's frame.
fn user_label(data: &Attribution<'_>, stack: u32, label: fn(&Frame, &str) -> String) -> String {
    let (dir, stack) = (&data.process.working_dir, StackId(stack));
    let allocator = || allocator(data, stack).map(|allocator| format!("{allocator}'s allocator"));
    let without_line = |frame| format!("{} {NO_USER_FRAME}", allocator().unwrap_or_else(|| label(frame, dir)));
    match allocation_site(data, stack) {
        AllocationSite::User(frame) if frame.file_or_empty().is_empty() && allocator().is_some() => without_line(frame),
        AllocationSite::User(frame) => label(frame, dir),
        AllocationSite::Framework(frame) => without_line(frame),
        AllocationSite::Unknown => nameless(data, stack).into_owned(),
    }
}

pub(super) fn model_line_label(data: &Attribution<'_>, stack: u32) -> String {
    let line = model_line(data, StackId(stack));
    line.map_or_else(|| line_label(data, stack), |frame| frame_location(frame, &data.process.working_dir))
}

/// The suballocator or the native library that allocated the block, in parentheses; or else the operator.
pub fn operator_label(data: &Attribution<'_>, stack: u32) -> String {
    let stack = StackId(stack);
    if let Some(allocator) = allocator(data, stack) {
        return format!("({allocator}'s allocator)");
    }
    match (operator(data, stack), library(data, stack)) {
        (_, Some(library)) => format!("({library})"),
        (Some(operator), None) => operator.to_string(),
        (None, None) => "(no operator)".to_owned(),
    }
}

/// Label of blocks that a backward pass allocates.
pub(crate) const BACKWARD_PASS: &str = "the backward pass";

pub(super) fn pass_label(data: &Attribution<'_>, stack: u32) -> String {
    let is_backward = operator(data, StackId(stack)).is_some_and(|operator| operator.is_backward);
    if is_backward { BACKWARD_PASS.to_owned() } else { "(no backward pass)".to_owned() }
}

/// The suballocator of a block; empty if there is none.
pub(super) fn allocator_label(data: &Attribution<'_>, stack: u32) -> String {
    allocator(data, StackId(stack)).unwrap_or_default()
}

pub(crate) fn function_label(data: &Attribution<'_>, stack: u32) -> String {
    user_label(data, stack, function_of)
}

/// The function with its file. A closure's name may be only a number, so its line is added to tell closures apart.
fn function_of(frame: &Frame, dir: &str) -> String {
    let name = frame.function.as_deref().unwrap_or("(unknown function)");
    let Some(file) = frame.known_file().map(|file| shorten_path(file, dir)) else { return name.to_owned() };
    match name.starts_with('{') {
        true => format!("{name} ({file}:{})", frame.line.map_or(0, NonZeroU32::get)),
        false => format!("{name} ({file})"),
    }
}

/// The crate of the innermost frame outside of the standard library and memtrace. The code of this crate requested the
/// block.
pub(super) fn crate_label(data: &Attribution<'_>, stack: u32) -> String {
    let rules = &data.settings.rules;
    let is_own = |frame: &&Frame| !matches!(Origin::of(rules, frame), Origin::Std | Origin::Memtrace);
    let name = |frame: &Frame| {
        let package = package_and_path(frame.file_or_empty()).map(|(package, _)| package.replace('-', "_"));
        package.or_else(|| Some(SymbolName(frame.function_or_empty()).crate_and_module()?.0.to_owned()))
    };
    let name = data.stacks.frames(StackId(stack)).filter(is_own).find_map(name);
    name.unwrap_or_else(|| nameless(data, StackId(stack)).into_owned())
}

pub(crate) fn module_label(data: &Attribution<'_>, context: u32) -> String {
    module(data, ContextId(context)).unwrap_or_else(|| "(no module)".to_owned())
}

pub(crate) fn scope_label(data: &Attribution<'_>, context: u32) -> String {
    let path = data.context_path(ContextId(context));
    if path.is_empty() { "(no scope)".to_owned() } else { path }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_pytorch_does_not_know_are_left_out() {
        let frame = crate::snapshot::testing::frame("at::_ops::bmm::call", "??", 0);
        assert_eq!(frame_location(&frame, ""), "at::_ops::bmm::call");
        assert_eq!(function_of(&frame, ""), "at::_ops::bmm::call");
    }

    #[test]
    fn paths_are_shortened_to_what_tells() {
        let cases = [
            ("/home/u/p/src/main.rs", "src/main.rs"),
            ("/c/registry/src/index-1/candle-nn-0.11.1/src/conv.rs", "candle-nn-0.11.1/src/conv.rs"),
            ("/rustc/abc/library/alloc/src/vec.rs", "alloc/src/vec.rs"),
            ("/elsewhere/x.rs", "/elsewhere/x.rs"),
            ("/home/u/people/x.rs", "/home/u/people/x.rs"),
        ];
        for (path, short) in cases {
            assert_eq!(shorten_path(path, "/home/u/p"), short);
        }
    }
}
