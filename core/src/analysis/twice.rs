//! Detects shadowed variables: two blocks live at the peak where one would do.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use super::absence::{Absence, changes_of};
use super::labels::frame_location;
use super::waste::replay::LogReplay;
use crate::attribute::{Attribution, Origin, has_variables, is_made_anew, matched_frames, operator};
use crate::hashed::{HashMap, HashSet, by_key};
use crate::memo::Memo;
use crate::recording::DeviceView;
use crate::snapshot::{Block, DeviceSnapshot, Frame, Lifetime, LogPosition, NEVER, RecordKind, StackId, ThreadId};

/// Blocks of one size that a function held together at the peak, and the peak if each had replaced the one before it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LiveTwice {
    /// Lines of the function that allocated the blocks, the oldest block first.
    pub lines: Vec<String>,
    /// Bytes of each block. In a sample, only sizes that are always recorded are examined.
    pub size: u64,
    /// Number of blocks, at least 2.
    pub count: u64,
    /// Bytes of all blocks except the newest.
    #[serde(rename = "older_bytes")]
    pub older: u64,
    /// The device's peak in bytes, without blocks below the threshold, if each block had been freed once the next one
    /// was allocated and all other records were the same. `None` if the log has lost records.
    #[serde(rename = "peak_without_bytes")]
    pub peak_without: Option<u64>,
}

impl LiveTwice {
    /// The reduction of the peak in bytes; an upper bound if the exact value is not known.
    fn saves(&self, peak: u64) -> u64 {
        self.peak_without.map_or(self.older, |without| peak.saturating_sub(without))
    }
}

/// Blocks that a function held together at the peak although one would do, if they are worth at least 1 % of the peak.
/// The largest reduction of the peak comes first.
///
/// memtrace does not see when a program reads a block, so this analysis relies on drop order: Rust drops a function's
/// variables at its end, newest first. It counts blocks of the same thread and size that different lines of one
/// function of the program allocated, directly or through calls. The blocks must be freed newest first, with no
/// allocation of the thread in between.
///
/// It excludes blocks that were live during a backward pass (a graph is dropped in the same order, and needed until
/// then), blocks that are never freed, all blocks of programs with trainable variables, blocks dropped after a refused
/// allocation, repeated allocations of one line, and blocks created from data or a constant, which replace nothing.
/// Weights of a model are seldom counted, because the fields of a structure are dropped oldest first. A counted block
/// may still be needed: it may be the second operand of an operation.
pub(crate) fn live_twice(data: &Attribution<'_>, device: &DeviceView<'_>) -> Vec<LiveTwice> {
    with_absences(data, device).into_iter().map(|(row, _)| row).collect()
}

/// The rows of [`live_twice`], each with the absences of the older blocks in all repetitions.
pub(super) fn with_absences(data: &Attribution<'_>, device: &DeviceView<'_>) -> Vec<(LiveTwice, Vec<Absence>)> {
    // A result that was computed from trainable variables keeps a graph of its inputs, which is dropped in the same
    // order. So dropping the program's own variable earlier frees nothing.
    if has_variables(data) {
        return Vec::new();
    }
    let peak = device.peak.bytes;
    let mut sizes = by_size(device);
    sizes.retain(|(_, size), blocks| is_worth(size.saturating_mul(blocks.len() as u64 - 1), peak));
    if sizes.is_empty() {
        return Vec::new();
    }
    let log = Log::of(data, device);
    let mut holders = Holders { data, known: Memo::of(move |(older, newer)| parting(data, older, newer)) };
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

/// Bytes of all blocks except the newest.
fn older(chain: &[&Block]) -> u64 {
    chain.iter().skip(1).map(|block| block.size).sum()
}

/// The peak's blocks of always recorded sizes that are freed by the end, by thread and size, in allocation order.
fn by_size(device: &DeviceSnapshot) -> BTreeMap<(u32, u64), Vec<&Block>> {
    let live: HashSet<Option<NonZeroU64>> = device.live.iter().map(|block| block.seq).collect();
    let freed = device.peak.blocks.iter().filter(|block| device.is_exact(block) && !live.contains(&block.seq));
    by_key(freed.map(|block| ((block.thread.0, block.size), block))).into_iter().collect()
}

/// Where two stacks diverge within one function of the program: the function's frames in the older and the newer stack.
type Parting<'a> = Option<(&'a Frame, &'a Frame)>;

/// A cache of partings by pairs of stacks.
struct Holders<'a> {
    data: &'a Attribution<'a>,
    known: Memo<'a, (StackId, StackId), Parting<'a>>,
}

