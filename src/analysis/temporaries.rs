//! Blocks that were freed soon after they were allocated: memory traffic that could be avoided.

use std::collections::HashMap;

use super::labels::line_label;
use crate::snapshot::{Block, DeviceSnapshot, Record, RecordKind, SnapshotData};

/// A block counts as temporary if it is freed before this many further blocks were allocated on its
/// device.
pub const SOON: usize = 10;

/// The temporaries of one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemporaryRow {
    /// The user line.
    pub label: String,
    /// Bytes allocated and freed again.
    pub bytes: u64,
    /// How many.
    pub count: u64,
    /// The largest one.
    pub largest: u64,
}

/// Temporaries by user line, most bytes first; from the log, so of the records that it still holds.
pub fn temporaries(data: &SnapshotData, device: &DeviceSnapshot) -> Vec<TemporaryRow> {
    let mut rows: HashMap<String, TemporaryRow> = HashMap::new();
    for block in short_lived(&device.records) {
        let label = line_label(data, &block);
        let row = rows.entry(label).or_insert_with_key(|label| TemporaryRow {
            label: label.clone(),
            bytes: 0,
            count: 0,
            largest: 0,
        });
        row.bytes += block.size;
        row.count += 1;
        row.largest = row.largest.max(block.size);
    }
    let mut rows: Vec<TemporaryRow> = rows.into_values().collect();
    rows.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.label.cmp(&b.label)));
    rows
}

fn short_lived(records: &[Record]) -> Vec<Block> {
    let mut allocated: HashMap<u64, usize> = HashMap::new();
    let mut allocs = 0;
    let mut found = Vec::new();
    for record in records {
        match record.kind {
            RecordKind::Alloc => {
                allocs += 1;
                allocated.insert(record.alloc_seq, allocs);
            }
            RecordKind::Free => {
                let since = allocated.remove(&record.alloc_seq).map(|at| allocs - at);
                if since.is_some_and(|since| since < SOON) {
                    found.push(record.block());
                }
            }
        }
    }
    found
}
