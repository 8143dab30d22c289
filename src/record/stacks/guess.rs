//! Stack prediction. A thread's next stack is predicted from its last stack and from the innermost address of the next
//! one: what followed this pair the last time is likely to follow it again, because programs repeat their allocations
//! in the same order. A wrong guess costs a few comparisons. A thread whose guesses are mostly wrong stops guessing,
//! until its guesses would have been right again.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

/// log₂ of the number of slots of a table.
const SLOTS: u32 = 12;
/// Number of tables: one that stays empty, and those of threads. Threads that share a table write to each other's
/// slots.
const TABLES: u32 = 64;
/// Credit for a right guess. A wrong guess costs 1.
const RIGHT: u32 = 4;
const MOST_CREDIT: u32 = 32;

/// Each of the first threads has a table; later threads share these. Slots are hints, so any writer's value will do. A
/// table without a guess takes no memory, a full one 16 KiB.
#[derive(Debug)]
pub(super) struct Guesses {
    /// Stack ids; 0 for none.
    next: [AtomicU32; (TABLES << SLOTS) as usize],
    /// Threads that have a table.
    threads: AtomicU32,
}

#[derive(Clone, Copy)]
struct Prediction {
    /// Id of the last stack.
    last: u32,
    /// The first slot of the thread's table, or of the empty table before the thread has one of its own.
    table: u32,
    /// The slot of the last guess.
    slot: u32,
    credit: u32,
}

thread_local! {
    // It is const and has no destructor, so it is usable before main, in thread-local destructors and at exit.
    static PREDICTION: Cell<Prediction> = const { Cell::new(Prediction { last: 0, table: 0, slot: 0, credit: 0 }) };
}

impl Guesses {
    pub(super) const fn new() -> Self {
        Self { next: [const { AtomicU32::new(0) }; _], threads: AtomicU32::new(0) }
    }

    /// The id of the stack that this thread is likely to have, given the stack's innermost address.
    #[inline(always)]
    pub(super) fn next(&self, innermost: u64) -> Option<u32> {
        // `LocalKey::with` is inlined, `LocalKey::set` is not.
        PREDICTION.with(|cell| {
            let prediction = cell.get();
            let slot = prediction.table + slot_of(prediction.last, innermost);
            cell.set(Prediction { slot, ..prediction });
            // Acquire: the stack was written before its id was stored in this slot.
            let guess = self.at(slot).load(Ordering::Acquire);
            (prediction.credit > 0 && guess != 0).then_some(guess)
        })
    }

    /// Learns the actual stack.
    #[inline(always)]
    pub(super) fn learn(&self, place: u32) {
        PREDICTION.with(|cell| {
            let Prediction { mut table, slot, mut credit, .. } = cell.get();
            let guess = self.at(slot);
            if guess.load(Ordering::Relaxed) == place {
                credit = (credit + RIGHT).min(MOST_CREDIT);
            } else if table == 0 {
                table = self.new_table();
            } else {
                // Release: this thread has read that stack.
                guess.store(place, Ordering::Release);
                credit = credit.saturating_sub(1);
            }
            cell.set(Prediction { last: place, table, slot, credit });
        });
    }

    #[cold]
    fn new_table(&self) -> u32 {
        (self.threads.fetch_add(1, Ordering::Relaxed) % (TABLES - 1) + 1) << SLOTS
    }

    #[inline(always)]
    fn at(&self, slot: u32) -> &AtomicU32 {
        // In range, because of the modulus.
        &self.next[slot as usize % self.next.len()]
    }
}

#[inline(always)]
fn slot_of(last: u32, innermost: u64) -> u32 {
    let hash = (u64::from(last) << 32 ^ innermost).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> (u64::BITS - SLOTS)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of these stacks are predicted. A stack's innermost address is its number modulo 10.
    fn guessed(guesses: &Guesses, stacks: impl Iterator<Item = u32>) -> usize {
        let is_guessed = |stack: &u32| {
            let right = guesses.next(u64::from(stack % 10)) == Some(*stack);
            guesses.learn(*stack);
            right
        };
        stacks.filter(is_guessed).count()
    }

    #[test]
    fn what_comes_in_the_same_order_is_guessed_once_it_was_seen() {
        static GUESSES: Guesses = Guesses::new();
        let order = || (0..300u32).map(|n| n * 7919 % 997 + 1);
        guessed(&GUESSES, order());
        assert!(guessed(&GUESSES, order()) > 280);
        assert!(guessed(&GUESSES, order()) > 290);
    }

    #[test]
    fn threads_with_different_orders_do_not_disturb_each_other() {
        static GUESSES: Guesses = Guesses::new();
        let turns = std::sync::Barrier::new(2);
        let right = |odd: u32| {
            // Both threads have the same stack before each of these, but another one after it.
            let order = (0..300).flat_map(|n| [n * 20 + 1, n * 20 + 1_000_011 - odd * 10]);
            let all: Vec<u32> = order.cycle().take(1800).collect();
            all.chunks(2).fold(0, |right, pair| {
                turns.wait();
                right + guessed(&GUESSES, pair.iter().copied())
            })
        };
        let both = std::thread::scope(|scope| {
            [0, 1].map(|odd| scope.spawn(move || right(odd))).map(|thread| thread.join().unwrap())
        });
        assert!(both.iter().all(|right| *right > 900), "{both:?}");
    }

    #[test]
    fn where_guesses_are_wrong_none_are_made() {
        static GUESSES: Guesses = Guesses::new();
        let mut random = 1u64;
        let mut next = || {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (random >> 33) as u32 % 1000 + 1
        };
        let made = (0..10_000).filter(|_| {
            let stack = next();
            let made = GUESSES.next(u64::from(stack % 10)).is_some();
            GUESSES.learn(stack);
            made
        });
        assert!(made.count() < 500);
    }
}
