//! The least memory that the driver's pool needs, according to the model of this pool. On a full card, the pool
//! releases what no block needs.

use crate::analysis::AllocatorModel;
use crate::recording::DeviceView;
use crate::snapshot::DeviceSnapshot;

/// A pool grows in steps of this size.
pub(super) const STEP: u64 = 32 << 20;
/// The accuracy of the search, in bytes.
const EXACT: u64 = STEP / 8;

/// The least memory with which the model serves all requests, including memory outside the pool. `None` without a pool.
/// Also `None` if the model needs more than the program's pool reserved, because then it does not match that pool.
pub(crate) fn least(device: &DeviceView<'_>) -> Option<u64> {
    let (mut too_little, mut enough) = (device.stats.allocated_bytes.peak, device.stats.reserved_bytes.peak);
    if !has_pool(device) || device.overwritten > 0 || !suffices(device, enough) {
        return None;
    }
    while enough.saturating_sub(too_little) > EXACT {
        let middle = too_little + (enough - too_little) / 2;
        let end = if suffices(device, middle) { &mut enough } else { &mut too_little };
        *end = middle;
    }
    Some(enough)
}

pub(super) fn has_pool(device: &DeviceSnapshot) -> bool {
    device.pool.is_some_and(|pool| pool.reserved_high > 0)
}

/// Whether the model serves all requests.
pub(super) fn suffices(device: &DeviceView<'_>, memory: u64) -> bool {
    let found = device.what_if(AllocatorModel::DriverPool { threshold: 0 }, Some(memory), 0);
    found.is_ok_and(|found| found.runs_out.is_none())
}

#[cfg(test)]
mod tests {
    use super::super::need::POOLS;
    use super::super::{Card, Fit};
    use super::*;
    use crate::snapshot::testing::Story;
    use crate::snapshot::{MemoryKind, Pool, SnapshotData};

    const MIB: u64 = 1 << 20;

    /// A block of 20 MiB, and after its free one of 60 MiB. A roomy pool keeps the first block's segment of 32 MiB.
    fn story() -> SnapshotData {
        let mut story = Story::cuda(0);
        story
            .segment_alloc(32 * MIB, 32 * MIB)
            .alloc("a", 20 * MIB)
            .address(32 * MIB)
            .memory(MemoryKind::Pool)
            .free("a");
        story.segment_alloc(64 * MIB, 64 * MIB).alloc("b", 60 * MIB).address(64 * MIB).memory(MemoryKind::Pool);
        story.pool(Pool { reserved_high: 96 * MIB, ..Pool::default() });
        story.build()
    }

    /// Memory that pools take beyond the live bytes, in MiB.
    fn pools(device: &DeviceView<'_>, memory: u64) -> u64 {
        let fit = Fit::of(device, Card::of_memory("a card", memory));
        fit.rows.iter().find(|row| row.what == POOLS).map_or(0, |row| row.high / MIB)
    }

    #[test]
    fn a_pool_gets_by_without_the_segments_that_it_only_keeps() {
        let data = story();
        let device = DeviceView::of(&data, &data.devices[0]);
        assert_eq!(device.stats.reserved_bytes.peak, 96 * MIB);
        let least = device.least_room().unwrap();
        // If there is no room for a step, the pool grows by 2 MiB.
        assert!((60 * MIB..=62 * MIB + EXACT).contains(&least), "{least}");
        assert!(suffices(&device, least) && !suffices(&device, 60 * MIB - 1));
        assert_eq!(pools(&device, 1 << 40), 32 + (least / MIB - 60));
        assert_eq!(device.least_room(), Some(least), "the same again");
    }

    #[test]
    fn where_the_model_is_not_like_the_pool_what_was_reserved_counts() {
        let mut data = story();
        data.devices[0].stats.reserved_bytes.peak = 59 * MIB;
        let device = DeviceView::of(&data, &data.devices[0]);
        assert_eq!((device.least_room(), pools(&device, 1 << 40)), (None, 32));
        // A file may claim that more is live than reserved.
        let mut data = story();
        data.devices[0].stats.allocated_bytes.peak = 1 << 40;
        let device = DeviceView::of(&data, &data.devices[0]);
        assert_eq!((device.least_room(), pools(&device, 1 << 40)), (Some(96 * MIB), 32));
        let mut data = story();
        data.devices[0].overwritten = 1;
        let device = DeviceView::of(&data, &data.devices[0]);
        assert_eq!((device.least_room(), pools(&device, 1 << 40)), (None, 36 + 32));
    }
}
