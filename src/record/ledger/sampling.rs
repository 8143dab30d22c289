//! Poisson sampling of small heap blocks, and a counting Bloom filter (one hash function) of the sampled addresses.
//!
//! Sample points lie at random among the bytes that each thread allocates in small blocks, on average one per interval.
//! A block that contains a point is recorded. Each thread counts down to its next point, so any other block costs one
//! subtraction. The distances are exponentially distributed and therefore memoryless: a countdown may continue in the
//! next session, and a new one may start after any block.
//!
//! A free looks up its address in the filter. Cells change under the ledger's lock, before the address is returned to
//! the program. So reading 0 proves that the block was not sampled, and the free takes no lock.

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use memtrace_core::snapshot::{Sampling, ThreadId};

use super::super::gates::GATES;
use super::super::thread;

/// Distances are in units of 2⁻³⁰ intervals, so that they mean the same for every interval.
const UNITS: u32 = 30;
/// log₂ of the number of cells.
const CELLS: u32 = 16;
/// The count of a saturated cell. Until sampling ends, such a cell says that a block may have been sampled.
const FULL: u8 = u8::MAX;

/// Seed of the threads' random numbers, combined with the thread id.
static SEED: AtomicU64 = AtomicU64::new(0);

static FILTER: [AtomicU8; 1 << CELLS] = [const { AtomicU8::new(0) }; 1 << CELLS];

thread_local! {
    // Const and without a destructor, see `guard`.
    /// Units to this thread's next point; 0 before the thread's first countdown.
    static TO_POINT: Cell<u64> = const { Cell::new(0) };
    /// State of this thread's random numbers; 0 before the first number.
    static RANDOM: Cell<u64> = const { Cell::new(0) };
}

/// Sets the sampling interval. Called while nothing is recorded.
pub(in crate::record) fn set(sampling: Sampling) {
    GATES.certain.store(sampling.interval().unwrap_or(0) as usize, Relaxed);
}

/// Sets the seed for threads that have not drawn a random number yet.
pub(crate) fn set_sample_seed(seed: u64) {
    SEED.store(seed, Relaxed);
}

/// The current sampling interval; 0 without sampling.
#[inline]
pub(in crate::record) fn interval() -> usize {
    GATES.certain.load(Relaxed)
}

/// Whether the sample leaves out a new block of this size. Advances this thread's countdown.
#[inline]
pub(in crate::record) fn leaves_out(size: usize, certain: usize) -> bool {
    if size >= certain {
        return false;
    }
    let units = (size as u64) << UNITS.saturating_sub(certain.trailing_zeros());
    TO_POINT.with(|to_point| {
        let left = to_point.get();
        if left > units {
            to_point.set(left - units);
            return true;
        }
        reaches_none(to_point, units)
    })
}

/// The rare case of [`leaves_out`]: the countdown reached a point, or was never started. Returns whether the block
/// contains no point.
#[cold]
fn reaches_none(to_point: &Cell<u64>, units: u64) -> bool {
    if to_point.get() == 0 {
        let first = distance();
        to_point.set(first.saturating_sub(units));
        if first > units {
            return true;
        }
    }
    to_point.set(distance());
    false
}

/// An exponentially distributed distance, in units.
fn distance() -> u64 {
    // In (0, 1], because the logarithm of 0 is infinite.
    let uniform = ((random() >> 11) + 1) as f64 / (1u64 << 53) as f64;
    (-uniform.ln() * (1u64 << UNITS) as f64).ceil().max(1.0) as u64
}

/// Marsaglia's xorshift64*.
fn random() -> u64 {
    RANDOM.with(|state| {
        let before = state.get();
        let mut x = if before == 0 { start(thread::number(), SEED.load(Relaxed)) } else { before };
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        state.set(x);
        x.wrapping_mul(0x2545_f491_4f6c_dd1d)
    })
}

