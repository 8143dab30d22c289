//! Live blocks grouped by segment.

use crate::snapshot::{Block, DeviceSnapshot, Segment};

/// A segment with its live blocks, by address.
pub(super) struct PlacedSegment {
    pub(super) device: u64,
    pub(super) segment: Segment,
    pub(super) blocks: Vec<Block>,
}

/// The segments of a device; `number` is the device's number in viewers.
pub(super) fn placed(number: u64, device: &DeviceSnapshot) -> Vec<PlacedSegment> {
    let mut blocks = device.live.clone();
    blocks.sort_unstable_by_key(|block| block.address);
    let mut rest = blocks.as_slice();
    let within = |segment: &Segment| {
        let end = segment.address + segment.size;
        let (inside, after) = rest.split_at(rest.partition_point(|block| block.address < end));
        rest = after;
        PlacedSegment { device: number, segment: *segment, blocks: inside.to_vec() }
    };
    device.segments.iter().map(within).collect()
}
