//! Names blocks in the ledgers of the recording and of measurements.

use memtrace_core::snapshot::Device;

use super::{BlockLabel, measure, own, recorder};

/// Names the live block that starts at `address` on `device`, or on any device. False if no ledger has such a block.
pub(crate) fn name(device: Option<Device>, address: u64, label: BlockLabel<'_>) -> bool {
    own(|| {
        let recorded = recorder::name(device, address, label);
        measure::name(device, address, label) || recorded
    })
}
