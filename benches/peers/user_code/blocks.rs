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
    random: u64,
}

impl Blocks {
    pub(crate) fn new(count: usize) -> Self {
        Self { count, random: 42 }
    }

    /// Xorshift, whose cost is negligible here.
    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    fn block(&mut self) -> Vec<u8> {
        let size = SIZES.start() + self.random(SIZES.end() - SIZES.start() + 1);
        let calls = self.random(CALLS);
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
        let mut live: Vec<Vec<u8>> = (0..self.count).map(|_| self.block()).collect();
        for _ in 0..self.count {
            let at = self.random(self.count as u64) as usize;
            live[at] = self.block();
        }
        drop(black_box(live));
        Ok(())
    }
}
