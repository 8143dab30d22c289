//! A device's records as allocations and frees of numbered blocks, in the order of time.

use std::collections::{HashMap, HashSet, VecDeque};
use std::num::NonZeroU64;

use foldhash::fast::RandomState;

use super::tables::ThreadTables;
use crate::analysis::{label_of_rest, log_start_ns};
use crate::attribute::Categories;
use crate::export::chrome::{end_ns, peak_position};
use crate::export::viewers::below_label;
use crate::snapshot::{Block, DeviceSnapshot, Record, RecordKind, Replay, SnapshotData};

pub(super) struct AllocationRecord {
    pub(super) time_ns: u64,
    /// Negative if it was freed.
    pub(super) bytes: i64,
    /// In place of an address, which several blocks can have.
    pub(super) block: u64,
    pub(super) stack: Option<usize>,
}

#[derive(Default)]
pub(super) struct BlockHistory {
    pub(super) records: Vec<AllocationRecord>,
    /// The last record of the peak; later ones have a later time.
    pub(super) peak_ns: u64,
}

impl BlockHistory {
    pub(super) fn of(data: &SnapshotData, device: &DeviceSnapshot, tables: &mut ThreadTables<'_>) -> Self {
        let (peak, start_ns) = (&device.peak, log_start_ns(device));
        let at_start = Replay::at_log_start(device).blocks();
        // The record of the peak may be lost.
        let of_time = || device.records.partition_point(|record| record.time_ns < peak.time_ns);
        let peak_at = peak_position(device).unwrap_or_else(of_time);
        let is_before_log = peak_at == 0 && device.overwritten > 0;
        let mut history = HistoryBuilder::new(data, device, tables);
        history.allocate_rest(start_ns.min(peak.time_ns), peak_at);
        if !is_before_log {
            history.become_live(start_ns, &at_start);
        }
        let (before, after) = device.records.split_at(peak_at.min(device.records.len()));
        before.iter().for_each(|record| history.apply(record));
        history.reach_peak(if is_before_log { Some((start_ns, &at_start)) } else { None });
        after.iter().for_each(|record| history.apply(record));
        history.reach_end(end_ns(data));
        history.done
    }
}

struct HistoryBuilder<'a, 't, 'd> {
    device: &'d DeviceSnapshot,
    categories: Categories,
    tables: &'t mut ThreadTables<'a>,
    /// Weights of the peak's blocks in a sample.
    at_peak: HashMap<NonZeroU64, u64, RandomState>,
    live: HashMap<NonZeroU64, Block, RandomState>,
    /// Blocks from before the recording that are freed in the log, in the order of their frees.
    before: VecDeque<u64>,
    /// The other bytes without a record: number, bytes and stack.
    rest: (u64, u64, usize),
    /// The same for blocks below the threshold.
    below: (u64, u64, usize),
    /// The next number for what has none.
    next: u64,
    earliest_ns: u64,
    done: BlockHistory,
}

impl<'a, 't, 'd> HistoryBuilder<'a, 't, 'd> {
    fn new(data: &'d SnapshotData, device: &'d DeviceSnapshot, tables: &'t mut ThreadTables<'a>) -> Self {
        let weights = device.peak_weights().filter(|_| device.is_sample());
        let at_peak = weights.filter_map(|(block, weight)| Some((block.seq?, weight.bytes))).collect();
        let peak = device.peak.blocks.iter().chain(&device.live).filter_map(|block| block.seq);
        let last = peak.chain(device.records.iter().filter_map(|record| record.alloc_seq)).max();
        let rest = (0, 0, tables.label(label_of_rest(device, &device.peak.blocks)));
        let below = (0, 0, tables.label(&below_label(data)));
        Self {
            device,
            categories: Categories::of(data, device),
            tables,
            at_peak,
            live: HashMap::default(),
            before: VecDeque::new(),
            rest,
            below,
            next: last.map_or(0, NonZeroU64::get) + 1,
            earliest_ns: 0,
            done: BlockHistory::default(),
        }
    }

    fn push(&mut self, time_ns: u64, block: u64, bytes: i64, stack: Option<usize>) {
        self.earliest_ns = self.earliest_ns.max(time_ns);
        self.done.records.push(AllocationRecord { time_ns: self.earliest_ns, bytes, block, stack });
    }

    /// A number for bytes without a record.
    fn allocate_unknown(&mut self, time_ns: u64, bytes: u64, stack: usize) -> u64 {
        let number = self.next;
        self.next += 1;
        if bytes > 0 {
            self.push(time_ns, number, signed(bytes), Some(stack));
        }
        number
    }

