//! What was live, summed by a key: the rows add up to the total, to the byte.

use std::collections::BTreeMap;

use super::labels::{Labels, function_label, line_label, model_line_label, module_label, operator_label, scope_label};
use crate::attribute::Categories;
use crate::snapshot::{Block, Category, DeviceSnapshot, Sampling, SnapshotData};

/// One row of a breakdown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Line, function, scope or name.
    pub label: String,
    /// Bytes of its blocks; of a sample what they stand for.
    pub bytes: u64,
    /// Median size of its blocks, or of those that were recorded, rounded down.
    pub median: u64,
    /// Number of its blocks, of a sample as estimated; `None` where only the bytes are known.
    pub count: Option<u64>,
}

/// Live memory at one moment, by some key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Breakdown {
    /// Largest first; equal ones by label. The rows "before recording" and "below the threshold"
    /// stand among them.
    pub rows: Vec<Row>,
    /// The sum of all rows.
    pub total: u64,
}

impl Breakdown {
    /// The `count` largest rows, and the others in one.
    pub fn largest(&self, count: usize) -> Self {
        let (kept, rest) = self.rows.split_at(count.min(self.rows.len()));
        let mut rows = kept.to_vec();
        if !rest.is_empty() {
            let label = format!("({} smaller rows)", rest.len());
            let bytes = rest.iter().map(|row| row.bytes).sum();
            let count = rest.iter().filter_map(|row| row.count).sum();
            rows.push(Row { label, bytes, median: 0, count: Some(count) });
        }
        Self { rows, total: self.total }
    }
}

/// Label of what was allocated before the recording began.
pub const BEFORE_RECORDING: &str = "(allocated before recording)";

/// The peak's blocks by user line.
pub fn by_line(data: &SnapshotData, device: &DeviceSnapshot) -> Breakdown {
    at_peak(device, &mut Labels::of_stacks(data, line_label))
}

/// The peak's blocks by the line of the model: where that is a library's, [`by_line`] has the program's call of it.
pub fn by_model_line(data: &SnapshotData, device: &DeviceSnapshot) -> Breakdown {
    at_peak(device, &mut Labels::of_stacks(data, model_line_label))
}

/// The peak's blocks by the function of the user line.
pub fn by_function(data: &SnapshotData, device: &DeviceSnapshot) -> Breakdown {
    at_peak(device, &mut Labels::of_stacks(data, function_label))
}

/// The peak's blocks by the tensor operation that needed them.
pub fn by_operator(data: &SnapshotData, device: &DeviceSnapshot) -> Breakdown {
    at_peak(device, &mut Labels::of_stacks(data, operator_label))
}

/// The peak's blocks by the innermost scope in which they were allocated.
pub fn by_scope(data: &SnapshotData, device: &DeviceSnapshot) -> Breakdown {
    at_peak(device, &mut Labels::of_contexts(data, scope_label))
}

/// Label of blocks that the program gave no name.
pub const UNNAMED: &str = "(unnamed)";

/// The peak's blocks by the names that the program gave them.
pub fn by_name(data: &SnapshotData, device: &DeviceSnapshot) -> Breakdown {
    at_peak_by(data, device, |block| device.name(block.seq).unwrap_or(UNNAMED))
}

/// Label of blocks that are no parameter.
pub const NO_PARAMETER: &str = "(no parameter)";

/// The peak's blocks by the parameter of the model that they hold.
pub fn by_parameter(data: &SnapshotData, device: &DeviceSnapshot) -> Breakdown {
    let categories = Categories::of(data, device);
    at_peak_by(data, device, |block| match categories.get(block.seq) {
        Category::Parameter => device.name(block.seq).unwrap_or("(a parameter without a name)"),
        _ => NO_PARAMETER,
    })
}

/// The peak's blocks by what they are for.
pub fn by_category(data: &SnapshotData, device: &DeviceSnapshot) -> Breakdown {
    let categories = Categories::of(data, device);
    at_peak_by(data, device, |block| categories.get(block.seq).word())
}

