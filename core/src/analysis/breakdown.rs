//! Breakdowns of live memory by line, function, operator and other keys. The rows add up to the total, to the byte.

use std::collections::{BTreeMap, HashMap};

use super::labels::{
    BEFORE_RECORDING, Labels, allocator_label, crate_label, function_label, line_label, model_line_label, module_label,
    operator_label, pass_label, scope_label,
};
use crate::attribute::{Categories, once};
use crate::snapshot::{Block, Category, DeviceSnapshot, Peak, SnapshotData, Thread, ThreadId, Weight};

/// A row of a breakdown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// The line, function, scope, name or other key.
    pub label: String,
    /// Bytes of its blocks, by weight.
    pub bytes: u64,
    /// Median size of its recorded blocks, rounded down.
    pub median: u64,
    /// Number of its blocks, an estimate in a sample; `None` if only the bytes are known.
    pub count: Option<u64>,
}

/// Live memory at one moment, grouped by a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Breakdown {
    /// Largest first, then by label, including the rows for memory from before the recording and below the threshold.
    pub rows: Vec<Row>,
    /// The sum of all rows.
    pub total: u64,
}

/// Label of the same in a sample without small blocks, where such memory may as well be missing from the sample.
pub const NOT_IN_SAMPLE: &str = "(before recording, or not in the sample)";

/// The label of the bytes that none of these blocks counts for.
pub(crate) fn label_of_rest(device: &DeviceSnapshot, blocks: &[Block]) -> &'static str {
    if device.stand_for_small(blocks) { BEFORE_RECORDING } else { NOT_IN_SAMPLE }
}

/// The peak's blocks by user line.
pub fn by_line(data: &SnapshotData, device: &DeviceSnapshot) -> Breakdown {
    #[derive(Clone)]
    struct OfLines(Breakdown);
    once(data, device, || OfLines(at_peak(device, Labels::of_stacks(data, line_label)))).0
}

/// The peak's blocks by line of the model. Where that is a library's line, [`by_line`] shows the program's call.
pub fn by_model_line(data: &SnapshotData, device: &DeviceSnapshot) -> Breakdown {
    #[derive(Clone)]
    struct OfModelLines(Breakdown);
    once(data, device, || OfModelLines(at_peak(device, Labels::of_stacks(data, model_line_label)))).0
}

/// The peak's blocks by the function of the user line.
pub fn by_function(data: &SnapshotData, device: &DeviceSnapshot) -> Breakdown {
    at_peak(device, Labels::of_stacks(data, function_label))
}

/// The peak's blocks by operator.
pub fn by_operator(data: &SnapshotData, device: &DeviceSnapshot) -> Breakdown {
    at_peak(device, Labels::of_stacks(data, operator_label))
}

/// Bytes of the peak held by suballocators of frameworks, one row for each crate.
pub fn by_allocator(data: &SnapshotData, device: &DeviceSnapshot) -> Vec<Row> {
    let rows = summed(device.peak_weights(), &mut Labels::of_stacks(data, allocator_label));
    rows.into_iter().filter(|row| !row.label.is_empty()).collect()
}

/// The peak's blocks by innermost scope.
pub fn by_scope(data: &SnapshotData, device: &DeviceSnapshot) -> Breakdown {
    at_peak(device, Labels::of_contexts(data, scope_label))
}

/// Label of blocks without a name.
pub const UNNAMED: &str = "(unnamed)";

/// The peak's blocks by name.
pub fn by_name(data: &SnapshotData, device: &DeviceSnapshot) -> Breakdown {
    at_peak_by(data, device, |block| device.name(block.seq).unwrap_or(UNNAMED))
}

/// Label of blocks that are not parameters.
pub const NO_PARAMETER: &str = "(no parameter)";

/// The peak's blocks by parameter of the model.
pub fn by_parameter(data: &SnapshotData, device: &DeviceSnapshot) -> Breakdown {
    let categories = Categories::of(data, device);
    at_peak_by(data, device, |block| parameter_label(categories.get(block.seq), device.name(block.seq)))
}

/// The label of a block with this category and name.
pub(crate) fn parameter_label(category: Category, name: Option<&str>) -> &str {
    match category {
        Category::Parameter => name.unwrap_or("(a parameter without a name)"),
        _ => NO_PARAMETER,
    }
}

