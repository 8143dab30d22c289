//! Keys by which blocks are grouped, with the labels of the report's tables: line, operator, category, scope, …

use super::history::{HistoryRow, PageHistory};
use crate::analysis::{Key, KeySource, Labels, NO_PARAMETER};
use crate::numbered::Numbered;
use crate::recording::DeviceView;
use crate::snapshot::StackId;

/// A key with its labels.
#[derive(Debug)]
pub(super) struct BlockKey {
    pub(super) name: &'static str,
    pub(super) source: KeySource,
    pub(super) labels: Vec<String>,
    /// For each stack, context or row (`source` says which), the number of its label in `labels`.
    pub(super) numbers: Vec<u32>,
}

impl BlockKey {
    pub(super) fn of_row(&self, stacks: &UsedStacks, row: u32, block: &HistoryRow) -> usize {
        let at = match self.source {
            KeySource::Stack => stacks.number(block.block.stack),
            KeySource::Context => block.block.context.0,
            KeySource::Block => row,
        };
        self.numbers.get(at as usize).map_or(0, |number| *number as usize)
    }
}

/// The stacks of the blocks, numbered in the order of their first use.
#[derive(Debug, Default)]
pub(super) struct UsedStacks(Numbered<StackId>);

impl UsedStacks {
    pub(super) fn of(history: &PageHistory) -> Self {
        let mut used = Self::default();
        for row in &history.rows {
            used.0.number(row.block.stack);
            used.0.number(row.freed_at);
        }
        used
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = StackId> {
        self.0.keys().copied()
    }

    pub(super) fn number(&self, stack: StackId) -> u32 {
        self.0.get(&stack).map_or(0, |number| number as u32)
    }
}

impl BlockKey {
    /// The labels of the rows by a key, without duplicates.
    fn of(device: &DeviceView<'_>, key: Key, history: &PageHistory, stacks: &UsedStacks) -> Self {
        let mut labels = Labels::by(device, key, 0);
        let source = labels.source();
        let numbers: Vec<usize> = match source {
            KeySource::Stack => stacks.ids().map(|stack| labels.number_at(stack.0)).collect(),
            KeySource::Context => {
                (0..device.data().contexts.len().max(1) as u32).map(|id| labels.number_at(id)).collect()
            }
            KeySource::Block => history.rows.iter().map(|row| labels.number(&row.block)).collect(),
        };
        let labels = labels.names().map(str::to_owned).collect();
        Self { name: key.word(), source, labels, numbers: numbers.into_iter().map(|number| number as u32).collect() }
    }
}

/// The keys of a device's blocks. The line of the forward pass, module, name and parameter are left out if no block has
/// one. Thread and stream are left out if all blocks have the same.
pub(super) fn keys(device: &DeviceView<'_>, history: &PageHistory, stacks: &UsedStacks) -> Vec<BlockKey> {
    let by = |key| BlockKey::of(device, key, history, stacks);
    let mut keys: Vec<BlockKey> =
        [Key::Category, Key::Line, Key::Function, Key::Operator, Key::Scope].into_iter().map(by).collect();
    if !device.pairings().is_empty() {
        keys.push(by(Key::ForwardLine));
    }
    if device.data().contexts.iter().any(|context| context.module) {
        keys.push(by(Key::Module));
    }
    if !device.names.is_empty() {
        keys.push(by(Key::Name));
        let parameters = by(Key::Parameter);
        keys.extend(Some(parameters).filter(|key| key.labels.iter().any(|label| label != NO_PARAMETER)));
    }
    keys.extend([Key::Thread, Key::Stream].into_iter().map(by).filter(|key| key.labels.len() > 1));
    keys
}
