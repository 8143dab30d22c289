//! Detects shadowed variables: two blocks live at the peak where one would do.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU64;

use foldhash::fast::RandomState;

use super::labels::frame_location;
use super::log;
use crate::attribute::{Origin, is_made_anew, once, operator};
use crate::snapshot::{Block, DeviceSnapshot, Frame, RecordKind, SnapshotData, StackId, ThreadId};

/// Blocks of one size that a function held together at the peak, and the peak if each had replaced the one before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveTwice {
    /// The function's lines that allocated them, oldest block first.
    pub lines: Vec<String>,
    /// Bytes of each block. In a sample only sizes that are always recorded are examined.
    pub size: u64,
    /// Number of blocks, at least 2.
    pub count: u64,
    /// Bytes of all blocks but the newest.
    pub older: u64,
    /// The device's peak if each block but the newest had been freed once the next one was allocated, all other records being
    /// the same. `None` if the log has lost records.
    pub peak_without: Option<u64>,
}

impl LiveTwice {
    /// Reduction of the peak in bytes; an upper bound if it is not known.
    fn saves(&self, peak: u64) -> u64 {
        self.peak_without.map_or(self.older, |without| peak.saturating_sub(without))
    }
}

/// Blocks that were live twice at the peak and are worth at least 1 % of it, largest reduction of the peak first.
///
/// Reads are not observed, so this relies on drop order: Rust drops a function's variables at its end, newest first. It
/// counts blocks of one thread and size that different lines of one function of the program allocated, directly or through
/// calls, and that were freed in that order with no allocation of the thread in between.
///
/// It excludes blocks that were live during a backward pass (a graph is dropped in the same order, and needed until then),
/// blocks still live, repeated allocations of one line, and blocks created from data or a constant, which replace nothing.
/// Weights are seldom counted, because the fields of a structure are dropped oldest first. A counted block may still be
/// needed: it may be the second operand of an operation, or belong to a graph that no backward pass uses.
pub fn live_twice(data: &SnapshotData, device: &DeviceSnapshot) -> Vec<LiveTwice> {
    once(data, device, || made(data, device))
}

fn made(data: &SnapshotData, device: &DeviceSnapshot) -> Vec<LiveTwice> {
    let peak = device.peak.bytes;
    let log = Log::of(data, device);
    let mut holders = Holders { data, known: HashMap::new() };
    let chains: Vec<Vec<&Block>> =
        by_size(device).into_values().flat_map(|blocks| log.chains(blocks, &mut holders)).collect();
    let large = chains.into_iter().filter(|chain| is_worth(older(chain), peak));
    let rows = large.map(|chain| LiveTwice {
        lines: holders.lines(&chain),
        size: chain.first().map_or(0, |block| block.size),
        count: chain.len() as u64,
        older: older(&chain),
        peak_without: log.peak_without(&chain),
    });
    let mut rows: Vec<LiveTwice> = rows.filter(|row| is_worth(row.saves(peak), peak)).collect();
    rows.sort_by(|a, b| b.saves(peak).cmp(&a.saves(peak)).then_with(|| a.lines.cmp(&b.lines)));
    rows
}

fn is_worth(bytes: u64, peak: u64) -> bool {
    bytes > 0 && bytes >= peak / 100
}

/// Bytes of all blocks but the newest.
fn older(chain: &[&Block]) -> u64 {
    chain.iter().skip(1).map(|block| block.size).sum()
}

/// The peak's blocks by thread and size, in the order of their allocation.
fn by_size(device: &DeviceSnapshot) -> BTreeMap<(u32, u64), Vec<&Block>> {
    let mut sizes: BTreeMap<_, Vec<&Block>> = BTreeMap::new();
    for block in device.peak.blocks.iter().filter(|block| device.is_exact(block)) {
        sizes.entry((block.thread.0, block.size)).or_default().push(block);
    }
    sizes
}

/// Where two stacks diverge within one function of the program: its frames in the older and the newer stack.
type Parting<'a> = Option<(&'a Frame, &'a Frame)>;

/// Cache of partings by pairs of stacks.
struct Holders<'a> {
    data: &'a SnapshotData,
    known: HashMap<(StackId, StackId), Parting<'a>>,
}

impl<'a> Holders<'a> {
    fn parting(&mut self, older: StackId, newer: StackId) -> Parting<'a> {
        let data = self.data;
        *self.known.entry((older, newer)).or_insert_with(|| parting(data, older, newer))
    }

    /// Did different lines of one function allocate the two blocks?
    fn have_one(&mut self, older: &Block, newer: &Block) -> bool {
        self.parting(older.stack, newer.stack).is_some()
    }

    /// The lines that allocated the blocks of a chain.
    fn lines(&mut self, chain: &[&Block]) -> Vec<String> {
        let mut frames: Vec<&Frame> = Vec::new();
        for pair in chain.windows(2) {
            if let Some((older, newer)) = self.parting(pair[0].stack, pair[1].stack) {
                frames.extend((frames.last() != Some(&older)).then_some(older));
                frames.push(newer);
            }
        }
        frames.into_iter().map(|frame| frame_location(frame, &self.data.process.working_dir)).collect()
    }
}

