//! Memory that accumulates: lines whose blocks stay, repetition after repetition, for as long as the program goes on.

use super::labels::{Labels, line_label};
use super::{KnownBlock, known_blocks};
use crate::attribute::Categories;
use crate::snapshot::{Block, Category, DeviceSnapshot, SnapshotData, StackId};

/// Repetitions, and all allocations since the first of them, are looked at in this number of equal parts.
const PARTS: usize = 8;
/// In so many parts of all allocations a line leaves something.
const MOST_PARTS: usize = 6;

/// A line whose blocks accumulate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccumulatingLine {
    /// The line, as in [`by_line`](super::by_line).
    pub line: String,
    /// How often it allocated.
    pub repetitions: usize,
    /// The blocks that were live when it allocated for the last time, in the order of their allocation.
    pub stays: Vec<Block>,
}

impl AccumulatingLine {
    /// The bytes that stay.
    pub fn bytes(&self) -> u64 {
        self.stays.iter().map(|block| block.size).sum()
    }
}

/// The lines at which memory accumulates, those with most bytes first. Blocks that a sample stands for do not count, nor
/// do parameters, optimizer state, and caches of keys and values, which are meant to stay.
pub fn accumulation(data: &SnapshotData, device: &DeviceSnapshot) -> Vec<AccumulatingLine> {
    let categories = Categories::of(data, device);
    let is_meant = |block: &Block| {
        matches!(categories.get(block.seq), Category::Parameter | Category::OptimizerState | Category::KvCache)
    };
    let mut labels = Labels::of_stacks(data, line_label);
    let mut by_line: Vec<Vec<KnownBlock>> = Vec::new();
    let known = known_blocks(data, device);
    let last = known.last().map_or(0, |known| seq(&known.block));
    for known in known {
        let Block { stack, context, .. } = known.block;
        if stack != StackId::NONE && device.is_exact(&known.block) && !is_meant(&known.block) {
            let number = labels.number(stack, context);
            by_line.resize_with(by_line.len().max(number + 1), Vec::new);
            by_line[number].push(known);
        }
    }
    let line = |(line, blocks): (&str, Vec<KnownBlock>)| {
        let (repetitions, stays) = of_line(blocks, last)?;
        Some(AccumulatingLine { line: line.to_owned(), repetitions, stays })
    };
    let mut lines: Vec<AccumulatingLine> = labels.names().zip(by_line).filter_map(line).collect();
    lines.sort_by_key(|line| std::cmp::Reverse(line.bytes()));
    lines
}

/// How often a line allocated, and what stays: all of it, or else of those of its call stacks that accumulate.
fn of_line(mut blocks: Vec<KnownBlock>, last: u64) -> Option<(usize, Vec<Block>)> {
    if let Some(stays) = accumulates(&blocks, last) {
        return Some((blocks.len(), stays));
    }
    // Stable: the blocks of a stack stay in order.
    blocks.sort_by_key(|known| known.block.stack);
    let stacks = blocks.chunk_by(|a, b| a.block.stack == b.block.stack);
    let found = stacks.filter_map(|stack| Some((stack.len(), accumulates(stack, last)?)));
    found.reduce(|(count, mut all), (of_stack, stays)| {
        all.extend(stays);
        (count + of_stack, all)
    })
}

fn seq(block: &Block) -> u64 {
    block.seq.map_or(0, std::num::NonZeroU64::get)
}

/// What stays, if it accumulates. `blocks` are in the order of their allocation, `last` is the last one of all.
fn accumulates(blocks: &[KnownBlock], last: u64) -> Option<Vec<Block>> {
    let (first, newest) = blocks.first().zip(blocks.last()).filter(|_| blocks.len() >= PARTS)?;
    let is_live_at = |known: &&KnownBlock, time_ns| !known.is_freed || known.to_ns > time_ns;
    let stays = |known: &&KnownBlock| is_live_at(known, newest.from_ns);
    let parts = |of: &mut dyn Iterator<Item = usize>| {
        let mut parts = [false; PARTS];
        of.for_each(|part| parts[part.min(PARTS - 1)] = true);
        parts
    };
    let of_repetitions = (0..blocks.len()).filter(|at| stays(&&blocks[*at]));
    let of_repetitions = parts(&mut of_repetitions.map(|at| at * PARTS / blocks.len()));
    let (begin, length) = (seq(&first.block), last - seq(&first.block) + 1);
    let place = |known: &KnownBlock| ((seq(&known.block) - begin) as u128 * PARTS as u128 / length as u128) as usize;
    let of_all = parts(&mut blocks.iter().filter(stays).map(place));
    let bytes = |of: &mut dyn Iterator<Item = &KnownBlock>| of.map(|known| known.block.size).sum::<u64>();
    let half = blocks.len() / 2;
    let half_way = bytes(&mut blocks[..half].iter().filter(|known| is_live_at(known, blocks[half - 1].from_ns)));
    let at_last = bytes(&mut blocks.iter().filter(stays));
    let goes_on = of_repetitions[1..].iter().all(|part| *part)
        && of_all.iter().filter(|part| **part).count() >= MOST_PARTS
        && half_way / 3 <= at_last / 4;
    goes_on.then(|| blocks.iter().filter(stays).map(|known| known.block).collect())
}
