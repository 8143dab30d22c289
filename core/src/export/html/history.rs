//! Block history: one row per block with its lifetime, and the log as steps that refer to these rows.

use std::num::NonZeroU64;

use crate::analysis::log;
use crate::hashed::HashMap;
use crate::snapshot::{
    Block, DeviceSnapshot, Lifetime, Lifetimes, LogPosition, NEVER, Record, RecordKind, StackId, Weight,
};

/// A block from its alloc to its free.
#[derive(Clone, Copy, Debug)]
pub(super) struct HistoryRow {
    pub(super) block: Block,
    pub(super) weight: u64,
    /// `None` if the block is live at the end.
    pub(super) freed_ns: Option<u64>,
    pub(super) freed_at: StackId,
    /// True if the block is known only from the peak, because it was freed before the log begins.
    pub(super) is_gone: bool,
}

/// A record of the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct HistoryStep {
    pub(super) time_ns: u64,
    pub(super) row: u32,
    pub(super) is_free: bool,
    /// Live bytes of the device after this record.
    pub(super) total: u64,
}

/// All blocks of a device's log, its peak and its end.
#[derive(Debug, Default)]
pub(super) struct PageHistory {
    /// Blocks from before the log come first, and among these the ones that are gone; then the others in the order of
    /// their allocation.
    pub(super) rows: Vec<HistoryRow>,
    /// Number of rows from before the log.
    pub(super) early: usize,
    pub(super) steps: Vec<HistoryStep>,
    /// The rows that were live at the peak, with their weights at that moment.
    pub(super) peak: Vec<(u32, u64)>,
    /// The number of steps up to the peak, if the log has it.
    pub(super) peak_step: Option<usize>,
    /// Live bytes before the first step.
    pub(super) at_start: u64,
}

impl PageHistory {
    pub(super) fn of(device: &DeviceSnapshot, lifetimes: &Lifetimes) -> Self {
        let step = |entry: log::Entry<'_>| HistoryStep {
            time_ns: entry.record.time_ns,
            row: 0,
            is_free: entry.record.kind == RecordKind::Free,
            total: entry.allocated,
        };
        let mut history = Self {
            steps: log::entries(device).map(step).collect(),
            peak_step: match device.peak.seq {
                Some(_) => log::peak_record(device).map(|at| at + 1),
                None => (device.overwritten == 0).then_some(0),
            },
            at_start: log::allocated_at_start(device),
            ..Self::default()
        };
        let of_lives = |is_one: fn(&Lifetime) -> bool| lifetimes.iter().filter(move |life| is_one(life));
        of_lives(|life| life.is_gone).for_each(|life| history.add_gone(device, life));
        history.add_unnumbered(device);
        of_lives(|life| life.from == 0 && !life.is_gone).for_each(|life| history.add_life(device, life));
        history.early = history.rows.len();
        of_lives(|life| life.from > 0).for_each(|life| history.add_life(device, life));
        history.add_peak(device);
        history
    }

    fn add_gone(&mut self, device: &DeviceSnapshot, life: &Lifetime) {
        let freed_ns = Some(life.block.time_ns.min(log::start_ns(device)));
        self.rows.push(HistoryRow { block: life.block, weight: 0, freed_ns, freed_at: StackId::NONE, is_gone: true });
    }

    fn add_life(&mut self, device: &DeviceSnapshot, life: &Lifetime) {
        self.add(device, life.block, life.free(device), [life.from, life.to]);
    }

    /// Adds a row for each free of a block from before the recording. Such a block has no sequence number.
    fn add_unnumbered(&mut self, device: &DeviceSnapshot) {
        let records = device.records.iter().zip(1..NEVER);
        for (record, position) in records.filter(|(record, _)| record.alloc_seq.is_none()) {
            self.add(device, record.block(), Some(record), [0, position]);
        }
    }

    fn add(&mut self, device: &DeviceSnapshot, block: Block, free: Option<&Record>, positions: [LogPosition; 2]) {
        let row = self.rows.len() as u32;
        for position in positions {
            if let Some(step) = (position as usize).checked_sub(1).and_then(|at| self.steps.get_mut(at)) {
                step.row = row;
            }
        }
        self.rows.push(HistoryRow {
            block,
            weight: device.weight(block.size).bytes,
            freed_ns: free.map(|free| free.time_ns),
            freed_at: free.map_or(StackId::NONE, |free| free.stack),
            is_gone: false,
        });
    }

    fn add_peak(&mut self, device: &DeviceSnapshot) {
        let seq = |(row, at): (&HistoryRow, u32)| Some((row.block.seq?, at));
        let rows: HashMap<NonZeroU64, u32> = self.rows.iter().zip(0..).filter_map(seq).collect();
        let row = |(block, then): (&Block, Weight)| Some((*rows.get(&block.seq?)?, then.bytes));
        self.peak = device.peak_weights().filter_map(row).collect();
    }
}
