//! A ring of messages from any number of threads to the holder of a lock, in one total order: every message has a
//! number, which an atomic addition assigns. The same addition sums the messages' weights, so a sender knows the sum up
//! to its message.
//!
//! A sender takes a number, waits until the slot for that number is free, and writes its message there. The holder of
//! the lock takes the messages out in the order of their numbers, up to the first one that is not written yet.
//! `tests/loom` runs every interleaving.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of waiting messages; 2 MiB. One busy core fills the ring in three milliseconds. A thread that takes
/// messages may lose its core for about as long.
#[cfg(not(loom))]
pub(super) const LENGTH: u64 = 1 << 15;
#[cfg(loom)]
pub(super) const LENGTH: u64 = 2;

#[cfg(not(loom))]
pub(super) type Message = [u64; 7];
#[cfg(loom)]
pub(super) type Message = [u64; 2];

/// The lower bits of a position, which count messages; the other bits sum weights. Once in 2²² messages, the count
/// carries into the sum. That does no harm, because sender and receiver see the same sum.
const BITS: u32 = 22;
const NUMBERS: u64 = 1 << BITS;

#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Queue {
    /// The sum of all weights, and the next number.
    next: AtomicU64,
    /// The same values up to the first message that is still in the ring. Written by the holder of the lock.
    taken: AtomicU64,
    places: Places,
}

#[derive(Debug)]
#[repr(align(128))]
struct Places([Place; LENGTH as usize]);

/// One cache line, so that two threads do not contend when they write adjacent messages.
#[derive(Debug)]
#[repr(align(64))]
struct Place {
    /// The first number of the round (one pass over the ring) that may write here; one more once the message is
    /// written. All places of a new ring are zero, so it takes no memory.
    state: AtomicU64,
    words: [AtomicU64; size_of::<Message>() / size_of::<u64>()],
}

/// A position in the order of all messages, with the sum of the weights up to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position(u64);

impl Position {
    #[inline(always)]
    fn number(self) -> u64 {
        self.0 % NUMBERS
    }

    /// The first number of the round that this position belongs to.
    #[inline(always)]
    fn round(self) -> u64 {
        self.number() / LENGTH * LENGTH
    }

    /// The position after a message with this weight.
    #[inline(always)]
    pub(super) fn after(self, weight: i64) -> Self {
        Self(self.0.wrapping_add((weight as u64) << BITS).wrapping_add(1))
    }

    /// The sum of weights; it wraps at 2⁴¹.
    #[inline(always)]
    pub(super) fn sum(self) -> i64 {
        self.0 as i64 >> BITS
    }

    pub(super) fn is_before(self, other: Self) -> bool {
        (1..NUMBERS / 2).contains(&self.until(other))
    }

    /// Whether this is the last position of a group of `count`.
    #[inline(always)]
    pub(super) fn is_last_of(self, count: u64) -> bool {
        self.number() % count == count - 1
    }

    /// Messages from here to a later position.
    #[inline(always)]
    pub(super) fn until(self, end: Self) -> u64 {
        end.0.wrapping_sub(self.0) % NUMBERS
    }
}

impl Queue {
    #[cfg(not(loom))]
    pub(super) const fn new() -> Self {
        let places = Places(
            [const { Place { state: AtomicU64::new(0), words: [const { AtomicU64::new(0) }; _] } }; LENGTH as usize],
        );
        Self { next: AtomicU64::new(0), taken: AtomicU64::new(0), places }
    }

    #[cfg(loom)]
    pub(super) fn new() -> Self {
        let place = || Place { state: AtomicU64::new(0), words: std::array::from_fn(|_| AtomicU64::new(0)) };
        let places = Places(std::array::from_fn(|_| place()));
        Self { next: AtomicU64::new(0), taken: AtomicU64::new(0), places }
    }

    #[inline(always)]
    fn place(&self, number: u64) -> &Place {
        // In range, because of the modulus.
        &self.places.0[(number % LENGTH) as usize]
    }

    /// The position of a new message with this weight.
    #[inline(always)]
    pub(super) fn position(&self, weight: i64) -> Position {
        // AcqRel: see `end`.
        Position(self.next.fetch_add(Position(0).after(weight).0, Ordering::AcqRel))
    }

    /// Whether the message at this position may be written now.
    #[inline(always)]
    pub(super) fn is_free(&self, at: Position) -> bool {
        // Acquire: the previous message in this slot has been read.
        self.place(at.number()).state.load(Ordering::Acquire) == at.round()
    }

