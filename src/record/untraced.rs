//! Live bytes of what the ledger does not hold, per thread and size class.
//!
//! Every block of the heap stands in exactly one account at any time: in the ledger, or here. An
//! allocation that is not recorded adds here and its free subtracts here, on whatever thread, so the
//! sum over the shards is right even where one shard is negative.
//!
//! Cost: one uncontended atomic addition on a cache line that only this thread writes (as long as
//! there are at most [`SHARDS`] threads).

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::Relaxed};

use super::thread;

const SHARDS: usize = 64;
/// Class `n` holds sizes whose highest bit is bit `n - 1`; class 0 holds size 0.
const CLASSES: usize = 65;

#[repr(align(128))]
struct Shard {
    /// Live bytes of the program by size class.
    program: [AtomicI64; CLASSES],
    /// Live bytes that memtrace itself took through the watched allocator.
    own: AtomicI64,
}

static COUNTERS: [Shard; SHARDS] =
    [const { Shard { program: [const { AtomicI64::new(0) }; CLASSES], own: AtomicI64::new(0) } }; SHARDS];
/// Shards in use: the sum need not read the others.
static USED: AtomicUsize = AtomicUsize::new(0);

fn shard() -> &'static Shard {
    let index = thread::number().0 as usize % SHARDS;
    // Relaxed throughout: each counter stands for itself, and a reader that must not miss an update
    // already synchronises with the thread that made it (it holds the block).
    if USED.load(Relaxed) <= index {
        USED.fetch_max(index + 1, Relaxed);
    }
    &COUNTERS[index]
}

#[inline]
pub(crate) fn add(size: u64) {
    shard().program[class(size)].fetch_add(size as i64, Relaxed);
}

#[inline]
pub(crate) fn subtract(size: u64) {
    shard().program[class(size)].fetch_sub(size as i64, Relaxed);
}

pub(crate) fn add_own(size: u64) {
    shard().own.fetch_add(size as i64, Relaxed);
}

pub(crate) fn subtract_own(size: u64) {
    shard().own.fetch_sub(size as i64, Relaxed);
}

/// (bytes in blocks below the threshold, bytes in the others). `min_size` is 0 or a power of two.
pub(crate) fn split_at(min_size: u64) -> (u64, u64) {
    let first_large = if min_size <= 1 { 0 } else { class(min_size) };
    (sum(0, first_large), sum(first_large, CLASSES))
}

/// Bytes in blocks below the threshold.
pub(crate) fn below(min_size: u64) -> u64 {
    if min_size <= 1 { 0 } else { sum(0, class(min_size)) }
}

/// Bytes that memtrace holds through the watched allocator.
pub(crate) fn own() -> i64 {
    used().iter().map(|shard| shard.own.load(Relaxed)).sum()
}

fn sum(from: usize, to: usize) -> u64 {
    let bytes = |shard: &Shard| shard.program[from..to].iter().map(|n| n.load(Relaxed)).sum::<i64>();
    // A free may be read before the alloc that it undoes, on another shard: never below zero.
    used().iter().map(bytes).sum::<i64>().max(0) as u64
}

fn used() -> &'static [Shard] {
    COUNTERS.get(..USED.load(Relaxed)).unwrap_or(&COUNTERS)
}

fn class(size: u64) -> usize {
    (u64::BITS - size.leading_zeros()) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_power_of_two_begins_its_class() {
        for bit in 0..64 {
            let size = 1u64 << bit;
            assert_eq!(class(size), bit as usize + 1);
            assert_eq!(class(size - 1), bit as usize);
        }
    }
}
