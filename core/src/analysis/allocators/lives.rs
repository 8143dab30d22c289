//! Blocks by lifetime: finds the placed blocks that are live together with another block (a segment tree over time).

use std::collections::BTreeSet;

use crate::snapshot::LogPosition;

/// A block from its alloc to its free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimedBlock {
    pub(super) from: LogPosition,
    pub(super) to: LogPosition,
    pub(super) size: u64,
}

impl TimedBlock {
    pub(super) fn lasts(&self) -> u32 {
        self.to.saturating_sub(self.from)
    }
}

/// The blocks placed so far, by index. Time is counted in allocs.
pub(super) struct PlacedLives {
    /// For each block, the number of its alloc, and the number of the first alloc after its free.
    spans: Vec<(usize, usize)>,
    /// For each node of the tree, blocks that are live throughout the node's time span. Node `n` has the children
    /// `2n` and `2n + 1`.
    nodes: Vec<Vec<u32>>,
    /// Placed blocks, sorted by the number of their alloc.
    begins: BTreeSet<(usize, usize)>,
}

impl PlacedLives {
    pub(super) fn of(blocks: &[TimedBlock]) -> Self {
        let mut times: Vec<LogPosition> = blocks.iter().map(|block| block.from).collect();
        times.sort_unstable();
        times.dedup();
        let place = |time: LogPosition| times.partition_point(|other| *other < time);
        let spans = blocks.iter().map(|block| (place(block.from), place(block.to))).collect();
        Self { spans, nodes: vec![Vec::new(); 2 * times.len().max(1)], begins: BTreeSet::new() }
    }

    pub(super) fn insert(&mut self, block: usize) {
        let (from, to) = self.spans[block];
        self.begins.insert((from, block));
        let leaves = self.nodes.len() / 2;
        let (mut left, mut right) = (from + leaves, to + leaves);
        while left < right {
            if left % 2 == 1 {
                self.nodes[left].push(block as u32);
                left += 1;
            }
            if right % 2 == 1 {
                right -= 1;
                self.nodes[right].push(block as u32);
            }
            (left, right) = (left / 2, right / 2);
        }
    }

    /// Placed blocks that are live together with this one.
    pub(super) fn beside(&self, block: usize) -> impl Iterator<Item = usize> {
        let (from, to) = self.spans[block];
        let nodes = std::iter::successors(Some(from + self.nodes.len() / 2), |node| (*node > 1).then_some(node / 2));
        let when_it_comes = nodes.flat_map(|node| self.nodes[node].iter().map(|other| *other as usize));
        let later = self.begins.range((from + 1, 0)..(to.max(from + 1), 0)).map(|(_, other)| *other);
        when_it_comes.chain(later)
    }
}
