//! Segments of a snapshot with their blocks, and the events of segments.

use std::collections::{BTreeMap, BTreeSet};

use super::fields::{DictFields, LARGEST, number};
use super::rows::{BlockRow, BlockState, Shape, SnapshotValues};
use super::shapes::SnapshotTables;
use crate::pytorch_words as words;
use crate::read::pickle::{PickleValue, Refusal};
use crate::snapshot::{Segment, SegmentRecord};

/// A block that is allocated or pending, with its address.
#[derive(Clone, Copy, Debug)]
pub(super) struct ActiveBlock {
    pub(super) address: u64,
    pub(super) requested: u64,
    pub(super) stack: u32,
    pub(super) is_pending: bool,
}

/// The segments of one device.
#[derive(Debug, Default)]
pub(super) struct DeviceSegments {
    /// Sorted by address.
    pub(super) segments: Vec<Segment>,
    /// Sorted by address.
    pub(super) active: Vec<ActiveBlock>,
    /// Bytes by which the active blocks are larger than was requested.
    pub(super) rounding: u64,
    /// Number of segments in private pools (CUDA graphs), and the bytes of these segments.
    pub(super) private: (u64, u64),
}

/// The segments of each device, by its number.
pub(super) fn by_device(
    segments: Option<PickleValue>,
    tables: &SnapshotTables,
    values: &SnapshotValues<'_>,
) -> Result<BTreeMap<u64, DeviceSegments>, Refusal> {
    let mut devices: BTreeMap<u64, DeviceSegments> = BTreeMap::new();
    let mut placed = vec![false; tables.blocks.len()];
    for segment in segments.map_or(&[][..], |segments| values.list(segments)) {
        let fields = DictFields(values.dict(*segment));
        let device = fields.number(words::DEVICE, values)?.unwrap_or(0);
        devices.entry(device).or_default().add(&fields, tables, &mut placed, values)?;
    }
    devices.values_mut().try_for_each(DeviceSegments::finish)?;
    Ok(devices)
}

impl DeviceSegments {
    /// Adds a segment. `placed` contains the blocks that already belong to a segment.
    fn add(
        &mut self,
        fields: &DictFields<'_>,
        tables: &SnapshotTables,
        placed: &mut [bool],
        values: &SnapshotValues<'_>,
    ) -> Result<(), Refusal> {
        let address = fields.needed(words::ADDRESS, values)?;
        let size = fields.needed(words::TOTAL_SIZE, values)?;
        let pool = fields.find(words::SEGMENT_POOL_ID).map_or(&[][..], |pool| values.list(pool));
        let part = |at: usize| pool.get(at).and_then(|part| number(*part, values)).unwrap_or(0);
        let pool = Some((part(0), part(1))).filter(|pool| *pool != (0, 0));
        self.segments.push(Segment { address, size, estimated: false, pool });
        if pool.is_some() {
            self.private = (self.private.0 + 1, self.private.1.saturating_add(size));
        }
        let end = address + size;
        let mut next = address;
        for block in fields.find(words::BLOCKS).map_or(&[][..], |blocks| values.list(blocks)) {
            let Some(Shape::Block(row)) = values.kept(*block) else {
                return Err(Refusal::new("a block without a state"));
            };
            let (block, placed) = (tables.blocks.get(row as usize), placed.get_mut(row as usize));
            let (Some(block), Some(placed)) = (block, placed) else { continue };
            if std::mem::replace(placed, true) {
                return Err(Refusal::new("one block in two places"));
            }
            let at = block.address.unwrap_or(next);
            next = at.checked_add(block.size).filter(|after| at >= next && *after <= end).ok_or_else(misplaced)?;
            if block.state != BlockState::Inactive {
                self.active_block(at, block)?;
            }
        }
        Ok(())
    }

    /// Adds an active block. Its requested size must fit into it. An inactive block is not checked: its requested
    /// size may be left from a larger block.
    fn active_block(&mut self, address: u64, block: &BlockRow) -> Result<(), Refusal> {
        if block.requested > block.size {
            return Err(Refusal::new("a block that is smaller than what was asked for"));
        }
        let is_pending = block.state == BlockState::Pending;
        self.rounding = self.rounding.saturating_add(block.size - block.requested);
        self.active.push(ActiveBlock { address, requested: block.requested, stack: block.stack, is_pending });
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Refusal> {
        self.segments.sort_unstable_by_key(|segment| segment.address);
        self.active.sort_unstable_by_key(|block| block.address);
        let overlaps = |pair: &[Segment]| matches!(pair, [first, next] if first.address + first.size > next.address);
        if self.segments.windows(2).any(overlaps) {
            return Err(Refusal::new("segments overlap"));
        }
        let last = self.segments.last().map_or(0, |last| last.address + last.size);
        if last < LARGEST { Ok(()) } else { Err(misplaced()) }
    }
}

fn misplaced() -> Refusal {
    Refusal::new("a block lies outside of its segment or on another block")
}

/// Splits the events of expandable segments, which are mapped and unmapped in different ranges, into pieces that are
/// always mapped and unmapped whole. In the input, these events are marked as `estimated`.
pub(super) fn whole_pieces(events: &[SegmentRecord]) -> Vec<SegmentRecord> {
    let most = 8 * events.len() + 1024;
    let mapped = events.iter().filter(|event| event.estimated);
    let bounds: BTreeSet<u64> = mapped.flat_map(|event| [event.address, event.address + event.size]).collect();
    let mut pieces = Vec::new();
    for event in events {
        let (mut from, end) = (event.address, event.address + event.size);
        let after = bounds.range(event.address.saturating_add(1)..).copied();
        let inside = after.take_while(|bound| event.estimated && *bound < end);
        for to in inside.chain([end]) {
            pieces.push(SegmentRecord { address: from, size: to - from, estimated: false, ..*event });
            from = to;
        }
        if pieces.len() > most {
            return events.iter().map(|event| SegmentRecord { estimated: false, ..*event }).collect();
        }
    }
    pieces
}
