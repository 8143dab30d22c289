//! Notes on what a snapshot does not contain.

use super::device::MissingFromLog;
use super::segments::DeviceSegments;
use crate::snapshot::DeviceSnapshot;
use crate::units::{Bytes, grouped};

/// Rounding is mentioned if it is at least this part (one hundredth) of the requested bytes, and at least
/// [`LEAST_ROUNDING`].
const WORTH_SAYING: u64 = 100;
const LEAST_ROUNDING: u64 = 64 << 10;

/// The notes on one device.
pub(super) fn about(device: &DeviceSnapshot, missing: MissingFromLog, placed: Option<&DeviceSegments>) -> Vec<String> {
    let mut notes = Vec::new();
    let name = device.device;
    if missing.before > 0 {
        let (freed, live) = (missing.before - missing.still_live, missing.still_live);
        notes.push(match device.records.is_empty() {
            true => format!("{name} has no log: its peak is what was live when the snapshot was taken"),
            false => format!(
                "the log of {name} began late or lost its beginning: {} blocks existed before; it frees {} of them, and {} \
                 are still live; when they were allocated is not known",
                grouped(missing.before as u64),
                grouped(freed as u64),
                grouped(live as u64)
            ),
        });
    }
    if missing.misfits > 0 {
        let misfits = grouped(missing.misfits);
        notes.push(format!(
            "{misfits} entries of the log of {name} do not fit the others, such as a block that is freed twice: entries are missing"
        ));
    }
    if !missing.has_times {
        notes.push(format!("the log of {name} has no times: only the order of its records is real"));
    }
    let Some(placed) = placed else {
        notes
            .push(format!("the snapshot names no segments of {name}: what was live before the log began is not known"));
        return notes;
    };
    let pending = placed.active.iter().filter(|block| block.is_pending);
    let (count, bytes) = pending.fold((0, 0), |(count, bytes), block| (count + 1, bytes + block.requested));
    if count > 0 {
        let (count, bytes) = (grouped(count), Bytes(bytes));
        notes.push(format!(
            "{count} blocks of {name} ({bytes}) are freed and still used by another stream; they count as live"
        ));
    }
    let live: u64 = placed.active.iter().map(|block| block.requested).sum();
    if placed.rounding >= (live / WORTH_SAYING).max(LEAST_ROUNDING) {
        notes.push(format!(
            "PyTorch's allocator gave the blocks that are live at the end on {name} {} more than they asked for: \
             `torch.cuda.memory_allocated()` counts it, the tables do not",
            Bytes(placed.rounding)
        ));
    }
    let (count, bytes) = placed.private;
    if count > 0 {
        let (count, bytes) = (grouped(count), Bytes(bytes));
        notes.push(format!("{count} segments of {name} ({bytes}) belong to private pools, as those of CUDA graphs do"));
    }
    notes
}