fn parting(data: &SnapshotData, older: StackId, newer: StackId) -> Parting<'_> {
    let own = |stack| {
        let frames =
            data.stacks.frames(stack).filter(|frame| Origin::of(&data.settings.rules, frame) == Origin::Workspace);
        let mut frames: Vec<&Frame> = frames.collect();
        frames.reverse();
        frames
    };
    let one_function = |a: &Frame, b: &Frame| a.file == b.file && a.function == b.function;
    // A block created from data or a constant replaces nothing.
    if is_made_anew(data, newer) {
        return None;
    }
    let (older_frames, newer_frames) = (own(older), own(newer));
    let (a, b) = older_frames.into_iter().zip(newer_frames).find(|(a, b)| a.line != b.line || !one_function(a, b))?;
    one_function(a, b).then_some((a, b))
}

struct Log<'a> {
    device: &'a DeviceSnapshot,
    /// Positions of the alloc and the free of each block of the peak, by the block's number.
    allocated: HashMap<Option<NonZeroU64>, usize>,
    freed: HashMap<Option<NonZeroU64>, usize>,
    allocs: HashMap<ThreadId, Vec<usize>>,
    /// Number of allocs in backward passes before each record.
    backward_before: Vec<usize>,
}

impl<'a> Log<'a> {
    fn of(data: &SnapshotData, device: &'a DeviceSnapshot) -> Self {
        let (mut allocated, mut freed) = (HashMap::new(), HashMap::new());
        // Sorted, as blocks of the peak are in the order of their allocation.
        let mut wanted: Vec<Option<NonZeroU64>> = device.peak.blocks.iter().map(|block| block.seq).collect();
        wanted.sort_unstable();
        let last = wanted.last().copied().flatten();
        let is_wanted = |seq: Option<NonZeroU64>| seq <= last && wanted.binary_search(&seq).is_ok();
        let (mut backward_before, mut count) = (Vec::with_capacity(device.records.len()), 0);
        let mut allocs: HashMap<ThreadId, Vec<usize>> = HashMap::new();
        let mut backward: HashMap<StackId, bool, RandomState> = HashMap::default();
        for (at, record) in device.records.iter().enumerate() {
            backward_before.push(count);
            if record.kind == RecordKind::Free {
                if is_wanted(record.alloc_seq) {
                    freed.insert(record.alloc_seq, at);
                }
                continue;
            }
            if is_wanted(record.alloc_seq) {
                allocated.insert(record.alloc_seq, at);
            }
            let is_backward = || operator(data, record.stack).is_some_and(|operator| operator.is_backward);
            allocs.entry(record.thread).or_default().push(at);
            count += usize::from(*backward.entry(record.stack).or_insert_with(is_backward));
        }
        Self { device, allocated, freed, allocs, backward_before }
    }

    /// Chains of at least two blocks, oldest first, that one function holds and that were freed newest first, with no alloc of
    /// their thread in between.
    fn chains(&self, blocks: Vec<&'a Block>, holders: &mut Holders<'_>) -> Vec<Vec<&'a Block>> {
        let allocs_before =
            |thread, at| self.allocs.get(&thread).map_or(0, |all| all.partition_point(|alloc| *alloc < at));
        let freed = |block: &&Block| self.freed.get(&block.seq).map(|&at| (at, allocs_before(block.thread, at)));
        let mut ends: Vec<_> = blocks.into_iter().filter_map(|block| Some((freed(&block)?, block))).collect();
        ends.sort_unstable_by_key(|&((at, _), _)| at);
        let runs = ends
            .chunk_by(|(a, newer), (b, older)| a.1 == b.1 && newer.seq > older.seq && holders.have_one(older, newer));
        let chains = runs.map(|run| run.iter().rev().map(|&(_, block)| block).collect::<Vec<_>>());
        chains.filter(|chain| chain.len() > 1 && !self.saw_a_backward_pass(chain)).collect()
    }

    fn saw_a_backward_pass(&self, chain: &[&Block]) -> bool {
        let Some(oldest) = chain.first() else { return false };
        let from = self.allocated.get(&oldest.seq).copied().unwrap_or(0);
        let until = self.freed.get(&oldest.seq).copied().unwrap_or(0);
        self.backward_before[until] > self.backward_before[from]
    }

    /// The peak if each block of the chain had been freed right after the alloc of the next one.
    fn peak_without(&self, chain: &[&Block]) -> Option<u64> {
        let mut changes: HashMap<usize, i128> = HashMap::new();
        for pair in chain.windows(2) {
            let size = i128::from(pair[0].size);
            *changes.entry(self.allocated.get(&pair[1].seq)? + 1).or_default() -= size;
            *changes.entry(*self.freed.get(&pair[0].seq)?).or_default() += size;
        }
        let (found, without) = self.highest(&changes);
        // If the log does not reproduce the peak, it cannot give another one. In a sample it differs from the peak by chance, and
        // the difference between the two is still about right.
        let peak = i128::from(self.device.peak.bytes);
        let complete = self.device.overwritten == 0 && (found == peak || self.device.is_sample());
        complete.then_some(peak - (found - without)).and_then(|bytes| u64::try_from(bytes).ok())
    }

    /// The maximum of the log's total, as it is and with these changes at some records.
    fn highest(&self, changes: &HashMap<usize, i128>) -> (i128, i128) {
        let records = &self.device.records;
        let steps = records.iter().map(|record| i128::from(log::change(self.device, record)));
        let end = i128::from(self.device.live_by_sizes());
        let mut total = end - steps.clone().sum::<i128>();
        let (mut changed, mut most) = (total, (total, total));
        for (at, step) in steps.enumerate() {
            total += step;
            changed += step + changes.get(&at).copied().unwrap_or(0);
            most = (most.0.max(total), most.1.max(changed));
        }
        most
    }
}

#[cfg(test)]
#[path = "twice_tests.rs"]
mod tests;
