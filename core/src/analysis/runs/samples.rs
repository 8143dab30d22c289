//! Live memory after each run, by stack.

use std::collections::{HashMap, HashSet};

use super::slope;
use crate::snapshot::{Device, StackId};

/// The origin of live blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockOrigin {
    /// The device.
    pub device: Device,
    /// The stack that allocated them.
    pub stack: StackId,
    /// Whether a helper thread allocated them: one that existed before the code ran, and that may have worked for it.
    pub of_helper: bool,
}

/// Bytes and number of live blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveTotals {
    /// Their bytes.
    pub bytes: u64,
    /// Their number.
    pub blocks: u64,
}

/// Live blocks by their origin.
pub type LiveByOrigin = HashMap<BlockOrigin, LiveTotals>;

/// Live memory after each run.
#[derive(Debug, Default)]
pub struct Samples(Vec<LiveByOrigin>);

impl FromIterator<LiveByOrigin> for Samples {
    fn from_iter<I: IntoIterator<Item = LiveByOrigin>>(runs: I) -> Self {
        Self(runs.into_iter().collect())
    }
}

impl Samples {
    /// Number of runs.
    pub fn runs(&self) -> usize {
        self.0.len()
    }

    /// Adds the live memory after another run.
    pub fn push(&mut self, live: LiveByOrigin) {
        self.0.push(live);
    }

    /// Replaces the live memory after the last run.
    pub fn set_last(&mut self, live: LiveByOrigin) {
        if let Some(last) = self.0.last_mut() {
            *last = live;
        }
    }

    /// Origins of all blocks that were live after any run.
    pub fn origins(&self) -> HashSet<BlockOrigin> {
        self.0.iter().flat_map(LiveByOrigin::keys).copied().collect()
    }

    /// Live blocks of an origin after each run.
    pub fn held(&self, origin: &BlockOrigin) -> impl Iterator<Item = LiveTotals> {
        self.0.iter().map(|sample| sample.get(origin).copied().unwrap_or_default())
    }

    /// Live bytes of an origin after each run.
    pub fn bytes(&self, origin: &BlockOrigin) -> Vec<f64> {
        self.held(origin).map(|held| held.bytes as f64).collect()
    }

    /// Number of an origin's live blocks after each run.
    pub fn blocks(&self, origin: &BlockOrigin) -> Vec<f64> {
        self.held(origin).map(|held| held.blocks as f64).collect()
    }

    /// Bytes and blocks that an origin gained since the warm-up.
    pub fn gained(&self, origin: &BlockOrigin, warmup: usize) -> LiveTotals {
        let mut held = self.held(origin);
        let before = warmup.checked_sub(1).and_then(|at| held.nth(at)).unwrap_or_default();
        let last = held.last().unwrap_or(before);
        let (bytes, blocks) = (last.bytes.saturating_sub(before.bytes), last.blocks.saturating_sub(before.blocks));
        LiveTotals { bytes, blocks }
    }

    /// Whether an origin's bytes grow by doubling, as those of containers do, while its number of blocks does not grow
    /// in the second half.
    pub fn doubles(&self, origin: &BlockOrigin, warmup: usize) -> bool {
        !slope::ends_higher(&self.blocks(origin)) && slope::doubles(&self.bytes(origin), warmup)
    }

    /// The bytes of all stacks after each run, without those of helper threads.
    pub fn total(&self) -> Vec<f64> {
        let sum = |sample: &LiveByOrigin| {
            sample.iter().filter(|(origin, _)| !origin.of_helper).map(|(_, held)| held.bytes).sum::<u64>()
        };
        self.0.iter().map(|sample| sum(sample) as f64).collect()
    }

    /// Regroups the blocks under other origins. If `other` returns `None`, the origin is left out.
    pub fn under(&self, other: impl Fn(&BlockOrigin) -> Option<BlockOrigin>) -> Self {
        let regrouped = |sample: &LiveByOrigin| {
            let mut sums = LiveByOrigin::new();
            for (origin, held) in sample.iter().filter_map(|(origin, held)| Some((other(origin)?, held))) {
                let sum = sums.entry(origin).or_default();
                (sum.bytes, sum.blocks) = (sum.bytes + held.bytes, sum.blocks + held.blocks);
            }
            sums
        };
        Self(self.0.iter().map(regrouped).collect())
    }

    /// For each device, all stacks as one origin, without those of helper threads.
    pub fn as_one(&self) -> Self {
        self.under(|origin| (!origin.of_helper).then_some(BlockOrigin { stack: StackId::NONE, ..*origin }))
    }

    /// Only the stacks with more bytes at the end than in the first half.
    pub fn risen(&self) -> Self {
        let risen = |origin: &BlockOrigin| slope::ends_higher(&self.bytes(origin));
        let risen: HashSet<BlockOrigin> = self.origins().into_iter().filter(risen).collect();
        self.under(|origin| risen.contains(origin).then_some(*origin))
    }

    /// Whether a series (bytes or blocks of an origin, or all bytes) reached a new maximum so late that more runs are
    /// needed.
    pub fn is_unsure(&self, warmup: usize) -> bool {
        let is_unsettled = |origin: &BlockOrigin| {
            slope::is_unsettled(&self.bytes(origin), warmup) || slope::is_unsettled(&self.blocks(origin), warmup)
        };
        slope::is_unsettled(&self.total(), warmup) || self.origins().iter().any(is_unsettled)
    }

    /// Whether the bytes of an origin, or of a whole device, grow by doubling.
    pub fn have_doubled(&self, warmup: usize) -> bool {
        self.origins().iter().any(|origin| self.doubles(origin, warmup)) || self.total_doubles(warmup)
    }

    /// Whether it is already clear that the bytes or blocks of an origin grow.
    pub fn have_grown(&self, warmup: usize) -> bool {
        let half = warmup.max(self.runs() / 2);
        let grows = |series: Vec<f64>| slope::ends_higher(&series) && slope::trend(&series, half).goes_on();
        self.origins().iter().any(|origin| grows(self.blocks(origin)) || grows(self.bytes(origin)))
    }

    /// Whether all stacks of a device together grow by doubling.
    pub fn total_doubles(&self, warmup: usize) -> bool {
        let total = self.as_one();
        total.origins().iter().any(|origin| total.doubles(origin, warmup))
    }

    /// Bytes accumulated since the warm-up.
    pub fn grown(&self, warmup: usize) -> u64 {
        let sum = |sample: Option<&LiveByOrigin>| {
            sample.map_or(0, |sample| sample.values().map(|held| held.bytes).sum::<u64>())
        };
        sum(self.0.last()).saturating_sub(sum(self.0.get(warmup.saturating_sub(1))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_in_bytes_or_in_blocks_has_grown() {
        let origin = BlockOrigin { device: Device::Cpu, stack: StackId::NONE, of_helper: false };
        let have_grown = |held: fn(u64) -> (u64, u64)| {
            let runs =
                (0..20).map(held).map(|(bytes, blocks)| LiveByOrigin::from([(origin, LiveTotals { bytes, blocks })]));
            Samples::from_iter(runs).have_grown(4)
        };
        assert!(have_grown(|run| (100 * run, 1)), "a block that becomes larger");
        assert!(have_grown(|run| (1000, run)), "a buffer that is divided into more and more blocks");
        assert!(!have_grown(|_| (1000, 1)));
    }
}
