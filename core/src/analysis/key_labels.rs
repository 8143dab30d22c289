//! The labels of each key's rows.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;

use super::labels::{
    LabelSource, Labels, crate_label, function_label, line_label, model_line_label, module_label, operator_label,
    scope_label,
};
use super::layers::Layers;
use super::rows::Key;
use crate::memo::Memo;
use crate::recording::DeviceView;
use crate::snapshot::{Block, Category, SnapshotData, StackId, Thread, ThreadId};

impl<'a> Labels<'a> {
    /// The labels of this key's rows. The age of a block is its age at `at_ns`, in nanoseconds since the recording
    /// began.
    pub(crate) fn by(device: &'a DeviceView<'a>, key: Key, at_ns: u64) -> Self {
        let source = match key {
            Key::Line => LabelSource::Stack(line_label),
            Key::ModelLine => LabelSource::Stack(model_line_label),
            Key::ForwardLine => {
                let (pairings, lifetimes) = (device.pairings(), device.lifetimes());
                let lines = RefCell::new(Memo::of(|stack: StackId| model_line_label(device.data(), stack.0)));
                LabelSource::Block(Box::new(move |block| {
                    let forward = pairings.get(block.seq).and_then(|pairing| lifetimes.get(pairing.forward));
                    lines.borrow_mut().get(forward.map_or(block, |forward| &forward.block).stack).into()
                }))
            }
            Key::Layer => {
                let layers = Layers::of(device);
                LabelSource::Block(Box::new(move |block| layers.label(block)))
            }
            Key::Function => LabelSource::Stack(function_label),
            Key::Operator => LabelSource::Stack(operator_label),
            Key::Crate => LabelSource::Stack(crate_label),
            Key::Scope => LabelSource::Context(scope_label),
            Key::Module => LabelSource::Context(module_label),
            Key::Category => LabelSource::Block(Box::new(|block| device.categories().label(block.seq).into())),
            Key::Parameter => LabelSource::Block(Box::new(parameters(device))),
            Key::Name => LabelSource::Block(Box::new(|block| device.name(block.seq).unwrap_or(UNNAMED).into())),
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
}

/// Label of blocks without a name.
pub const UNNAMED: &str = "(unnamed)";

/// Label of blocks that are not parameters.
pub const NO_PARAMETER: &str = "(no parameter)";

fn parameters<'a>(device: &'a DeviceView<'_>) -> impl Fn(&Block) -> Cow<'a, str> + use<'a> {
    let (categories, snapshot) = (device.categories(), device.snapshot());
    move |block| match categories.get(block.seq) {
        Category::Parameter => snapshot.name(block.seq).unwrap_or("(a parameter without a name)").into(),
        _ => NO_PARAMETER.into(),
    }
}

/// Age classes of blocks, each with its upper limit in nanoseconds.
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
    // A block of which the log has only the free has the time 0.
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
