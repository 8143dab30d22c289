//! Keys that blocks are grouped by, with the labels of core's tables: line, operator, category, scope, …

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::history::{LifetimeRow, PageHistory};
use crate::analysis::{
    NO_PARAMETER, UNKNOWN_THREAD, UNNAMED, function_label, line_label, module_label, operator_label, parameter_label,
    scope_label, stream_label, thread_names,
};
use crate::attribute::Categories;
use crate::snapshot::{DeviceSnapshot, SnapshotData, StackId};

/// What decides the label of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeySource {
    Stack,
    Context,
    Block,
}

impl KeySource {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Stack => "stack",
            Self::Context => "context",
            Self::Block => "block",
        }
    }
}

/// A key with its labels.
#[derive(Debug)]
pub(super) struct BlockKey {
    pub(super) name: &'static str,
    pub(super) source: KeySource,
    pub(super) labels: Vec<String>,
    /// The label of each stack, context or row.
    pub(super) numbers: Vec<u32>,
}

impl BlockKey {
    pub(super) fn of_row(&self, stacks: &UsedStacks, row: u32, block: &LifetimeRow) -> usize {
        let at = match self.source {
            KeySource::Stack => stacks.number(block.block.stack),
            KeySource::Context => block.block.context.0,
            KeySource::Block => row,
        };
        self.numbers.get(at as usize).map_or(0, |number| *number as usize)
    }
}

/// The stacks that blocks have, numbered in the order of their first use.
#[derive(Debug, Default)]
pub(super) struct UsedStacks {
    pub(super) ids: Vec<StackId>,
    numbers: HashMap<StackId, u32, RandomState>,
}

impl UsedStacks {
    pub(super) fn of(history: &PageHistory) -> Self {
        let mut used = Self::default();
        for row in &history.rows {
            used.add(row.block.stack);
            used.add(row.freed_at);
        }
        used
    }

    fn add(&mut self, stack: StackId) {
        let next = self.ids.len() as u32;
        if *self.numbers.entry(stack).or_insert(next) == next {
            self.ids.push(stack);
        }
    }

    pub(super) fn number(&self, stack: StackId) -> u32 {
        self.numbers.get(&stack).copied().unwrap_or(0)
    }
}

/// Numbers labels; equal labels have one number.
#[derive(Default)]
struct LabelNumbers {
    labels: Vec<String>,
    numbers: HashMap<String, u32, RandomState>,
}

impl LabelNumbers {
    fn number(&mut self, label: &str) -> u32 {
        if let Some(number) = self.numbers.get(label) {
            return *number;
        }
        let number = self.labels.len() as u32;
        self.labels.push(label.to_owned());
        self.numbers.insert(label.to_owned(), number);
        number
    }

    fn key(mut self, name: &'static str, source: KeySource, labels: impl Iterator<Item = String>) -> BlockKey {
        let numbers = labels.map(|label| self.number(&label)).collect();
        BlockKey { name, source, labels: self.labels, numbers }
    }
}

/// The keys of a device's blocks. Module, name and parameter are left out where no block has one, thread and stream where all
/// blocks have the same.
pub(super) fn keys(
    data: &SnapshotData,
    device: &DeviceSnapshot,
    history: &PageHistory,
    stacks: &UsedStacks,
) -> Vec<BlockKey> {
    type Label = fn(&SnapshotData, u32) -> String;
    let by_stack = |name, label: Label| {
        let labels = stacks.ids.iter().map(|stack| label(data, stack.0));
        LabelNumbers::default().key(name, KeySource::Stack, labels)
    };
    let by_context = |name, label: Label| {
        let labels = (0..data.contexts.len().max(1) as u32).map(|context| label(data, context));
        LabelNumbers::default().key(name, KeySource::Context, labels)
    };
    let categories = Categories::of(data, device);
    let by_block = |name, label: &dyn Fn(&LifetimeRow) -> String| {
        LabelNumbers::default().key(name, KeySource::Block, history.rows.iter().map(label))
    };
    let mut keys = vec![
        by_block("category", &|row| categories.label(row.block.seq).to_owned()),
        by_stack("line", line_label),
        by_stack("function", function_label),
        by_stack("operator", operator_label),
        by_context("scope", scope_label),
    ];
    if data.contexts.iter().any(|context| context.module) {
        keys.push(by_context("module", module_label));
    }
    let names = device.names_by_seq();
    if !device.names.is_empty() {
        keys.push(by_block("name", &|row| names.get(row.block.seq).unwrap_or(UNNAMED).to_owned()));
        let parameter =
            |row: &LifetimeRow| parameter_label(categories.get(row.block.seq), names.get(row.block.seq)).to_owned();
        let parameters = by_block("parameter", &parameter);
        keys.extend(Some(parameters).filter(|key| key.labels.iter().any(|label| label != NO_PARAMETER)));
    }
    let threads = thread_names(data);
    let thread =
        |row: &LifetimeRow| threads.get(&row.block.thread).map_or_else(|| UNKNOWN_THREAD.to_owned(), Clone::clone);
    let several = [by_block("thread", &thread), by_block("stream", &|row| stream_label(row.block.stream))];
    keys.extend(several.into_iter().filter(|key| key.labels.len() > 1));
    keys
}
