//! Detects shadowed variables: two blocks live at the peak where one would do.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::num::NonZeroU64;

use foldhash::fast::RandomState;

use super::absence::Absence;
use super::labels::frame_location;
use super::log;
use crate::attribute::{Attribution, Origin, has_variables, is_made_anew, matched_frames, operator};
use crate::snapshot::{Block, DeviceSnapshot, Frame, RecordKind, StackId, ThreadId};

/// Blocks of one size that a function held together at the peak, and the peak if each had replaced the one before it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LiveTwice {
    /// The function's lines that allocated them, oldest block first.
    pub lines: Vec<String>,
    /// Bytes of each block. In a sample only sizes that are always recorded are examined.
    pub size: u64,
    /// Number of blocks, at least 2.
    pub count: u64,
    /// Bytes of all blocks but the newest.
    #[serde(rename = "older_bytes")]
    pub older: u64,
    /// The device's peak if each block but the newest had been freed once the next one was allocated, all other records being
    /// the same. `None` if the log has lost records.
    #[serde(rename = "peak_without_bytes")]
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
/// blocks still live, all blocks of programs with variables, blocks dropped after a refused allocation, repeated allocations of one line, and blocks created from data or a constant, which replace nothing.
/// Weights are seldom counted, because the fields of a structure are dropped oldest first. A counted block may still be
/// needed: it may be the second operand of an operation.
pub(crate) fn live_twice(data: &Attribution<'_>, device: &DeviceSnapshot) -> Vec<LiveTwice> {
    with_absences(data, device).into_iter().map(|(row, _)| row).collect()
}

/// The same, with where the older blocks of all repetitions would be gone.
pub(super) fn with_absences(data: &Attribution<'_>, device: &DeviceSnapshot) -> Vec<(LiveTwice, Vec<Absence>)> {
    // The graph of a result over variables is dropped in the same order, and dropping the variable of the program frees nothing.
    if has_variables(data) {
        return Vec::new();
    }
    let peak = device.peak.bytes;
    let mut sizes = by_size(device);
    sizes.retain(|(_, size), blocks| is_worth(size.saturating_mul(blocks.len() as u64 - 1), peak));
    if sizes.is_empty() {
        return Vec::new();
    }
    let log = Log::of(data, device, &sizes.values().flatten().copied().collect::<Vec<_>>());
    let mut holders = Holders { data, known: HashMap::new() };
    let chains: Vec<Vec<&Block>> = sizes.into_values().flat_map(|blocks| log.chains(blocks, &mut holders)).collect();
    let large = chains.into_iter().filter(|chain| is_worth(older(chain), peak));
    let rows = large.map(|chain| {
        let absences = log.absences(&chain);
        let row = LiveTwice {
            lines: holders.lines(&chain),
            size: chain.first().map_or(0, |block| block.size),
            count: chain.len() as u64,
            older: older(&chain),
            peak_without: log.peak_without(&absences),
        };
        (row, absences)
    });
    let mut rows: Vec<_> = rows.filter(|(row, _)| is_worth(row.saves(peak), peak)).collect();
    rows.sort_by(|(a, _), (b, _)| b.saves(peak).cmp(&a.saves(peak)).then_with(|| a.lines.cmp(&b.lines)));
    rows
}

fn is_worth(bytes: u64, peak: u64) -> bool {
    bytes > 0 && bytes >= peak / 100
}

/// Bytes of all blocks but the newest.
fn older(chain: &[&Block]) -> u64 {
    chain.iter().skip(1).map(|block| block.size).sum()
}

/// The peak's blocks that are freed at the end, by thread and size, in the order of their allocation.
fn by_size(device: &DeviceSnapshot) -> BTreeMap<(u32, u64), Vec<&Block>> {
    let live: HashSet<Option<NonZeroU64>, RandomState> = device.live.iter().map(|block| block.seq).collect();
    let mut sizes: BTreeMap<_, Vec<&Block>> = BTreeMap::new();
    for block in device.peak.blocks.iter().filter(|block| device.is_exact(block) && !live.contains(&block.seq)) {
        sizes.entry((block.thread.0, block.size)).or_default().push(block);
    }
    sizes
}

