//! Temporaries: blocks freed soon after their allocation, which is avoidable memory traffic.

use std::collections::HashMap;
use std::num::NonZeroU64;

use super::labels::{Labels, line_label};
use crate::attribute::allocator;
use crate::snapshot::{Block, DeviceSnapshot, Record, RecordKind, SnapshotData, StackId, Weight};

/// A block counts as temporary if it is freed before this many further blocks are allocated on its device.
pub const SOON: usize = 10;

/// The temporaries of a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TemporaryRow {
    /// The user line.
    pub label: String,
    /// Bytes allocated and freed again.
    pub bytes: u64,
    /// Number of blocks.
    pub count: u64,
    /// Real size of the largest block.
    pub largest: u64,
}

/// Temporaries by user line, most bytes first, from the records that the log still holds. Blocks of suballocators do not
/// count.
pub fn temporaries(data: &SnapshotData, device: &DeviceSnapshot) -> Vec<TemporaryRow> {
    let mut labels = Labels::of_stacks(data, line_label);
    let mut rows: Vec<(Weight, u64)> = Vec::new();
    let mut given_out: HashMap<StackId, bool> = HashMap::new();
    let mut is_given_out = |stack| *given_out.entry(stack).or_insert_with(|| allocator(data, stack).is_some());
    for block in short_lived(&device.records).into_iter().filter(|block| !is_given_out(block.stack)) {
        let number = labels.number(block.stack, block.context);
        if number >= rows.len() {
            rows.resize(number + 1, Default::default());
        }
        if let Some((sum, largest)) = rows.get_mut(number) {
            *sum += device.weight(block.size);
            *largest = block.size.max(*largest);
        }
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

/// Blocks that were freed before [`SOON`] more were allocated.
pub(super) fn short_lived(records: &[Record]) -> Vec<Block> {
    // The newest allocs that are not freed: what is freed soon is among them.
    let mut newest: [Option<NonZeroU64>; SOON] = [None; SOON];
    let mut allocs = 0;
    let mut found = Vec::new();
    for record in records {
        match record.kind {
            RecordKind::Alloc => {
                newest[allocs % SOON] = record.alloc_seq;
                allocs += 1;
            }
            RecordKind::Free if record.alloc_seq.is_none() => {}
            RecordKind::Free => {
                if let Some(one) = newest.iter_mut().find(|seq| **seq == record.alloc_seq) {
                    *one = None;
                    found.push(record.block());
                }
            }
        }
    }
    found
}
