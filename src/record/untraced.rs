//! Sharded counters of the untraced account: live bytes that are in no ledger, per thread and size class.
//!
//! A block that is not recorded is added by the thread that allocates it, and subtracted by the thread that frees it.
//! The sum over the shards is exact even where a single shard is negative.
//!
//! Each of the first 63 threads has its own shard. Only that thread writes it, without an atomic read-modify-write.
//! Later threads share shards. Padding avoids false sharing. If a signal handler interrupts an update of an own
//! shard, the handler's allocation may not be counted in builds where the addition is not one instruction.

use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use super::thread;

/// Threads with ids below this have their own shard.
const OWNED: usize = 64;
const SHARED: usize = 64;
/// Class `n` holds sizes whose highest bit is bit `n - 1`; class 0 holds size 0.
const CLASSES: usize = 65;

#[repr(align(128))]
struct Shard {
    /// Live bytes of the program by size class.
    program: [AtomicI64; CLASSES],
    /// Live bytes of memtrace itself in the watched allocator.
    own: AtomicI64,
}

static COUNTERS: [Shard; OWNED + SHARED] =
    [const { Shard { program: [const { AtomicI64::new(0) }; CLASSES], own: AtomicI64::new(0) } }; OWNED + SHARED];

thread_local! {
    // It is const and has no destructor, so it is usable before main, in thread-local destructors and at exit.
    static OWN_SHARD: Cell<Option<&'static Shard>> = const { Cell::new(None) };
}

// All accesses are relaxed, because the counters are independent. A reader that must not miss an update has the
// block, so it is synchronised with the thread that made the update.
#[inline(always)]
fn change(counter: impl Fn(&Shard) -> &AtomicI64, by: i64) {
    match OWN_SHARD.get() {
        Some(shard) => change_own(counter(shard), by),
        None => _ = counter(shard()).fetch_add(by, Relaxed),
    }
}

/// Only this thread writes this counter, so no update is lost. One instruction on x86_64.
#[inline(always)]
fn change_own(counter: &AtomicI64, by: i64) {
    counter.store(counter.load(Relaxed).wrapping_add(by), Relaxed);
}

/// [`add`] (`sign` 1) or [`subtract`] (−1) on this thread's own shard. False if the thread has none.
#[inline(always)]
pub(crate) fn add_at_once(size: u64, sign: i64) -> bool {
    let shard = OWN_SHARD.get();
    if let Some(shard) = shard {
        change_own(&shard.program[class(size)], (size as i64).wrapping_mul(sign));
    }
    shard.is_some()
}

/// [`add`] (`sign` 1) or [`subtract`] (−1) without a thread-local variable. Uses shard 0, which belongs to no thread,
/// as thread numbers begin at 1.
#[cfg(feature = "preload")]
pub(crate) fn add_early(size: u64, sign: i64) {
    COUNTERS[0].program[class(size)].fetch_add((size as i64).wrapping_mul(sign), Relaxed);
}

/// The shard of a thread that has no own shard yet, or never will.
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

/// Returns (bytes below the threshold, other bytes). Here and below, sizes that are limits must be 0 or a power of
/// two.
pub(crate) fn split_at(min_size: u64) -> (u64, u64) {
    (below(min_size), sum(first_class(min_size), CLASSES))
}

pub(crate) fn below(min_size: u64) -> u64 {
    sum(0, first_class(min_size))
}

/// Returns (bytes in blocks from the threshold up to the interval, bytes in larger blocks).
pub(crate) fn around(min_size: u64, interval: u64) -> (u64, u64) {
    let (from, large) = (first_class(min_size), first_class(interval));
    (sum(from, large.max(from)), sum(large, CLASSES))
}

/// The class of the smallest blocks of at least this size.
fn first_class(size: u64) -> usize {
    if size <= 1 { 0 } else { class(size) }
}

pub(crate) fn own() -> i64 {
    used().iter().map(|shard| shard.own.load(Relaxed)).sum()
}

fn sum(from: usize, to: usize) -> u64 {
    let bytes = |shard: &Shard| shard.program[from..to].iter().map(|n| n.load(Relaxed)).sum::<i64>();
    // A free may be read before its alloc on another shard, so the sum is clamped at zero.
    used().iter().map(bytes).sum::<i64>().max(0) as u64
}

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
        // A size that no other test of this process uses.
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
