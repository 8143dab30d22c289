//! Temporaries: blocks freed soon after their allocation, which is avoidable memory traffic.

use std::num::NonZeroU64;

use super::breakdown::at;
use super::labels::{Labels, line_label};
use crate::attribute::allocator;
use crate::memo::Memo;
use crate::recording::DeviceView;
use crate::snapshot::{Record, RecordKind, Weight};

/// A block counts as temporary if it is freed before this many further blocks are allocated on its device.
pub const SOON: usize = 10;

/// Temporary blocks of one source line.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TemporaryRow {
    /// The source line.
    pub label: String,
    /// Bytes of these blocks.
    pub bytes: u64,
    /// Number of these blocks.
    pub count: u64,
    /// Real size of the largest block, in bytes.
    #[serde(rename = "largest_bytes")]
    pub largest: u64,
}

/// Temporaries by user line, most bytes first, from the records that are left in the log. Blocks of suballocators do
/// not count.
pub fn temporaries(device: &DeviceView<'_>) -> Vec<TemporaryRow> {
    let data = device.data();
    let mut labels = Labels::of_stacks(data, line_label);
    let mut rows: Vec<(Weight, u64)> = Vec::new();
    let mut is_given_out = Memo::of(|stack| allocator(data, stack).is_some());
    for Record { size, alloc_stack, .. } in short_lived(&device.records) {
        if is_given_out.get(*alloc_stack) {
            continue;
        }
        let (sum, largest) = at(&mut rows, labels.number_at(alloc_stack.0));
        *sum += device.weight(*size);
        *largest = (*size).max(*largest);
    }
    let row = |(label, (sum, largest)): (&str, (Weight, u64))| TemporaryRow {
        label: label.to_owned(),
        bytes: sum.bytes,
        count: sum.blocks(),
        largest,
    };
    let mut rows: Vec<TemporaryRow> = labels.names().zip(rows).map(row).collect();
    rows.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.label.cmp(&b.label)));
    rows
}

/// The frees of blocks that were freed before [`SOON`] more blocks were allocated.
pub(super) fn short_lived(records: &[Record]) -> impl Iterator<Item = &Record> {
    // The newest allocs that are not freed yet. Blocks that are freed soon are among them.
    let mut newest: [Option<NonZeroU64>; SOON] = [None; SOON];
    let mut allocs = 0;
    records.iter().filter(move |record| {
        if record.kind == RecordKind::Alloc {
            newest[allocs % SOON] = record.alloc_seq;
            allocs += 1;
            return false;
        }
        let found = newest.iter_mut().find(|seq| seq.is_some() && **seq == record.alloc_seq);
        found.is_some_and(|found| found.take().is_some())
    })
}
