//! Row labels of tables, by any key.

use std::borrow::Cow;
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::rc::Rc;

use foldhash::fast::RandomState;

use super::rows::Key;
use crate::attribute::{
    AllocationSite, Attribution, Origin, allocation_site, allocator, library, model_line, module, operator,
    package_and_path,
};
use crate::recording::DeviceView;
use crate::snapshot::{Block, Category, ContextId, Frame, SnapshotData, StackId, SymbolName, Thread, ThreadId};

/// A shorter path: relative to the working directory, or without the folders of a registry, checkout or toolchain.
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

/// `src/main.rs:42 (forward)`; only the name if the file is unknown.
pub fn frame_location(frame: &Frame, working_dir: &str) -> String {
    let name = frame.function_or_empty();
    let Some(file) = frame.known_file() else { return name.to_owned() };
    let (file, function) = (shorten_path(file, working_dir), SymbolName(name).short());
    match frame.line {
        Some(line) => format!("{file}:{line} ({function})"),
        None => format!("{file} ({function})"),
    }
}

/// The line of a stack, and up to `callers` lines of the program that led there.
pub fn line_and_callers(data: &Attribution<'_>, stack: StackId, callers: usize) -> Vec<String> {
    let line = line_label(data, stack.0);
    let is_users = |frame: &&Frame| Origin::of(&data.settings.rules, frame) == Origin::Workspace;
    let users = data.stacks.frames(stack).filter(is_users);
    let calls = users.map(|frame| frame_location(frame, &data.process.working_dir)).filter(|call| *call != line);
    let calls: Vec<String> = calls.take(callers).collect();
    std::iter::once(line).chain(calls).collect()
}

/// The label of a stack or a context, by its number.
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

/// How labels are made.
enum LabelSource<'a> {
    Stack(LabelOf),
    Context(LabelOf),
    Block(Box<dyn Fn(&Block) -> Cow<'a, str> + 'a>),
}

/// Labels of blocks by a key. Equal labels have one number; that of a stack or a context is made once.
pub(crate) struct Labels<'a> {
    data: &'a Attribution<'a>,
    source: LabelSource<'a>,
    /// Numbers by stack or context.
    known: HashMap<u32, usize, RandomState>,
    by_name: HashMap<Rc<str>, usize, RandomState>,
    names: Vec<Rc<str>>,
}

impl<'a> Labels<'a> {
    pub(super) fn of_stacks(data: &'a Attribution<'a>, label: LabelOf) -> Self {
        Self::new(data, LabelSource::Stack(label))
    }

    /// The labels of this key's rows. The age is that at a moment, in nanoseconds since the recording began.
    pub(crate) fn by(device: &'a DeviceView<'a>, key: Key, at_ns: u64) -> Self {
        let source = match key {
            Key::Line => LabelSource::Stack(line_label),
            Key::ModelLine => LabelSource::Stack(model_line_label),
            Key::Function => LabelSource::Stack(function_label),
            Key::Operator => LabelSource::Stack(operator_label),
            Key::Crate => LabelSource::Stack(crate_label),
            Key::Scope => LabelSource::Context(scope_label),
            Key::Module => LabelSource::Context(module_label),
            Key::Category => LabelSource::Block(Box::new(|block| device.categories().label(block.seq).into())),
            Key::Parameter => LabelSource::Block(Box::new(parameters(device))),
            Key::Name => {
                let names = device.snapshot().names_by_seq();
                LabelSource::Block(Box::new(move |block| names.get(block.seq).unwrap_or(UNNAMED).into()))
            }
            Key::Age => LabelSource::Block(Box::new(move |block| age_label(block, at_ns).into())),
            Key::Thread => {
                let names = thread_names(device.data());
                let name = move |block: &Block| {
                    names.get(&block.thread).map_or(UNKNOWN_THREAD.into(), |name| name.clone().into())
                };
                LabelSource::Block(Box::new(name))
            }
            Key::Stream => LabelSource::Block(Box::new(|block| stream_label(block.stream).into())),
        };
        Self::new(device.data(), source)
    }

    fn new(data: &'a Attribution<'a>, source: LabelSource<'a>) -> Self {
        Self { data, source, known: HashMap::default(), by_name: HashMap::default(), names: Vec::new() }
    }

    pub(crate) fn source(&self) -> KeySource {
        match self.source {
            LabelSource::Stack(_) => KeySource::Stack,
            LabelSource::Context(_) => KeySource::Context,
            LabelSource::Block(_) => KeySource::Block,
        }
    }

    /// The number of the block's label, in the order of first use.
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

    /// The number of the label of a stack or a context, where that decides it.
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

    /// The number of a label.
    pub(crate) fn number_of(&mut self, label: &str) -> usize {
        if let Some(&number) = self.by_name.get(label) {
            return number;
        }
        let name: Rc<str> = label.into();
        self.by_name.insert(name.clone(), self.names.len());
        self.names.push(name);
        self.names.len() - 1
    }

    pub(super) fn is_named(&mut self, block: &Block, name: &str) -> bool {
        self.name(block) == name
    }