/// Seeds a thread's random numbers (splitmix64); never 0.
fn start(thread: ThreadId, seed: u64) -> u64 {
    let mut x = u64::from(thread.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = x.wrapping_add(seed.wrapping_mul(0xd134_2543_de82_ef95));
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (x ^ x >> 31) | 1
}

/// Whether it is certain that this block is not in the ledger, because the sample left it out.
#[inline]
pub(in crate::record) fn was_left_out(address: u64, size: usize) -> bool {
    size < GATES.certain.load(Relaxed) && cell(address).load(Relaxed) == 0
}

/// Adds a block to the filter. This function and the next two are called under the ledger's lock.
pub(in crate::record) fn enter(address: u64) {
    let cell = cell(address);
    cell.store(cell.load(Relaxed).saturating_add(1), Relaxed);
}

/// Removes a block from the filter.
pub(in crate::record) fn leave(address: u64) {
    let cell = cell(address);
    let blocks = cell.load(Relaxed);
    if blocks != FULL {
        cell.store(blocks.saturating_sub(1), Relaxed);
    }
}

pub(in crate::record) fn forget() {
    FILTER.iter().for_each(|cell| cell.store(0, Relaxed));
}

#[inline]
fn cell(address: u64) -> &'static AtomicU8 {
    let hash = address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - CELLS);
    // In range: the hash has CELLS bits.
    &FILTER[hash as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sampled blocks among blocks with these sizes, allocated in sequence.
    fn hit(interval: u64, sizes: impl Iterator<Item = u64>) -> Vec<u64> {
        let units = |size: &u64| size << (UNITS - interval.trailing_zeros());
        let to_point = Cell::new(0);
        let is_hit = |size: &u64| match to_point.get() {
            left if left > units(size) => {
                to_point.set(left - units(size));
                false
            }
            _ => !reaches_none(&to_point, units(size)),
        };
        sizes.filter(is_hit).collect()
    }

    /// The weights of recorded blocks add up to the total for all sizes and orders. Each thread has its own random
    /// numbers, which are the same in every run.
    #[test]
    fn estimates_of_bytes_and_blocks_are_unbiased_for_every_size() {
        const INTERVAL: u64 = 1 << 14;
        const EACH: usize = 200_000;
        let sizes = [24, 300, 1 << 12, 9000, INTERVAL - 1];
        let sampling = Sampling::every(INTERVAL);
        RANDOM.with(|state| state.set(42));
        let found = hit(INTERVAL, (0..EACH).flat_map(|_| sizes));
        for size in sizes {
            let p = sampling.probability(size);
            let count = found.iter().filter(|found| **found == size).count() as f64;
            let (expected, error) = (EACH as f64 * p, (EACH as f64 * p * (1.0 - p)).sqrt());
            assert!((count - expected).abs() < 4.0 * error, "{size}: {count} of {expected} ± {error}");
            let blocks: f64 = count * sampling.blocks(size);
            assert!((blocks - EACH as f64).abs() < 4.0 * error / p, "{size}: {blocks}");
        }
        let bytes: u64 = found.iter().map(|size| sampling.bytes(*size)).sum();
        let all = sizes.iter().sum::<u64>() * EACH as u64;
        let variance = |size: &u64| EACH as f64 * (*size as f64).powi(2) * (1.0 / sampling.probability(*size) - 1.0);
        let error = sizes.iter().map(variance).sum::<f64>().sqrt();
        assert!((bytes as f64 - all as f64).abs() < 4.0 * error, "{bytes} of {all} ± {error}");
    }

    /// From the definitions of splitmix64 and xorshift64*, computed elsewhere; some are published as test vectors.
    #[test]
    fn random_numbers_are_those_of_the_named_generators() {
        assert_eq!(start(ThreadId(1), 0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(start(ThreadId(2), 0), 0x6e78_9e6a_a1b9_65f5);
        assert_eq!(start(ThreadId(3), 7), 0xd767_c315_887d_3abd);
        assert_eq!(start(ThreadId(4), 7), 0x475d_c5e2_16a2_9efd);
        let three = |state| {
            RANDOM.set(state);
            [random(), random(), random()]
        };
        assert_eq!(three(1), [0x47e4_ce4b_896c_dd1d, 0xabcf_a6a8_e079_651d, 0xb9d1_0d8f_eb73_1f57]);
        assert_eq!(three(0x0123_4567_89ab_cdef), [0x7c94_8247_2cb6_708c, 0xd570_5692_bf1f_28de, 0x88b7_1e3b_a5e0_05c0]);
    }

    #[test]
    fn the_longest_distance_is_finite() {
        // The next number is 5, of which the highest 53 bits are 0.
        RANDOM.set(0x8cfa_8cb0_23ea_401e);
        assert_eq!(distance(), (53.0 * 2f64.ln() * (1u64 << UNITS) as f64).ceil() as u64);
    }

    #[test]
    fn a_block_that_ends_at_a_point_contains_it() {
        let first = |state| {
            RANDOM.set(state);
            distance()
        };
        let (one, two) = (first(1), first(0x0200_0001));
        let reached = |to_point: u64, units: u64| {
            RANDOM.set(1);
            let to_point = Cell::new(to_point);
            (reaches_none(&to_point, units), to_point.get())
        };
        // The first countdown of a thread, and a later one.
        assert_eq!(reached(0, one - 1), (true, 1));
        assert_eq!([reached(0, one), reached(0, one + 1)], [(false, two); 2]);
        assert_eq!(reached(5, 5), (false, one));
        let interval = 1 << 10;
        let units = |size: usize| (size as u64) << (UNITS - 10);
        for (left, is_left_out) in [(units(8) + 1, true), (units(8), false), (units(8) - 1, false)] {
            TO_POINT.set(left);
            assert_eq!(leaves_out(8, interval), is_left_out);
        }
        TO_POINT.set(units(interval) * 2);
        assert!(!leaves_out(interval, interval), "a block of the interval's size is always recorded");
    }

    #[test]
    fn every_seed_and_every_thread_begins_elsewhere() {
        let mut all: Vec<u64> = (0..40).flat_map(|n| (0..40).map(move |seed| start(ThreadId(n), seed))).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 40 * 40);
    }

    #[test]
    fn a_cell_that_was_full_says_perhaps_and_others_count() {
        // Addresses that no real block has: other tests of this process may be recording.
        let (full, counted) = (3, 5);
        (0..300).for_each(|_| enter(full));
        (0..300).for_each(|_| leave(full));
        assert_eq!(cell(full).load(Relaxed), FULL);
        (0..2).for_each(|_| enter(counted));
        leave(counted);
        assert_eq!(cell(counted).load(Relaxed), 1);
        leave(counted);
        assert_eq!(cell(counted).load(Relaxed), 0);
        cell(full).store(0, Relaxed);
    }
}