    /// Writes a message. The slot must [be free](Self::is_free).
    #[inline(always)]
    pub(super) fn send(&self, at: Position, message: &Message) {
        let place = self.place(at.number());
        for (to, from) in place.words.iter().zip(message) {
            // Relaxed: published by the next store.
            to.store(*from, Ordering::Relaxed);
        }
        // Release: publishes the message.
        place.state.store(at.round() + 1, Ordering::Release);
    }

    /// Whether all messages with a position have been taken out. Must be called with the lock held.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        // Relaxed: a position that was taken before this call is seen.
        Position(self.next.load(Ordering::Relaxed)) == self.first()
    }

    /// The position of the next message. The sender that gets this position sees what this thread wrote before. So if
    /// one thread turns the queue off and then calls this, and another sends a message and then checks the mode, at
    /// least one of them sees what the other did.
    pub(super) fn end(&self) -> Position {
        // AcqRel, with an addition of 0: it is ordered before or after a sender's addition, and the later one reads the
        // earlier.
        Position(self.next.fetch_add(0, Ordering::AcqRel))
    }

    /// The position of the first message that is still in the ring. To be called with the lock held, like the next
    /// functions.
    #[inline(always)]
    pub(super) fn first(&self) -> Position {
        // Relaxed: the lock orders its holders' accesses.
        Position(self.taken.load(Ordering::Relaxed))
    }

    /// Takes out the message at this position, which must be the first one in the ring. `None` if it is not written
    /// yet.
    #[inline(always)]
    pub(super) fn take(&self, at: Position) -> Option<Message> {
        let place = self.place(at.number());
        // Acquire: synchronises with the sender that wrote the message.
        if place.state.load(Ordering::Acquire) != at.round() + 1 {
            return None;
        }
        // Relaxed: ordered by the load above and the store below.
        let message = std::array::from_fn(|word| place.words[word].load(Ordering::Relaxed));
        // Release: the message is read before another one is written in its place.
        place.state.store((at.round() + LENGTH) % NUMBERS, Ordering::Release);
        Some(message)
    }

    /// A word of the message `ahead` places after this position, or of an older message in the same place.
    #[inline(always)]
    pub(super) fn hint(&self, at: Position, ahead: u64, word: usize) -> u64 {
        // Relaxed: any value is good enough.
        self.place(at.number() + ahead).words.get(word).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Notes that all messages before this position have been taken out.
    pub(super) fn set_first(&self, at: Position) {
        // Relaxed: the lock orders its holders' accesses.
        self.taken.store(at.0, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn message(value: u64) -> Message {
        std::array::from_fn(|word| value.wrapping_mul(word as u64 + 1))
    }

    /// Takes all messages and returns their values.
    fn taken(queue: &Queue) -> Vec<u64> {
        let (mut at, end, mut values) = (queue.first(), queue.end(), Vec::new());
        while at.is_before(end) {
            let Some(found) = queue.take(at) else { break };
            assert_eq!(found, message(found[0]), "whole");
            at = at.after(found[0] as i64);
            values.push(found[0]);
        }
        queue.set_first(at);
        values
    }

    #[test]
    fn numbers_and_sums_begin_again_after_the_last() {
        static QUEUE: Queue = Queue::new();
        let mut sum = 0;
        for number in 0..2 * NUMBERS + 3 {
            // Some weights are negative.
            let value = ((number % 1000) as i64 - 400) as u64;
            sum += value as i64;
            let at = QUEUE.position(value as i64);
            assert!(QUEUE.is_free(at));
            QUEUE.send(at, &message(value));
            assert_eq!(taken(&QUEUE), [value]);
        }
        assert!(QUEUE.is_empty());
        assert_eq!(QUEUE.end().sum(), sum + 2, "with a carry of each round of numbers");
    }

    #[test]
    fn a_ring_that_is_full_most_of_the_time_loses_nothing_and_keeps_each_threads_order() {
        const EACH: u64 = 3 * LENGTH;
        static QUEUE: Queue = Queue::new();
        let all = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let all = &all;
                scope.spawn(move || {
                    for number in 0..EACH {
                        let value = thread << 32 | number;
                        let at = QUEUE.position(value as i64);
                        while !QUEUE.is_free(at) {
                            let mut all = all.lock().unwrap();
                            all.extend(taken(&QUEUE));
                        }
                        QUEUE.send(at, &message(value));
                    }
                });
            }
        });
        let mut all = all.into_inner().unwrap();
        all.extend(taken(&QUEUE));
        assert!(QUEUE.is_empty());
        for thread in 0..4u64 {
            let numbers = all.iter().filter(|value| *value >> 32 == thread).map(|value| value & u64::from(u32::MAX));
            assert!(numbers.eq(0..EACH));
        }
        assert_eq!(all.len() as u64, 4 * EACH);
    }
}
