//! Blocks of which there were two at the peak where one might have done: a shadowed variable's and its successor's.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU64;

use super::labels::frame_location;
use super::log;
use crate::attribute::{Origin, is_made_anew, operator};
use crate::snapshot::{Block, DeviceSnapshot, Frame, RecordKind, SnapshotData, StackId, ThreadId};

/// Blocks of one size that a function held at the peak together, and what if each had taken the place of the one
/// before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveTwice {
    /// The function's lines that asked for them, the oldest block's first.
    pub lines: Vec<String>,
    /// Bytes of each block. In a sample only blocks that are all recorded are looked at.
    pub size: u64,
    /// How many there were, at least 2.
    pub count: u64,
    /// Bytes of all but the newest.
    pub older: u64,
    /// The device's peak if each but the newest had been freed as soon as the next one was there, with all other
    /// records as they are. `None` if it cannot be worked out: the log has lost records.
    pub peak_without: Option<u64>,
}

impl LiveTwice {
    /// By how many bytes the peak would be lower; if that is not known, the most it can be.
    fn saves(&self, peak: u64) -> u64 {
        self.peak_without.map_or(self.older, |without| peak.saturating_sub(without))
    }
}

/// What was live twice at the peak and is worth at least a hundredth of it; what would lower the peak most comes first.
///
/// Nobody sees who reads a block, so this goes by how Rust drops a function's variables: all at its end, the newest
/// first. Counted are blocks of one thread and size that different lines of one function of the program asked for,
/// itself or through what they called, and that were freed in that order with no allocation of that thread in between.
///
/// Left out is what was live while a backward pass ran (a graph is dropped in the same order, and needed until then),
/// what is still live, and what one line asked for again and again. Weights are seldom counted: the parts of a
/// structure are dropped oldest first. What *is* counted may still be needed, as the two arguments of one operation
/// are, or belong to a graph that no backward pass uses. What is made from data or a constant takes nobody's place.
pub fn live_twice(data: &SnapshotData, device: &DeviceSnapshot) -> Vec<LiveTwice> {
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

/// Where two stacks of the program part: the calls of one function that led to the one and the other.
type Parting<'a> = Option<(&'a Frame, &'a Frame)>;

/// Which functions hold blocks, worked out once for each two stacks.
struct Holders<'a> {
    data: &'a SnapshotData,
    known: HashMap<(StackId, StackId), Parting<'a>>,
}

impl<'a> Holders<'a> {
    fn parting(&mut self, older: StackId, newer: StackId) -> Parting<'a> {
        let data = self.data;
        *self.known.entry((older, newer)).or_insert_with(|| parting(data, older, newer))
    }

    /// Did different lines of one function ask for them?
    fn have_one(&mut self, older: &Block, newer: &Block) -> bool {
        self.parting(older.stack, newer.stack).is_some()
    }

    /// The lines that asked for the blocks of a chain.
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
    // What is made of nothing does not take another one's place.
    if is_made_anew(data, newer) {
        return None;
    }
    let (older_frames, newer_frames) = (own(older), own(newer));
    let (a, b) = older_frames.into_iter().zip(newer_frames).find(|(a, b)| a.line != b.line || !one_function(a, b))?;
    one_function(a, b).then_some((a, b))
}

/// The log with what is asked of it again and again.
struct Log<'a> {
    device: &'a DeviceSnapshot,
    /// Where in the log a block was allocated and freed, by its number.
    allocated: HashMap<Option<NonZeroU64>, usize>,
    freed: HashMap<Option<NonZeroU64>, usize>,
    /// Where each thread allocated.
    allocs: HashMap<ThreadId, Vec<usize>>,
    /// How many allocs in a backward pass stand before each record.
    backward_before: Vec<usize>,
}

impl<'a> Log<'a> {
    fn of(data: &SnapshotData, device: &'a DeviceSnapshot) -> Self {
        let (mut allocated, mut freed) = (HashMap::new(), HashMap::new());
        let (mut backward_before, mut count) = (Vec::with_capacity(device.records.len()), 0);
        let mut allocs: HashMap<ThreadId, Vec<usize>> = HashMap::new();
        let mut backward = HashMap::new();
        for (at, record) in device.records.iter().enumerate() {
            backward_before.push(count);
            if record.kind == RecordKind::Free {
                freed.insert(record.alloc_seq, at);
                continue;
            }
            allocated.insert(record.alloc_seq, at);
            let is_backward = || operator(data, record.stack).is_some_and(|operator| operator.is_backward);
            allocs.entry(record.thread).or_default().push(at);
            count += usize::from(*backward.entry(record.stack).or_insert_with(is_backward));
        }
        Self { device, allocated, freed, allocs, backward_before }
    }

    /// Those of `blocks` that one function holds and that were freed one after the other, the newest first, without an
    /// alloc of their thread in between; each chain has its oldest block first and at least two.
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

    /// Did one run while the oldest block was live?
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
        // Where the log does not give the peak that was, it does not give another one. That of a sample is higher or lower
        // by chance, and what it becomes less by is about the same.
        let peak = i128::from(self.device.peak.bytes);
        let complete = self.device.overwritten == 0 && (found == peak || self.device.is_sample());
        complete.then_some(peak - (found - without)).and_then(|bytes| u64::try_from(bytes).ok())
    }

    /// The most bytes at once in the log as it is, and with what changes at some records.
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
