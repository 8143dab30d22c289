//! Origin of measured blocks: device, stack, and whether another thread allocated them.

use std::collections::HashMap;

use super::measure::Measured;
use crate::snapshot::{Device, SnapshotData, StackId};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct BlockOrigin {
    pub(super) device: Device,
    pub(super) stack: StackId,
    /// Allocated by a thread that holds memory of the code or shares some with it, and so may work for it.
    pub(super) of_helper: bool,
}

/// Maps origins with blocks live now or at the peak to their stacks in the snapshot.
pub(super) fn in_snapshot(measured: &Measured, data: &SnapshotData) -> HashMap<BlockOrigin, StackId> {
    let mut found = HashMap::new();
    for (seen, device) in measured.seen().iter().filter_map(|seen| Some((seen, data.device(seen.device)?))) {
        // The snapshot keeps the order of the ledger's blocks.
        let blocks = seen.ledger.live.iter().zip(&device.live);
        for (old, new) in blocks.chain(seen.ledger.peak.blocks.iter().zip(&device.peak.blocks)) {
            found.insert(BlockOrigin { device: seen.device, stack: old.stack, of_helper: false }, new.stack);
        }
    }
    found
}
