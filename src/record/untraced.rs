//! Live bytes of what the ledger does not hold, per thread and size class.
//!
//! Every block of the heap stands in exactly one account at any time: in the ledger, or here. An
//! allocation that is not recorded adds here and its free subtracts here, on whatever thread, so the
//! sum over the shards is right even where one shard is negative.
//!
//! Cost: the first threads have a shard each, to which nobody else writes, so they add without an atomic
//! operation. Later ones share shards and take an uncontended one.

use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use super::thread;

/// Threads with a shard of their own: those with the numbers below.
const OWNED: usize = 64;
/// Shards for all others.
const SHARED: usize = 64;
/// Class `n` holds sizes whose highest bit is bit `n - 1`; class 0 holds size 0.
const CLASSES: usize = 65;

#[repr(align(128))]
struct Shard {
    /// Live bytes of the program by size class.
    program: [AtomicI64; CLASSES],
    /// Live bytes that memtrace itself took through the watched allocator.
    own: AtomicI64,
}

static COUNTERS: [Shard; OWNED + SHARED] =
    [const { Shard { program: [const { AtomicI64::new(0) }; CLASSES], own: AtomicI64::new(0) } }; OWNED + SHARED];

thread_local! {
    // Const and without a destructor: there before main, in thread-local destructors and after.
    static OWN_SHARD: Cell<Option<&'static Shard>> = const { Cell::new(None) };
}

// Relaxed throughout: each counter stands for itself, and a reader that must not miss an update
// already synchronises with the thread that made it (it holds the block).
#[inline(always)]
fn change(counter: impl Fn(&Shard) -> &AtomicI64, by: i64) {
    match OWN_SHARD.get() {
        Some(shard) => change_own(counter(shard), by),
        None => _ = counter(shard()).fetch_add(by, Relaxed),
    }
}

/// Nobody else writes here: no update gets lost. One instruction where processors have such.
#[inline(always)]
fn change_own(counter: &AtomicI64, by: i64) {
    counter.store(counter.load(Relaxed).wrapping_add(by), Relaxed);
}

/// The same as [`add`] and [`subtract`] where that is quick; false if nothing was done.
#[inline(always)]
pub(crate) fn add_at_once(size: u64, sign: i64) -> bool {
    let shard = OWN_SHARD.get();
    if let Some(shard) = shard {
        change_own(&shard.program[class(size)], (size as i64).wrapping_mul(sign));
    }
    shard.is_some()
}

/// The shard of a thread that has not been here, or shares one.
#[cold]
#[inline(never)]
fn shard() -> &'static Shard {
    let number = thread::number().0 as usize;
    let owned = COUNTERS.get(number).filter(|_| number < OWNED);
    OWN_SHARD.set(owned);
    owned.unwrap_or(&COUNTERS[OWNED + number % SHARED])
}

#[inline]
pub(crate) fn add(size: u64) {
    change(|shard| &shard.program[class(size)], size as i64);
}

#[inline]
pub(crate) fn subtract(size: u64) {
    change(|shard| &shard.program[class(size)], (size as i64).wrapping_neg());
}

pub(crate) fn add_own(size: u64) {
    change(|shard| &shard.own, size as i64);
}

pub(crate) fn subtract_own(size: u64) {
    change(|shard| &shard.own, (size as i64).wrapping_neg());
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

/// (bytes in blocks from the threshold up to the interval, bytes in those that are as large as that or larger). Both are
/// 0 or powers of two.
pub(crate) fn around(min_size: u64, interval: u64) -> (u64, u64) {
    let first = |size: u64| if size <= 1 { 0 } else { class(size) };
    let (from, large) = (first(min_size), first(interval));
    (sum(from, large.max(from)), sum(large, CLASSES))
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

/// The shards of the threads that there were so far.
fn used() -> &'static [Shard] {
    let threads = thread::count();
    COUNTERS.get(..=threads).filter(|_| threads < OWNED).unwrap_or(&COUNTERS)
}

#[inline]
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

    #[test]
    fn no_byte_gets_lost_however_many_threads_there_are() {
        // A size that no other test of this process has.
        const SIZE: u64 = 1 << 61;
        let sum = || sum(class(SIZE), class(SIZE) + 1);
        std::thread::scope(|scope| {
            let one = || (0..1000).for_each(|_| (add(SIZE), subtract(SIZE)).0);
            (0..2 * (OWNED + SHARED)).for_each(|_| _ = scope.spawn(one));
        });
        assert_eq!(sum(), 0);
        std::thread::spawn(|| add(SIZE)).join().unwrap();
        assert_eq!(sum(), SIZE);
        subtract(SIZE);
        assert_eq!(sum(), 0);
    }
}
