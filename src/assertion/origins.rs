//! Where the blocks of a measurement come from.

use std::collections::HashMap;

use super::measure::Measured;
use crate::snapshot::{Device, SnapshotData, StackId};

/// Where blocks come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Origin {
    pub(super) device: Device,
    pub(super) stack: StackId,
    /// Another thread's, which holds memory of the code, or shares some with it, and may work for it.
    pub(super) of_helper: bool,
}

/// The stacks of a measurement by their numbers in its snapshot, for those that have blocks live now or at the peak.
pub(super) fn in_snapshot(measured: &Measured, data: &SnapshotData) -> HashMap<Origin, StackId> {
    let mut found = HashMap::new();
    for (seen, device) in measured.seen().iter().filter_map(|seen| Some((seen, data.device(seen.device)?))) {
        // Both lists are in the order of the log.
        let blocks = seen.ledger.live.iter().zip(&device.live);
        for (old, new) in blocks.chain(seen.ledger.peak.blocks.iter().zip(&device.peak.blocks)) {
            found.insert(Origin { device: seen.device, stack: old.stack, of_helper: false }, new.stack);
        }
    }
    found
}
