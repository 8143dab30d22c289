//! For how many of the allocated bytes the uses are known.

use crate::snapshot::{BlockUses, Device, RecordKind, SnapshotData};

/// Bytes allocated on CUDA devices, and how many of them belong to blocks whose uses are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UseCoverage {
    /// Bytes of all allocs in the log.
    pub bytes: u64,
    /// Bytes of blocks whose last use is known, or that were never used.
    pub known: u64,
}

/// The coverage of uses, over all CUDA devices.
pub fn use_coverage(data: &SnapshotData) -> UseCoverage {
    let mut coverage = UseCoverage::default();
    for device in data.devices.iter().filter(|device| matches!(device.device, Device::Cuda(_))) {
        for record in device.records.iter().filter(|record| record.kind == RecordKind::Alloc) {
            let is_known = |uses: &&BlockUses| uses.known_last().is_some() || uses.is_unused();
            let known = device.uses_of(record.alloc_seq).filter(is_known).map_or(0, |_| record.size);
            coverage.bytes = coverage.bytes.saturating_add(record.size);
            coverage.known = coverage.known.saturating_add(known);
        }
    }
    coverage
}