/// The peak's blocks by category.
pub fn by_category(data: &SnapshotData, device: &DeviceSnapshot) -> Breakdown {
    let categories = Categories::of(data, device);
    at_peak_by(data, device, |block| categories.label(block.seq))
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

/// The peak's blocks by their age at the peak.
pub fn by_age(data: &SnapshotData, device: &DeviceSnapshot) -> Breakdown {
    // A block that the log knows only from its free has the time 0.
    let age =
        |block: &Block| if block.time_ns == 0 { 0 } else { device.peak.time_ns.saturating_sub(block.time_ns).max(1) };
    at_peak_by(data, device, |block| {
        let age = age(block);
        AGES.iter().find(|(below, _)| age < *below).map_or("", |(_, label)| label)
    })
}

/// The peak's blocks by module of the model.
pub fn by_module(data: &SnapshotData, device: &DeviceSnapshot) -> Breakdown {
    at_peak(device, Labels::of_contexts(data, module_label))
}

/// The peak's blocks by the crate whose code requested them, the standard library's not included.
pub fn by_crate(data: &SnapshotData, device: &DeviceSnapshot) -> Breakdown {
    at_peak(device, Labels::of_stacks(data, crate_label))
}

/// The peak's blocks by the thread that allocated them.
pub fn by_thread(data: &SnapshotData, device: &DeviceSnapshot) -> Breakdown {
    let names = thread_names(data);
    at_peak_by(data, device, |block| names.get(&block.thread).map_or(UNKNOWN_THREAD, String::as_str))
}

/// Label of blocks whose thread is not listed.
pub(crate) const UNKNOWN_THREAD: &str = "(unknown thread)";

pub(crate) fn thread_names(data: &SnapshotData) -> HashMap<ThreadId, String> {
    let name = |thread: &Thread| match &*thread.name {
        "" => format!("(unnamed thread {})", thread.os_id),
        name => name.to_owned(),
    };
    data.process.threads.iter().map(|thread| (thread.number, name(thread))).collect()
}

/// The peak's blocks by CUDA stream, as the exporters number them.
pub fn by_stream(data: &SnapshotData, device: &DeviceSnapshot) -> Breakdown {
    let names: HashMap<u32, String> =
        device.peak.blocks.iter().map(|block| (block.stream, stream_label(block.stream))).collect();
    at_peak_by(data, device, |block| names.get(&block.stream).map_or("", String::as_str))
}

pub(crate) fn stream_label(stream: u32) -> String {
    if stream == 0 { "default stream".to_owned() } else { format!("stream {stream}") }
}

fn at_peak_by<'a, 'b>(
    data: &SnapshotData,
    device: &'a DeviceSnapshot,
    label: impl Fn(&'a Block) -> &'b str,
) -> Breakdown {
    let mut sums: BTreeMap<&str, Sum> = BTreeMap::new();
    for (block, weight) in device.peak_weights() {
        sums.entry(label(block)).or_default().add(block, weight);
    }
    let rows = sums.into_iter().map(|(label, sum)| sum.row(label)).collect();
    peak_with_rest(data, device, rows)
}

/// The live blocks by user line.
pub fn live_by_line(data: &SnapshotData, device: &DeviceSnapshot) -> Breakdown {
    live(device, Labels::of_stacks(data, line_label))
}

/// The live blocks by innermost scope.
pub fn live_by_scope(data: &SnapshotData, device: &DeviceSnapshot) -> Breakdown {
    live(device, Labels::of_contexts(data, scope_label))
}

/// The operator that allocated more than half of a row of [`by_line`], or else "the backward pass".
pub(crate) fn operator_of_line(data: &SnapshotData, device: &DeviceSnapshot, line: &Row) -> Option<String> {
    let mut lines = Labels::of_stacks(data, line_label);
    let on_line: Vec<(&Block, Weight)> =
        device.peak_weights().filter(|(block, _)| lines.is_named(block, &line.label)).collect();
    let most_by = |label| {
        let mut rows = summed(on_line.iter().copied(), &mut Labels::of_stacks(data, label));
        rows.retain(|row| row.bytes > line.bytes / 2 && !row.label.starts_with('('));
        rows.pop().map(|row| row.label)
    };
    most_by(operator_label).or_else(|| most_by(pass_label))
}

fn at_peak(device: &DeviceSnapshot, mut labels: Labels<'_>) -> Breakdown {
    let rows = summed(device.peak_weights(), &mut labels);
    peak_with_rest(labels.data(), device, rows)
}

fn peak_with_rest(data: &SnapshotData, device: &DeviceSnapshot, rows: Vec<Row>) -> Breakdown {
    let Peak { not_recorded, below_threshold, ref blocks, .. } = device.peak;
    with_rest(data, rows, (label_of_rest(device, blocks), not_recorded), below_threshold)
}

fn live(device: &DeviceSnapshot, mut labels: Labels<'_>) -> Breakdown {
    let rows = summed(device.live_weights(), &mut labels);
    let not_recorded = (label_of_rest(device, &device.live), device.not_recorded);
    with_rest(labels.data(), rows, not_recorded, device.below_threshold)
}

/// Adds the rows of what was not recorded; sorts and sums.
fn with_rest(data: &SnapshotData, mut rows: Vec<Row>, not_recorded: (&str, u64), below: u64) -> Breakdown {
    let below_label = format!("(blocks smaller than {})", crate::units::round(data.settings.min_size));
    for (label, bytes) in [(not_recorded.0.to_owned(), not_recorded.1), (below_label, below)] {
        if let Some(row) = rows.iter_mut().find(|row| row.label == label && bytes > 0) {
            (row.bytes, row.count) = (row.bytes + bytes, None);
        } else if bytes > 0 {
            rows.push(Row { label, bytes, median: 0, count: None });
        }
    }
    rows.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.label.cmp(&b.label)));
    let total = rows.iter().map(|row| row.bytes).sum();
    Breakdown { rows, total }
}

fn summed<'a>(blocks: impl Iterator<Item = (&'a Block, Weight)>, labels: &mut Labels<'_>) -> Vec<Row> {
    let mut sums: Vec<Sum> = Vec::new();
    for (block, weight) in blocks {
        let number = labels.number(block.stack, block.context);
        if number >= sums.len() {
            sums.resize_with(number + 1, Sum::default);
        }
        if let Some(sum) = sums.get_mut(number) {
            sum.add(block, weight);
        }
    }
    labels.names().zip(sums).map(|(label, sum)| sum.row(label)).collect()
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