impl<'a> Holders<'a> {
    /// The lines that allocated the blocks of a chain.
    fn lines(&mut self, chain: &[&Block]) -> Vec<String> {
        let mut frames: Vec<&Frame> = Vec::new();
        for pair in chain.windows(2) {
            if let Some((older, newer)) = self.known.get((pair[0].stack, pair[1].stack)) {
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

/// The log, indexed for the analysis of the drop order.
struct Log<'a> {
    device: &'a DeviceView<'a>,
    replay: Option<LogReplay>,
    allocs: HashMap<ThreadId, Vec<LogPosition>>,
    /// The positions of the allocs in backward passes.
    backward: Vec<LogPosition>,
}

impl<'a> Log<'a> {
    fn of(data: &Attribution<'_>, device: &'a DeviceView<'a>) -> Self {
        let replay = LogReplay::unchecked(device, device.lifetimes());
        let mut log = Self { device, replay, allocs: HashMap::default(), backward: Vec::new() };
        let is_backward = |stack: u32| operator(data, StackId(stack)).is_some_and(|operator| operator.is_backward);
        let is_backward: Vec<bool> = (0..data.stacks.len() as u32).map(is_backward).collect();
        for (position, record) in (1..NEVER).zip(&device.records).filter(|(_, record)| record.kind == RecordKind::Alloc)
        {
            log.allocs.entry(record.thread).or_default().push(position);
            log.backward.extend(is_backward.get(record.stack.0 as usize).filter(|is_one| **is_one).map(|_| position));
        }
        log
    }

    fn life(&self, block: &Block) -> Option<&'a Lifetime> {
        self.device.lifetimes().get(block.seq?)
    }

    /// Number of allocs by the block's thread before the block was freed.
    fn allocs_before_free(&self, life: &Lifetime) -> usize {
        self.allocs.get(&life.block.thread).map_or(0, |allocs| allocs.partition_point(|alloc| *alloc < life.to))
    }

    /// Chains of at least two blocks, oldest first. One function holds the blocks of a chain, and they were freed
    /// newest first, with no alloc of their thread in between.
    fn chains(&self, blocks: Vec<&'a Block>, holders: &mut Holders<'_>) -> Vec<Vec<&'a Block>> {
        let ends = blocks.into_iter().filter_map(|block| Some((self.life(block)?, block)));
        let mut ends: Vec<_> = ends.filter(|(life, _)| life.to != NEVER).collect();
        ends.sort_unstable_by_key(|(life, _)| life.to);
        let runs = ends.chunk_by(|(a, newer), (b, older)| {
            newer.seq > older.seq
                && self.allocs_before_free(a) == self.allocs_before_free(b)
                && holders.known.get((older.stack, newer.stack)).is_some()
        });
        let is_one = |run: &&[(&Lifetime, &Block)]| {
            let ([(newest, _), .., (oldest, _)], backward) = (run, &self.backward) else { return false };
            let next = backward.get(backward.partition_point(|alloc| *alloc < oldest.from));
            next.is_none_or(|next| *next > oldest.to) && !self.is_given_up(newest)
        };
        runs.filter(is_one).map(|run| run.iter().rev().map(|&(_, block)| block).collect()).collect()
    }

    /// Whether an allocation was refused while the block was live. The error then leaves the function and drops its
    /// variables, as the function's end does.
    fn is_given_up(&self, newest: &Lifetime) -> bool {
        let until = newest.free(self.device).map_or(0, |free| free.time_ns);
        self.device.ooms.iter().any(|refused| (newest.block.time_ns..=until).contains(&refused.time_ns))
    }

    /// The absences that result if each block of the chain were freed right after the alloc of the next one, and in the
    /// same way in all repetitions of the chain.
    fn absences(&self, chain: &[&Block]) -> Vec<Absence> {
        let mut absences = Vec::new();
        for pair in chain.windows(2) {
            let (older, newer) = (self.lives_like(pair[0]), self.lives_like(pair[1]));
            // A variable is freed before its line allocates again, except in a recursion. The chain's own block counts
            // in any case.
            let is_variable = |(nth, life): &(usize, &&Lifetime)| {
                older.get(nth + 1).is_none_or(|again| life.to < again.from) || Some(life.seq) == pair[0].seq
            };
            for (_, life) in older.iter().enumerate().filter(is_variable) {
                let next = newer.get(newer.partition_point(|newer| newer.from < life.from));
                // Both blocks must be dropped together, as in this chain.
                let is_dropped_too = |next: &&&Lifetime| {
                    next.to < life.to && self.allocs_before_free(next) == self.allocs_before_free(life)
                };
                let gone = |next: &&Lifetime| Absence {
                    seq: life.seq,
                    from: next.from as usize,
                    until: life.to as usize - 1,
                    size: pair[0].size,
                };
                absences.extend(next.filter(is_dropped_too).map(gone));
            }
        }
        absences
    }

    fn peak_without(&self, absences: &[Absence]) -> Option<u64> {
        let replay = self.replay.as_ref().filter(|_| self.device.overwritten == 0)?;
        let mut changes = changes_of(absences);
        changes.sort_unstable();
        let (found, without) = (replay.peak(&[]), replay.peak(&changes));
        // If a replay of the log does not result in the recorded peak, it cannot predict another one. In a sample, the
        // replayed and the recorded peak differ by chance, but the difference that the absences make is still about
        // right.
        let peak = i64::try_from(self.device.peak.bytes).ok()?;
        let is_known = found == peak || self.device.is_sample();
        is_known.then_some(peak - (found - without)).and_then(|bytes| u64::try_from(bytes).ok())
    }

    /// The lives of all blocks of this stack, thread and size that are complete in the log, in the order of their
    /// allocation.
    fn lives_like(&self, block: &Block) -> Vec<&'a Lifetime> {
        let of = |block: &Block| (block.stack, block.thread, block.size);
        let is_whole = |life: &&Lifetime| life.from > 0 && life.to != NEVER && of(&life.block) == of(block);
        let mut lives: Vec<&Lifetime> = self.device.lifetimes().iter().filter(is_whole).collect();
        lives.sort_by_key(|life| life.from);
        lives
    }
}

#[cfg(test)]
#[path = "twice_tests.rs"]
mod tests;
