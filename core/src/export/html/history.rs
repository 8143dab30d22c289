//! Block history: one row a block with its lifetime, and the log as steps on these rows.

use std::collections::HashMap;
use std::num::NonZeroU64;

use foldhash::fast::RandomState;

use crate::analysis::log;
use crate::snapshot::{Block, DeviceSnapshot, Record, RecordKind, StackId};

/// A block from its alloc to its free.
#[derive(Clone, Copy, Debug)]
pub(super) struct LifetimeRow {
    pub(super) block: Block,
    pub(super) weight: u64,
    /// `None` if it is live at the end.
    pub(super) freed_ns: Option<u64>,
    pub(super) freed_at: StackId,
    /// Known from the peak only: it was freed before the log begins.
    pub(super) is_gone: bool,
}

impl LifetimeRow {
    fn live(block: Block, weight: u64) -> Self {
        Self { block, weight, freed_ns: None, freed_at: StackId::NONE, is_gone: false }
    }
}

/// A record of the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct HistoryStep {
    pub(super) time_ns: u64,
    pub(super) row: u32,
    pub(super) is_free: bool,
    /// Live bytes of the device after it.
    pub(super) total: u64,
}

/// All blocks that a device's log, its peak or its end know.
#[derive(Debug, Default)]
pub(super) struct PageHistory {
    /// Blocks from before the log first, then in the order of their allocation.
    pub(super) rows: Vec<LifetimeRow>,
    /// How many rows are from before the log.
    pub(super) early: usize,
    pub(super) steps: Vec<HistoryStep>,
    /// The rows live at the peak, with their weights then.
    pub(super) peak: Vec<(u32, u64)>,
    /// The number of steps up to the peak, if the log has it.
    pub(super) peak_step: Option<usize>,
    /// Live bytes before the first step.
    pub(super) at_start: u64,
}

type BySeq = HashMap<NonZeroU64, (bool, u32), RandomState>;

/// Rows while the log is read: those from before the log are found last.
#[derive(Default)]
struct RowBuilder {
    early: Vec<LifetimeRow>,
    logged: Vec<LifetimeRow>,
    by_seq: BySeq,
}

impl RowBuilder {
    fn alloc(&mut self, block: Block, weight: u64) -> (bool, u32) {
        let place = (false, self.logged.len() as u32);
        self.logged.push(LifetimeRow::live(block, weight));
        block.seq.map(|seq| self.by_seq.insert(seq, place));
        place
    }

    fn early(&mut self, block: Block, weight: u64) -> (bool, u32) {
        let place = (true, self.early.len() as u32);
        self.early.push(LifetimeRow::live(block, weight));
        block.seq.map(|seq| self.by_seq.insert(seq, place));
        place
    }

    fn free(&mut self, record: &Record, weight: u64) -> (bool, u32) {
        let known = record.alloc_seq.and_then(|seq| self.by_seq.get(&seq).copied());
        let place = known.unwrap_or_else(|| self.early(record.block(), weight));
        let rows = if place.0 { &mut self.early } else { &mut self.logged };
        if let Some(row) = rows.get_mut(place.1 as usize) {
            (row.freed_ns, row.freed_at) = (Some(record.time_ns), record.stack);
        }
        place
    }
}

impl PageHistory {
    pub(super) fn of(device: &DeviceSnapshot) -> Self {
        let weight = |size| device.weight(size).bytes;
        let mut rows = RowBuilder::default();
        let steps: Vec<_> = log::entries(device)
            .map(|entry| {
                let (record, weight) = (entry.record, entry.weight.bytes);
                let place = match record.kind {
                    RecordKind::Alloc => rows.alloc(record.block(), weight),
                    RecordKind::Free => rows.free(record, weight),
                };
                (record.time_ns, record.kind == RecordKind::Free, place, entry.allocated)
            })
            .collect();
        for block in &device.live {
            if block.seq.is_none_or(|seq| !rows.by_seq.contains_key(&seq)) {
                rows.early(*block, weight(block.size));
            }
        }
        let start_ns = log::start_ns(device);
        let peak: Vec<((bool, u32), u64)> = device
            .peak_weights()
            .map(|(block, then)| {
                let known = block.seq.and_then(|seq| rows.by_seq.get(&seq).copied());
                (known.unwrap_or_else(|| gone(&mut rows, block, start_ns)), then.bytes)
            })
            .collect();
        let ranks = rows.sort_early();
        let early = rows.early.len();
        let row = |(is_early, at): (bool, u32)| if is_early { ranks[at as usize] } else { early as u32 + at };
        let step = |(time_ns, is_free, place, total)| HistoryStep { time_ns, row: row(place), is_free, total };
        Self {
            steps: steps.into_iter().map(step).collect(),
            peak: peak.into_iter().map(|(place, weight)| (row(place), weight)).collect(),
            peak_step: peak_step(device),
            at_start: log::allocated_at_start(device),
            early,
            rows: [rows.early, rows.logged].concat(),
        }
    }
}

fn peak_step(device: &DeviceSnapshot) -> Option<usize> {
    let made = |record: &Record| record.kind == RecordKind::Alloc && record.alloc_seq == device.peak.seq;
    match device.peak.seq {
        Some(_) => device.records.iter().position(made).map(|at| at + 1),
        None => (device.overwritten == 0).then_some(0),
    }
}

/// A block of the peak that was freed before the log begins.
fn gone(rows: &mut RowBuilder, block: &Block, start_ns: u64) -> (bool, u32) {
    let place = rows.early(*block, 0);
    if let Some(row) = rows.early.get_mut(place.1 as usize) {
        row.freed_ns = Some(row.block.time_ns.min(start_ns));
        row.is_gone = true;
    }
    place
}

impl RowBuilder {
    /// Sorts the early rows by age, those known from the peak only first; returns the new place of each.
    fn sort_early(&mut self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.early.len() as u32).collect();
        let rank = |row: &LifetimeRow| (!row.is_gone, row.block.seq);
        order.sort_by_key(|at| rank(&self.early[*at as usize]));
        let mut ranks = vec![0; order.len()];
        order.iter().zip(0..).for_each(|(at, rank)| ranks[*at as usize] = rank);
        self.early = order.into_iter().map(|at| self.early[at as usize]).collect();
        ranks
    }
}
