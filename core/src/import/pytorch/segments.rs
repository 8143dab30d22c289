//! Segments of a snapshot with their blocks, and the segments that were there when the log began.

use std::collections::BTreeMap;

use super::fields::{DictFields, LARGEST, number};
use super::rows::{BlockRow, BlockState, Shape, SnapshotValues};
use super::shapes::SnapshotTables;
use super::words;
use crate::import::pickle::{PickleValue, Refusal};
use crate::snapshot::{ContextId, RecordKind, Segment, SegmentRecord, StackId, ThreadId};

/// A block that is not inactive, with its address.
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
    /// By address.
    pub(super) segments: Vec<Segment>,
    /// By address.
    pub(super) active: Vec<ActiveBlock>,
    /// Segments of private pools (CUDA graphs), and their bytes.
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
    /// `placed` says which blocks have a segment already.
    fn add(
        &mut self,
        fields: &DictFields<'_>,
        tables: &SnapshotTables,
        placed: &mut [bool],
        values: &SnapshotValues<'_>,
    ) -> Result<(), Refusal> {
        let address = fields.needed(words::ADDRESS, values)?;
        let size = fields.needed(words::TOTAL_SIZE, values)?;
        self.segments.push(Segment { address, size, estimated: false });
        let pool = fields.find(words::SEGMENT_POOL_ID).map_or(&[][..], |pool| values.list(pool));
        if pool.iter().any(|part| number(*part, values) != Some(0)) {
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

    /// An inactive block may still say what a larger one was asked for; an active one may not.
    fn active_block(&mut self, address: u64, block: &BlockRow) -> Result<(), Refusal> {
        if block.requested > block.size {
            return Err(Refusal::new("a block that is smaller than what was asked for"));
        }
        let is_pending = block.state == BlockState::Pending;
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

/// Events of a log in pieces that came whole and go whole: an expandable segment is mapped and unmapped in different pieces.
/// Segments that were there when the log began come first, at its beginning.
pub(super) fn whole_pieces(events: &[SegmentRecord], now: &[Segment]) -> Vec<SegmentRecord> {
    let mut there: BTreeMap<u64, u64> = now.iter().map(|segment| (segment.address, segment.size)).collect();
    for event in events.iter().rev() {
        match event.kind {
            RecordKind::Alloc => cut(&mut there, event.address, event.size, |_, _, _| {}),
            RecordKind::Free => _ = there.insert(event.address, event.size),
        }
    }
    let before = |(address, size): (&u64, &u64)| SegmentRecord {
        time_ns: 0,
        address: *address,
        size: *size,
        kind: RecordKind::Alloc,
        estimated: false,
        stack: StackId::NONE,
        context: ContextId::ROOT,
        thread: ThreadId::default(),
    };
    let mut pieces: Vec<SegmentRecord> = there.iter().map(before).collect();
    for event in events {
        let piece = |kind, address, size| SegmentRecord { kind, address, size, ..*event };
        match event.kind {
            RecordKind::Alloc => {
                there.insert(event.address, event.size);
                pieces.push(*event);
            }
            RecordKind::Free => cut(&mut there, event.address, event.size, |kind, address, size| {
                pieces.push(piece(kind, address, size));
            }),
        }
    }
    pieces
}

/// Takes a range out of pieces; `each` is called for each piece that goes and for what stays of it.
fn cut(there: &mut BTreeMap<u64, u64>, from: u64, size: u64, mut each: impl FnMut(RecordKind, u64, u64)) {
    let to = from.saturating_add(size);
    let first = there.range(..=from).next_back().map_or(from, |(start, _)| *start);
    let touched: Vec<(u64, u64)> = there.range(first..to).map(|(start, size)| (*start, *size)).collect();
    for (start, size) in touched.into_iter().filter(|(start, size)| start + size > from) {
        there.remove(&start);
        each(RecordKind::Free, start, size);
        let end = start + size;
        for (start, end) in [(start, from.max(start)), (to.min(end), end)] {
            if end > start {
                there.insert(start, end - start);
                each(RecordKind::Alloc, start, end - start);
            }
        }
    }
}
