//! Which records and marks are shown, and the order in which they are left out.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;

use super::left_out::LeftOut;
use crate::snapshot::{ContextId, Device, DeviceSnapshot, Mark, Record, RecordKind, SnapshotData};

/// Position in the order in which allocations are left out: by size, then device and age.
type Rank = (u64, Device, u64);

/// The allocations that are not left out whatever their size, by number.
type Kept = HashMap<Device, HashSet<u64, RandomState>>;

/// Which records and marks an export shows.
#[derive(Debug, Default)]
pub(in crate::export) struct Selection<'a> {
    /// Allocations that rank below are not shown, but for those that are kept.
    cut: Option<(Rank, &'a Kept)>,
    max_depth: Option<usize>,
    pub(in crate::export) left_out: LeftOut,
}

impl Selection<'_> {
    /// The records to show, oldest first.
    pub(in crate::export) fn records<'d>(&'d self, device: &'d DeviceSnapshot) -> impl Iterator<Item = &'d Record> {
        let shows = self.on(device.device);
        device.records.iter().filter(move |record| shows.record(record))
    }

    /// The part of one device.
    pub(in crate::export) fn on(&self, device: Device) -> DeviceSelection<'_> {
        let cut = self.cut.map(|(cut, kept)| (cut, kept.get(&device)));
        DeviceSelection { device, cut }
    }

    /// Is this mark's scope shown?
    pub(in crate::export) fn shows_mark(&self, data: &SnapshotData, mark: &Mark) -> bool {
        self.max_depth.is_none_or(|depth| data.context_ids(mark.context).len() <= depth)
    }
}

/// Which records of a device an export shows.
pub(in crate::export) struct DeviceSelection<'a> {
    device: Device,
    cut: Option<(Rank, Option<&'a HashSet<u64, RandomState>>)>,
}

impl DeviceSelection<'_> {
    /// Is this record shown? An alloc and its free are or are not together.
    pub(in crate::export) fn record(&self, record: &Record) -> bool {
        self.cut.is_none_or(|(cut, kept)| {
            (record.size, self.device, record.alloc_seq) >= cut
                || kept.is_some_and(|kept| kept.contains(&record.alloc_seq))
        })
    }
}

/// What can be left out, in order.
pub(super) struct Choices {
    /// Sorted.
    candidates: Vec<Rank>,
    /// What was live at the peak or is live at the end.
    kept: Kept,
    deepest: usize,
}

impl Choices {
    pub(super) fn of(data: &SnapshotData) -> Self {
        let mut choices = Self { candidates: Vec::new(), kept: Kept::new(), deepest: 0 };
        for device in &data.devices {
            let blocks = device.live.iter().chain(&device.peak.blocks);
            let kept: HashSet<u64, RandomState> = blocks.map(|block| block.seq).collect();
            choices.candidates.extend(candidates(device, &kept));
            choices.kept.insert(device.device, kept);
            let contexts: HashSet<ContextId, RandomState> = device.marks.iter().map(|mark| mark.context).collect();
            let depths = contexts.into_iter().map(|context| data.context_ids(context).len());
            choices.deepest = depths.fold(choices.deepest, usize::max);
        }
        choices.candidates.sort_unstable();
        choices
    }

    pub(super) fn steps(&self) -> usize {
        self.candidates.len() + self.deepest
    }

    /// Without the first `step` of what can be left out.
    pub(super) fn selection(&self, step: usize, left_out: LeftOut) -> Selection<'_> {
        let beyond = (u64::MAX, Device::Imported, u64::MAX);
        let cut = self.candidates.get(step).copied().unwrap_or(beyond);
        Selection { cut: Some((cut, &self.kept)), max_depth: left_out.scopes_below, left_out }
    }

    /// What that is.
    pub(super) fn left_out(&self, step: usize) -> LeftOut {
        let allocations = step.min(self.candidates.len());
        let largest = allocations.checked_sub(1).and_then(|last| self.candidates.get(last)).map_or(0, |rank| rank.0);
        let levels = step - allocations;
        let scopes_below = (levels > 0).then(|| self.deepest.saturating_sub(levels));
        LeftOut { allocations: allocations as u64, largest, scopes_below, ..LeftOut::default() }
    }
}

/// The allocations of a log that need not be kept, and the frees whose allocs it no longer holds.
fn candidates<'a>(device: &'a DeviceSnapshot, kept: &'a HashSet<u64, RandomState>) -> impl Iterator<Item = Rank> + 'a {
    let allocs = device.records.iter().filter(|record| record.kind == RecordKind::Alloc);
    let first = allocs.map(|record| record.alloc_seq).min().unwrap_or(u64::MAX);
    let once = move |record: &&Record| record.kind == RecordKind::Alloc || record.alloc_seq < first;
    let free = move |record: &&Record| !kept.contains(&record.alloc_seq);
    device.records.iter().filter(once).filter(free).map(|record| (record.size, device.device, record.alloc_seq))
}