/// Where two stacks diverge within one function of the program: its frames in the older and the newer stack.
type Parting<'a> = Option<(&'a Frame, &'a Frame)>;

/// Cache of partings by pairs of stacks.
struct Holders<'a> {
    data: &'a Attribution<'a>,
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

fn parting<'d>(data: &'d Attribution<'_>, older: StackId, newer: StackId) -> Parting<'d> {
    let own = |stack| {
        let frames = matched_frames(data, stack).filter(|frame| frame.origin() == Origin::Workspace);
        let mut frames: Vec<&Frame> = frames.map(|frame| frame.frame).collect();
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

/// A block of a repetition.
struct RepeatedLife {
    seq: NonZeroU64,
    alloc: usize,
    free: usize,
    /// Allocs of its thread before the free.
    allocs: usize,
}

struct Log<'a> {
    device: &'a DeviceSnapshot,
    /// The alloc and the free of each block that may be in a chain, by the block's number.
    allocated: HashMap<NonZeroU64, LogPlace, RandomState>,
    freed: HashMap<NonZeroU64, LogPlace, RandomState>,
}

/// A record's place in the log.
#[derive(Clone, Copy, Default)]
struct LogPlace {
    at: usize,
    /// Allocs before it, of the block's thread.
    allocs: usize,
    /// Allocs before it, in backward passes.
    backward: usize,
}

impl<'a> Log<'a> {
    /// The places of these blocks. The part of the log before the oldest of them is left out, and that after their frees.
    fn of(data: &Attribution<'_>, device: &'a DeviceSnapshot, blocks: &[&Block]) -> Self {
        let mut log = Self { device, allocated: HashMap::default(), freed: HashMap::default() };
        let wanted: HashMap<NonZeroU64, ThreadId, RandomState> =
            blocks.iter().filter_map(|block| Some((block.seq?, block.thread))).collect();
        let last = wanted.keys().max();
        let oldest = blocks.iter().map(|block| block.time_ns).min().unwrap_or(0);
        let start = device.records.partition_point(|record| record.time_ns < oldest);
        let mut allocs: HashMap<ThreadId, usize, RandomState> = HashMap::default();
        // The thread of the last records, and its allocs.
        let mut now = (ThreadId::default(), 0);
        let mut is_backward: Vec<Option<bool>> = vec![None; data.stacks.len()];
        let mut backward = 0;
        for (at, record) in device.records.iter().enumerate().skip(start) {
            let seq = record.alloc_seq.filter(|seq| Some(seq) <= last);
            if let Some((seq, thread)) = seq.and_then(|seq| Some((seq, wanted.get(&seq)?))) {
                let others = || allocs.get(thread).copied().unwrap_or(0);
                let allocs = if now.0 == *thread { now.1 } else { others() };
                let place = LogPlace { at, allocs, backward };
                let places = if record.kind == RecordKind::Free { &mut log.freed } else { &mut log.allocated };
                places.insert(seq, place);
                if log.freed.len() == wanted.len() {
                    break;
                }
            }
            if record.kind == RecordKind::Alloc {
                if now.0 != record.thread {
                    allocs.insert(now.0, now.1);
                    now = (record.thread, allocs.get(&record.thread).copied().unwrap_or(0));
                }
                now.1 += 1;
                let make = || operator(data, record.stack).is_some_and(|operator| operator.is_backward);
                let known = is_backward.get_mut(record.stack.0 as usize);
                backward += usize::from(known.map_or_else(make, |known| *known.get_or_insert_with(make)));
            }
        }
        log
    }

    /// Chains of at least two blocks, oldest first, that one function holds and that were freed newest first, with no alloc of
    /// their thread in between.
    fn chains(&self, blocks: Vec<&'a Block>, holders: &mut Holders<'_>) -> Vec<Vec<&'a Block>> {
        let mut ends: Vec<_> =
            blocks.into_iter().filter_map(|block| Some((*self.freed.get(&block.seq?)?, block))).collect();
        ends.sort_unstable_by_key(|(end, _)| end.at);
        let runs = ends.chunk_by(|(a, newer), (b, older)| {
            a.allocs == b.allocs && newer.seq > older.seq && holders.have_one(older, newer)
        });
        let chains = runs.map(|run| run.iter().rev().map(|&(_, block)| block).collect::<Vec<_>>());
        let is_one =
            |chain: &Vec<&Block>| chain.len() > 1 && !self.saw_a_backward_pass(chain) && !self.is_given_up(chain);
        chains.filter(is_one).collect()
    }

    /// Was an allocation refused before the blocks were freed? The error drops them as a function's end does.
    fn is_given_up(&self, chain: &[&Block]) -> bool {
        let Some(newest) = chain.last() else { return false };
        let freed = newest.seq.and_then(|seq| self.freed.get(&seq)).and_then(|place| self.device.records.get(place.at));
        let until = freed.map_or(0, |record| record.time_ns);
        self.device.ooms.iter().any(|refused| newest.time_ns <= refused.time_ns && refused.time_ns <= until)
    }

    fn saw_a_backward_pass(&self, chain: &[&Block]) -> bool {
        let Some(oldest) = chain.first() else { return false };
        let before = |places: &HashMap<NonZeroU64, LogPlace, RandomState>| {
            oldest.seq.and_then(|seq| places.get(&seq)).map_or(0, |place| place.backward)
        };
        before(&self.freed) > before(&self.allocated)
    }

    /// Where each block of the chain would be gone if it were freed right after the alloc of the next one, in each repetition of the chain.
    fn absences(&self, chain: &[&Block]) -> Vec<Absence> {
        let mut absences = Vec::new();
        for pair in chain.windows(2) {
            let (older, newer) = (self.lives_like(pair[0]), self.lives_like(pair[1]));
            // A variable is gone when its line runs again; the chain itself may be that of the last call of a recursion.
            let is_variable = |(nth, life): &(usize, &RepeatedLife)| {
                older.get(nth + 1).is_none_or(|again| life.free < again.alloc)
                    || Some(life.alloc) == self.place_of(pair[0])
            };
            for (_, life) in older.iter().enumerate().filter(is_variable) {
                let next = newer.get(newer.partition_point(|newer| newer.alloc < life.alloc));
                // Dropped with it, as here.
                let next = next.filter(|next| next.allocs == life.allocs && next.free < life.free);
                let gone = |next: &RepeatedLife| Absence {
                    seq: life.seq,
                    from: next.alloc + 1,
                    until: life.free,
                    size: pair[0].size,
                };
                absences.extend(next.filter(|next| next.alloc < life.free).map(gone));
            }
        }
        absences
    }

    fn peak_without(&self, absences: &[Absence]) -> Option<u64> {
        let mut changes: HashMap<usize, i128> = HashMap::new();
        for (at, change) in absences.iter().flat_map(Absence::changes) {
            *changes.entry(at).or_default() += i128::from(change);
        }
        let (found, without) = self.highest(&changes);
        // If the log does not reproduce the peak, it cannot give another one. In a sample it differs from the peak by chance, and
        // the difference between the two is still about right.
        let peak = i128::from(self.device.peak.bytes);
        let complete = self.device.overwritten == 0 && (found == peak || self.device.is_sample());
        complete.then_some(peak - (found - without)).and_then(|bytes| u64::try_from(bytes).ok())
    }

    fn place_of(&self, block: &Block) -> Option<usize> {
        self.allocated.get(&block.seq?).map(|place| place.at)
    }

    /// The lives of all blocks of this stack, thread and size that were freed, in the order of their allocation.
    fn lives_like(&self, block: &Block) -> Vec<RepeatedLife> {
        let (mut lives, mut open, mut allocs) = (Vec::new(), HashMap::<NonZeroU64, usize, RandomState>::default(), 0);
        for (at, record) in self.device.records.iter().enumerate() {
            let Some(seq) = record.alloc_seq else { continue };
            if record.kind == RecordKind::Free {
                lives.extend(open.remove(&seq).map(|alloc| RepeatedLife { seq, alloc, free: at, allocs }));
                continue;
            }
            allocs += usize::from(record.thread == block.thread);
            if (record.stack, record.thread, record.size) == (block.stack, block.thread, block.size) {
                open.insert(seq, at);
            }
        }
        lives.sort_unstable_by_key(|life| life.alloc);
        lives
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