/// The peak's blocks by the part of the model in which they were allocated.
pub fn by_module(data: &SnapshotData, device: &DeviceSnapshot) -> Breakdown {
    at_peak(device, &mut Labels::of_contexts(data, module_label))
}

fn at_peak_by<'a>(data: &SnapshotData, device: &'a DeviceSnapshot, label: impl Fn(&'a Block) -> &'a str) -> Breakdown {
    let mut sizes: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for block in &device.peak.blocks {
        sizes.entry(label(block)).or_default().push(block.size);
    }
    let rows = sizes.into_iter().map(|(label, sizes)| row(label.to_owned(), sizes, device.sampling)).collect();
    with_rest(data, rows, [device.peak.not_recorded, device.peak.below_threshold])
}

/// What is live at the end, by user line.
pub fn live_by_line(data: &SnapshotData, device: &DeviceSnapshot) -> Breakdown {
    let rest = [device.not_recorded, device.below_threshold];
    breakdown(device, &device.live, rest, &mut Labels::of_stacks(data, line_label))
}

/// What is live at the end, by the innermost scope in which it was allocated.
pub fn live_by_scope(data: &SnapshotData, device: &DeviceSnapshot) -> Breakdown {
    let rest = [device.not_recorded, device.below_threshold];
    breakdown(device, &device.live, rest, &mut Labels::of_contexts(data, scope_label))
}

fn at_peak(device: &DeviceSnapshot, labels: &mut Labels<'_>) -> Breakdown {
    let peak = &device.peak;
    breakdown(device, &peak.blocks, [peak.not_recorded, peak.below_threshold], labels)
}

fn breakdown(device: &DeviceSnapshot, blocks: &[Block], rest: [u64; 2], labels: &mut Labels<'_>) -> Breakdown {
    let rows = summed(blocks, device.sampling, labels);
    with_rest(labels.data(), rows, rest)
}

/// With what was not recorded, sorted and summed.
fn with_rest(data: &SnapshotData, mut rows: Vec<Row>, [before, below]: [u64; 2]) -> Breakdown {
    let below_label = format!("(blocks smaller than {})", crate::units::round(data.settings.min_size));
    for (label, bytes) in [(BEFORE_RECORDING.to_owned(), before), (below_label, below)] {
        if bytes > 0 {
            rows.push(Row { label, bytes, median: 0, count: None });
        }
    }
    rows.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.label.cmp(&b.label)));
    let total = rows.iter().map(|row| row.bytes).sum();
    Breakdown { rows, total }
}

fn summed(blocks: &[Block], sampling: Sampling, labels: &mut Labels<'_>) -> Vec<Row> {
    let mut sizes: Vec<Vec<u64>> = Vec::new();
    for block in blocks {
        let number = labels.number(block);
        if number >= sizes.len() {
            sizes.resize_with(number + 1, Vec::new);
        }
        if let Some(sizes) = sizes.get_mut(number) {
            sizes.push(block.size);
        }
    }
    labels.names().zip(sizes).map(|(label, sizes)| row(label.to_owned(), sizes, sampling)).collect()
}

fn row(label: String, mut sizes: Vec<u64>, sampling: Sampling) -> Row {
    sizes.sort_unstable();
    let upper = sizes.get(sizes.len() / 2).copied().unwrap_or(0);
    let lower = sizes.get((sizes.len().max(1) - 1) / 2).copied().unwrap_or(0);
    let bytes = sizes.iter().map(|size| sampling.bytes(*size)).sum();
    let count = Sampling::whole(sizes.iter().map(|size| sampling.parts(*size)).fold(0, u64::saturating_add));
    Row { label, bytes, median: lower.midpoint(upper), count: Some(count) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_of_sizes_lies_between_the_middle_two() {
        assert_eq!(row(String::new(), vec![1, 100, 3, 2], Sampling::default()).median, 2);
        assert_eq!(row(String::new(), vec![5, 1, 9], Sampling::default()).median, 5);
        assert_eq!(row(String::new(), vec![], Sampling::default()).median, 0);
    }
}
