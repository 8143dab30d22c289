//! A million small live blocks, allocated from stacks of different depths.

use std::hint::black_box;

use candle_core::Result;

use crate::Iteration;

/// The number of calls between the workload and an allocation varies up to this.
const CALLS: u64 = 24;
/// Sizes of blocks in bytes.
const SIZES: std::ops::RangeInclusive<u64> = 16..=80;

/// Fills a table of blocks, replaces an equal number at random, and frees all.
pub(crate) struct Blocks {
    count: usize,
    random: Random,
}

impl Blocks {
    pub(crate) fn new(count: usize) -> Self {
        Self { count, random: Random::new(42) }
    }
}

/// Xorshift, whose cost is negligible here.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    /// A block of any size, from a stack of any depth.
    pub(crate) fn block(&mut self) -> Vec<u8> {
        let size = SIZES.start() + self.below(SIZES.end() - SIZES.start() + 1);
        let calls = self.below(CALLS);
        called(calls, size as usize)
    }
}

/// Allocates a block below this number of nested calls.
#[inline(never)]
fn called(calls: u64, size: usize) -> Vec<u8> {
    black_box(if black_box(calls) == 0 { Vec::with_capacity(size) } else { called(calls - 1, size) })
}

impl Iteration for Blocks {
    fn iteration(&mut self) -> Result<()> {
        let mut live: Vec<Vec<u8>> = (0..self.count).map(|_| self.random.block()).collect();
        for _ in 0..self.count {
            let at = self.random.below(self.count as u64) as usize;
            live[at] = self.random.block();
        }
        drop(black_box(live));
        Ok(())
    }
}