    /// Memory from before the recording.
    fn allocate_rest(&mut self, time_ns: u64, peak_at: usize) {
        let mut after_peak = 0;
        for (at, record) in self.device.records.iter().enumerate().filter(|(_, record)| is_unknown(record)) {
            let bytes = self.device.weight(record.size).bytes;
            after_peak += if at >= peak_at { bytes } else { 0 };
            let number = self.allocate_unknown(time_ns, bytes, self.rest.2);
            self.before.push_back(number);
        }
        let bytes = self.device.peak.not_recorded.saturating_sub(after_peak);
        self.rest = (self.allocate_unknown(time_ns, bytes, self.rest.2), bytes, self.rest.2);
    }

    fn apply(&mut self, record: &Record) {
        match (record.kind, record.alloc_seq) {
            (RecordKind::Alloc, _) => self.allocate(record.time_ns, &record.block()),
            (RecordKind::Free, Some(seq)) => {
                let stack =
                    (record.stack.0 > 0).then(|| self.stack_of(&Block { stack: record.stack, ..record.block() }));
                self.free(record.time_ns, seq, stack);
            }
            (RecordKind::Free, None) => {
                if let Some(number) = self.before.pop_front() {
                    self.push(record.time_ns, number, -signed(self.device.weight(record.size).bytes), None);
                }
            }
        }
    }

    fn allocate(&mut self, time_ns: u64, block: &Block) {
        let Some(seq) = block.seq else { return };
        if self.live.insert(seq, *block).is_none() {
            let stack = self.stack_of(block);
            self.push(time_ns, seq.get(), signed(self.weight(block)), Some(stack));
        }
    }

    fn free(&mut self, time_ns: u64, seq: NonZeroU64, stack: Option<usize>) {
        if let Some(block) = self.live.remove(&seq) {
            self.push(time_ns, seq.get(), -signed(self.weight(&block)), stack);
        }
    }

    fn weight(&self, block: &Block) -> u64 {
        let at_peak = block.seq.and_then(|seq| self.at_peak.get(&seq));
        at_peak.copied().unwrap_or_else(|| self.device.weight(block.size).bytes)
    }

    fn stack_of(&mut self, block: &Block) -> usize {
        self.tables.stack(block.stack, self.categories.get(block.seq))
    }

    /// Frees and allocates until exactly these blocks are live; nothing if the log is whole.
    fn become_live(&mut self, time_ns: u64, blocks: &[Block]) {
        let wanted: HashSet<NonZeroU64, RandomState> = blocks.iter().filter_map(|block| block.seq).collect();
        let mut gone: Vec<NonZeroU64> = self.live.keys().copied().filter(|seq| !wanted.contains(seq)).collect();
        gone.sort_unstable();
        gone.into_iter().for_each(|seq| self.free(time_ns, seq, None));
        blocks.iter().for_each(|block| self.allocate(time_ns, block));
    }

    /// Goes through the state of the peak, back to what the log says or on to `next`.
    fn reach_peak(&mut self, next: Option<(u64, &[Block])>) {
        let (device, time_ns) = (self.device, self.device.peak.time_ns);
        let now: Vec<Block> = if next.is_none() { self.live_blocks() } else { Vec::new() };
        self.become_live(time_ns, &device.peak.blocks);
        let bytes = device.peak.below_threshold;
        self.below = (self.allocate_unknown(time_ns, bytes, self.below.2), bytes, self.below.2);
        self.done.peak_ns = self.earliest_ns.max(time_ns);
        self.earliest_ns = self.done.peak_ns + 1;
        let (time_ns, blocks) = next.unwrap_or((self.earliest_ns, &now));
        self.become_live(time_ns, blocks);
    }

    fn live_blocks(&self) -> Vec<Block> {
        let mut blocks: Vec<Block> = self.live.values().copied().collect();
        blocks.sort_unstable_by_key(|block| block.seq);
        blocks
    }

    fn reach_end(&mut self, end_ns: u64) {
        let device = self.device;
        self.become_live(end_ns, &device.live);
        let ends = [(self.rest, device.not_recorded), (self.below, device.below_threshold)];
        for ((number, bytes, stack), at_end) in ends {
            if bytes > 0 && bytes != at_end {
                self.push(end_ns, number, -signed(bytes), None);
            }
            if bytes != at_end {
                self.allocate_unknown(end_ns, at_end, stack);
            }
        }
    }
}

/// A free of a block that the recording does not know.
fn is_unknown(record: &Record) -> bool {
    record.kind == RecordKind::Free && record.alloc_seq.is_none()
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
