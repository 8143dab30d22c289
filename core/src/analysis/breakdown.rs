//! Breakdowns of live memory by line, function, operator and other keys. The rows add up to the total, to the byte.

use std::borrow::Cow;

use super::labels::{BEFORE_RECORDING, Labels, allocator_label, operator_label, pass_label};
use super::live::LiveSet;
use super::rows::{Breakdown, Key, Row};
use crate::attribute::Attribution;
use crate::recording::DeviceView;
use crate::snapshot::{Block, Device, DeviceSnapshot, SnapshotData, Weight};

/// The label used instead of [`BEFORE_RECORDING`] if a sample contains no small blocks. The bytes that no block
/// accounts for may then also belong to small blocks that the sample missed.
pub const NOT_IN_SAMPLE: &str = "(before recording, or not in the sample)";

/// The label of the bytes that these blocks do not account for.
pub(crate) fn label_of_rest(device: &DeviceSnapshot, blocks: &[Block]) -> &'static str {
    if device.stand_for_small(blocks) { BEFORE_RECORDING } else { NOT_IN_SAMPLE }
}

impl DeviceView<'_> {
    /// Memory that was live at the peak, by this key.
    pub fn by(&self, key: Key) -> &Breakdown {
        self.tables[key as usize].get_or_init(|| of_set(&self.at_peak(), key))
    }
}

pub(crate) fn below_label(data: &SnapshotData) -> String {
    format!("(blocks smaller than {})", crate::units::round(data.settings.min_size))
}

impl<'r> LiveSet<'r> {
    /// Bytes that no block accounts for, with their labels in parentheses.
    pub(crate) fn rest(&self) -> impl Iterator<Item = (String, u64)> {
        let before = label_of_rest(self.device, &self.blocks).to_owned();
        let rest = [(before, self.not_recorded), (below_label(self.device.data()), self.below_threshold)];
        rest.into_iter().filter(|(_, bytes)| *bytes > 0)
    }

    /// Live memory, by this key.
    pub fn by(&self, key: Key) -> Cow<'r, Breakdown> {
        if self.is_peak() { Cow::Borrowed(self.device.by(key)) } else { Cow::Owned(of_set(self, key)) }
    }
}

fn of_set(live: &LiveSet<'_>, key: Key) -> Breakdown {
    let rows = summed(live.weights(), &mut Labels::by(live.device, key, live.time_ns), Labels::number);
    with_rest(live, rows)
}

/// Bytes of a GPU's peak that suballocators of frameworks hold, one row for each crate. The CPU has no such rows: what
/// a suballocator takes from the heap is for its own use.
pub fn by_allocator(device: &DeviceView<'_>) -> Vec<Row> {
    if !matches!(device.device, Device::Cuda(_)) {
        return Vec::new();
    }
    let rows = summed(device.peak_weights(), &mut Labels::of_stacks(device.data(), allocator_label), Labels::number);
    rows.into_iter().filter(|row| !row.label.is_empty()).collect()
}

/// The operator that allocated more than half of the row `line` of the table by `key`. If there is no such operator,
/// but backward passes allocated more than half, "the backward pass".
pub(crate) fn operator_of_row(live: &LiveSet<'_>, key: Key, line: &Row) -> Option<String> {
    let data = live.device.data();
    let mut lines = Labels::by(live.device, key, live.time_ns);
    let on_line: Vec<(&Block, Weight)> =
        live.weights().filter(|(block, _)| lines.is_named(block, &line.label)).collect();
    let most_by = |label: fn(&Attribution<'_>, u32) -> String| {
        let mut rows = summed(on_line.iter().copied(), &mut Labels::of_stacks(data, label), Labels::number);
        rows.retain(|row| row.bytes > line.bytes / 2 && !row.label.starts_with('('));
        rows.pop().map(|row| row.label)
    };
    most_by(operator_label).or_else(|| most_by(pass_label))
}

/// Adds the rows of unrecorded memory, sorts all rows, and sums them.
fn with_rest(live: &LiveSet<'_>, mut rows: Vec<Row>) -> Breakdown {
    for (label, bytes) in live.rest() {
        if let Some(row) = rows.iter_mut().find(|row| row.label == label) {
            (row.bytes, row.count) = (row.bytes + bytes, None);
        } else {
            rows.push(Row { label, bytes, median: 0, count: None });
        }
    }
    let total = rows.iter().map(|row| row.bytes).sum();
    Breakdown { rows: sorted(rows), total }
}

/// Sorts rows: the largest first, then by label.
pub(super) fn sorted(mut rows: Vec<Row>) -> Vec<Row> {
    rows.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.label.cmp(&b.label)));
    rows
}

/// The rows of these blocks, in the order in which their labels first occur.
pub(super) fn summed<'a, 'b>(
    blocks: impl Iterator<Item = (&'b Block, Weight)>,
    labels: &mut Labels<'a>,
    number: impl Fn(&mut Labels<'a>, &Block) -> usize,
) -> Vec<Row> {
    let mut sums: Vec<Sum> = Vec::new();
    for (block, weight) in blocks {
        at(&mut sums, number(labels, block)).add(block, weight);
    }
    labels.names().zip(sums).map(|(label, sum)| sum.row(label)).collect()
}

/// The value at this index, created if it is new.
pub(super) fn at<T: Default>(values: &mut Vec<T>, number: usize) -> &mut T {
    values.resize_with(values.len().max(number + 1), T::default);
    &mut values[number]
}

#[derive(Default)]
struct Sum {
    weight: Weight,
    sizes: Vec<u64>,
}

impl Sum {
    fn add(&mut self, block: &Block, weight: Weight) {
        self.weight += weight;
        self.sizes.push(block.size);
    }

    fn row(mut self, label: &str) -> Row {
        self.sizes.sort_unstable();
        let sizes = &self.sizes;
        let upper = sizes.get(sizes.len() / 2).copied().unwrap_or(0);
        let lower = sizes.get((sizes.len().max(1) - 1) / 2).copied().unwrap_or(0);
        let Weight { bytes, .. } = self.weight;
        Row { label: label.to_owned(), bytes, median: lower.midpoint(upper), count: Some(self.weight.blocks()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_of_sizes_lies_between_the_middle_two() {
        let median = |sizes: &[u64]| Sum { weight: Weight::default(), sizes: sizes.to_vec() }.row("").median;
        assert_eq!([median(&[1, 100, 3, 2]), median(&[5, 1, 9]), median(&[])], [2, 5, 0]);
    }
}
