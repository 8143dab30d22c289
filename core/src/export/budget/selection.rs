//! Selection of records and marks, by the order in which a budget leaves them out.

use super::left_out::LeftOut;
use crate::hashed::HashSet;
use crate::snapshot::{ContextId, Device, DeviceSnapshot, Mark, Record, RecordKind, SnapshotData};

/// Sort key of allocations in the order in which they are left out: the smallest first, then by device and age.
type Rank = (u64, Device, u64);

/// Allocations that stay whatever their size, by device and `seq`.
type Kept = HashSet<(Device, u64)>;

#[derive(Debug, Default)]
pub(in crate::export) struct Selection<'a> {
    /// Allocations with a lower rank are hidden, unless they are among the kept ones.
    cut: Option<(Rank, &'a Kept)>,
    /// The depth of each context.
    depths: &'a [usize],
    pub(in crate::export) left_out: LeftOut,
}

impl Selection<'_> {
    /// True if a device's record is shown. An alloc and its free are shown or hidden together.
    pub(in crate::export) fn shows(&self, device: Device, record: &Record) -> bool {
        self.cut.is_none_or(|(cut, kept)| {
            (record.size, device, record.raw_seq()) >= cut || kept.contains(&(device, record.raw_seq()))
        })
    }

    pub(in crate::export) fn shows_mark(&self, mark: &Mark) -> bool {
        let depth_of = |context: ContextId| self.depths.get(context.0 as usize).copied().unwrap_or(0);
        self.left_out.scopes_below.is_none_or(|depth| depth_of(mark.context) <= depth)
    }
}

pub(super) struct Choices {
    /// Allocations in the order in which they are left out.
    candidates: Vec<Rank>,
    /// Blocks that were live at the peak or are live at the end.
    kept: Kept,
    /// The depth of each context.
    depths: Vec<usize>,
    deepest: usize,
}

impl Choices {
    pub(super) fn of(data: &SnapshotData) -> Self {
        let mut kept = Kept::default();
        for device in &data.devices {
            let blocks = device.live.iter().chain(&device.peak.blocks);
            kept.extend(blocks.map(|block| (device.device, block.raw_seq())));
        }
        let mut candidates: Vec<Rank> = data.devices.iter().flat_map(|device| candidates(device, &kept)).collect();
        candidates.sort_unstable();
        let marks = data.devices.iter().flat_map(|device| &device.marks);
        let depths = data.context_depths();
        let deepest = marks.filter_map(|mark| depths.get(mark.context.0 as usize)).max().copied().unwrap_or(0);
        Self { candidates, kept, depths, deepest }
    }

    pub(super) fn steps(&self) -> usize {
        self.candidates.len() + self.deepest
    }

    pub(super) fn selection(&self, step: usize, left_out: LeftOut) -> Selection<'_> {
        let beyond = (u64::MAX, Device::Imported, u64::MAX);
        let cut = self.candidates.get(step).copied().unwrap_or(beyond);
        Selection { cut: Some((cut, &self.kept)), depths: &self.depths, left_out }
    }

    pub(super) fn left_out(&self, step: usize) -> LeftOut {
        let allocations = step.min(self.candidates.len());
        let largest = allocations.checked_sub(1).and_then(|last| self.candidates.get(last)).map_or(0, |rank| rank.0);
        let levels = step - allocations;
        let scopes_below = (levels > 0).then(|| self.deepest.saturating_sub(levels));
        LeftOut { allocations: allocations as u64, largest, scopes_below, ..LeftOut::default() }
    }
}

/// The allocations of a log that can be left out. A block whose alloc was overwritten is found by its free.
fn candidates<'a>(device: &'a DeviceSnapshot, kept: &'a Kept) -> impl Iterator<Item = Rank> + 'a {
    let allocs = device.records.iter().filter(|record| record.kind == RecordKind::Alloc);
    let first = allocs.map(Record::raw_seq).min().unwrap_or(u64::MAX);
    let once = move |record: &&Record| record.kind == RecordKind::Alloc || record.raw_seq() < first;
    let free = move |record: &&Record| !kept.contains(&(device.device, record.raw_seq()));
    device.records.iter().filter(once).filter(free).map(|record| (record.size, device.device, record.raw_seq()))
}