    /// The block's label.
    pub(crate) fn name(&mut self, block: &Block) -> &str {
        let number = self.number(block);
        self.names.get(number).map_or("", |name| name)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| &**name)
    }
}

/// Label of blocks without a name.
pub const UNNAMED: &str = "(unnamed)";

/// Label of blocks that are not parameters.
pub const NO_PARAMETER: &str = "(no parameter)";

fn parameters<'a>(device: &'a DeviceView<'_>) -> impl Fn(&Block) -> Cow<'a, str> + use<'a> {
    let (categories, names) = (device.categories(), device.snapshot().names_by_seq());
    move |block| match categories.get(block.seq) {
        Category::Parameter => names.get(block.seq).unwrap_or("(a parameter without a name)").into(),
        _ => NO_PARAMETER.into(),
    }
}

/// Age classes of blocks, each below this number of nanoseconds.
const AGES: [(u64, &str); 7] = [
    (1, "(not known when)"),
    (1_000_000, "in the last millisecond"),
    (10_000_000, "1 to 10 ms before"),
    (100_000_000, "10 to 100 ms before"),
    (1_000_000_000, "0.1 to 1 s before"),
    (10_000_000_000, "1 to 10 s before"),
    (u64::MAX, "more than 10 s before"),
];

fn age_label(block: &Block, at_ns: u64) -> &'static str {
    // A block that the log knows only from its free has the time 0.
    let age = if block.time_ns == 0 { 0 } else { at_ns.saturating_sub(block.time_ns).max(1) };
    AGES.iter().find(|(below, _)| age < *below).map_or("", |(_, label)| label)
}

/// Label of blocks whose thread is not listed.
const UNKNOWN_THREAD: &str = "(unknown thread)";

fn thread_names(data: &SnapshotData) -> HashMap<ThreadId, String> {
    let name = |thread: &Thread| match &*thread.name {
        "" => format!("(unnamed thread {})", thread.os_id),
        name => name.to_owned(),
    };
    data.process.threads.iter().map(|thread| (thread.number, name(thread))).collect()
}

pub(crate) fn stream_label(stream: u32) -> String {
    if stream == 0 { "default stream".to_owned() } else { format!("stream {stream}") }
}

/// Label of memory from before the recording.
pub const BEFORE_RECORDING: &str = "(allocated before recording)";

/// Label of what has no stack.
pub(crate) const NO_STACK: &str = "(no stack)";

/// The label of a stack of which no function has a name.
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
    let dir = &data.process.working_dir;
    match allocation_site(data, StackId(stack)) {
        AllocationSite::User(frame) => frame_location(frame, dir),
        AllocationSite::Framework(frame) => no_user_frame(data, stack, frame_location(frame, dir)),
        AllocationSite::Unknown => nameless(data, StackId(stack)).into_owned(),
    }
}

/// The end of a label without a user line.
pub(crate) const NO_USER_FRAME: &str = "[no user frame]";

/// Label without a user line: the suballocator, or else the framework's frame.
fn no_user_frame(data: &Attribution<'_>, stack: u32, frame: String) -> String {
    let allocator = allocator(data, StackId(stack)).map(|allocator| format!("{allocator}'s allocator"));
    format!("{} {NO_USER_FRAME}", allocator.unwrap_or(frame))
}

pub(super) fn model_line_label(data: &Attribution<'_>, stack: u32) -> String {
    let line = model_line(data, StackId(stack));
    line.map_or_else(|| line_label(data, stack), |frame| frame_location(frame, &data.process.working_dir))
}

/// The operator that allocated, or the library in parentheses.
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

pub(super) fn pass_label(data: &Attribution<'_>, stack: u32) -> String {
    let is_backward = operator(data, StackId(stack)).is_some_and(|operator| operator.is_backward);
    if is_backward { "the backward pass".to_owned() } else { "(no backward pass)".to_owned() }
}

/// Empty for blocks of no suballocator.
pub(super) fn allocator_label(data: &Attribution<'_>, stack: u32) -> String {
    allocator(data, StackId(stack)).unwrap_or_default()
}

pub(crate) fn function_label(data: &Attribution<'_>, stack: u32) -> String {
    let dir = &data.process.working_dir;
    match allocation_site(data, StackId(stack)) {
        AllocationSite::User(frame) => function_of(frame, dir),
        AllocationSite::Framework(frame) => no_user_frame(data, stack, function_of(frame, dir)),
        AllocationSite::Unknown => nameless(data, StackId(stack)).into_owned(),
    }
}

/// The function with its file. A closure's name may be just a number, so its line is added to keep closures apart.
fn function_of(frame: &Frame, dir: &str) -> String {
    let name = frame.function.as_deref().unwrap_or("(unknown function)");
    let Some(file) = frame.known_file().map(|file| shorten_path(file, dir)) else { return name.to_owned() };
    match name.starts_with('{') {
        true => format!("{name} ({file}:{})", frame.line.map_or(0, NonZeroU32::get)),
        false => format!("{name} ({file})"),
    }
}

/// The crate of the innermost frame outside of the standard library: whose code requested the block.
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
