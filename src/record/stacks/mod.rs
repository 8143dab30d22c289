//! Every distinct stack once, as a small number.
//!
//! A stack that is known is found without a lock: its number is where it stands, and both what stands there
//! and the index over it stay where they are. New ones are added under a lock.

mod guess;
mod index;
mod leak;
mod words;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use self::guess::Guesses;
use self::index::{Count, Index};
use self::words::{Pen, Words};
use super::unwind::{Known, SpacingBuffer, Stack};
use crate::snapshot::StackId;

/// Process-wide and never emptied: the same program has the same few thousand stacks in every
/// recording, so a number stays good and a second recording starts warm.
#[derive(Debug)]
pub(crate) struct StackTable {
    index: Index,
    words: Words,
    guesses: Guesses,
    writer: Mutex<Writer>,
    refused: AtomicU64,
}

/// The right to add stacks.
#[derive(Debug)]
pub(super) struct Writer {
    pen: Pen,
    count: Count,
    spacing: SpacingBuffer,
}

impl StackTable {
    pub(crate) const fn new() -> Self {
        let writer = Mutex::new(Writer { pen: Pen::new(), count: Count::new(), spacing: SpacingBuffer::new() });
        Self { index: Index::new(), words: Words::new(), guesses: Guesses::new(), writer, refused: AtomicU64::new(0) }
    }

    /// The number of this stack; `NONE` if there is no room for a new one.
    #[inline]
    pub(crate) fn intern(&self, stack: Stack<'_>) -> StackId {
        if stack.addresses.is_empty() {
            return StackId::NONE;
        }
        self.find(stack.hash, stack.addresses).unwrap_or_else(|| self.add(stack))
    }

    #[inline]
    fn find(&self, hash: u64, addresses: &[u64]) -> Option<StackId> {
        self.index.find(hash, |place| self.words.stack(place) == addresses).map(StackId)
    }

    #[cold]
    fn add(&self, stack: Stack<'_>) -> StackId {
        let Stack { addresses, hash, source, .. } = stack;
        let mut writer = self.lock();
        // Another thread may have been faster.
        if let Some(known) = self.find(hash, addresses) {
            return known;
        }
        let Writer { pen, count, spacing } = &mut *writer;
        let room = self.index.reserve(count);
        let spacing = source.spacing(spacing);
        let Some(place) = room.then(|| self.words.write(pen, addresses, spacing)).flatten() else {
            self.refused.fetch_add(1, Relaxed);
            return StackId::NONE;
        };
        self.index.add(count, hash, place);
        StackId(place)
    }

    /// The stack that is most likely next on this thread, if its innermost address is this one.
    #[inline(always)]
    pub(crate) fn guess(&self, innermost: u64) -> Option<Known<'_>> {
        self.words.known(self.guesses.next(innermost)?)
    }

    /// The stack with this number, if it can be known again.
    #[cfg(test)]
    pub(crate) fn known(&self, stack: StackId) -> Option<Known<'_>> {
        self.words.known(stack.0)
    }

    /// This is the stack that came, guessed or not.
    #[inline(always)]
    pub(crate) fn learn(&self, stack: StackId) {
        self.guesses.learn(stack.0);
    }

    /// Copies the addresses of a stack to `out`, innermost first.
    pub(crate) fn copy_to(&self, stack: StackId, out: &mut Vec<u64>) {
        if stack != StackId::NONE {
            out.extend(self.words.stack(stack.0).iter().rev());
        }
    }

    /// How many stacks were not kept.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Writer> {
        // A panic cannot leave the table half changed: nothing under this lock panics.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::unwind::{HASH_OF_NONE, Source, hash_with};

    fn stack_of(addresses: &[u64]) -> Stack<'_> {
        // Few hashes, so that stacks are told apart by their addresses.
        let hash = addresses.iter().fold(HASH_OF_NONE, |hash, address| hash_with(hash, *address)) >> 58 << 58;
        Stack { addresses, hash, shortened: false, source: Source::NONE }
    }

    #[test]
    fn equal_stacks_share_a_number_and_different_ones_do_not() {
        let table = StackTable::new();
        let stacks: Vec<[u64; 3]> = (0..500u64).map(|n| [7, n % 250 + 1, n % 250]).collect();
        let ids: Vec<StackId> = stacks.iter().map(|addresses| table.intern(stack_of(addresses))).collect();
        assert_eq!(ids[..250], ids[250..]);
        let mut unique = ids[..250].to_vec();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), 250);
        for (id, stack) in ids.iter().zip(&stacks) {
            let mut out = Vec::new();
            table.copy_to(*id, &mut out);
            out.reverse();
            assert_eq!(out, stack);
        }
    }

    #[test]
    fn the_empty_stack_is_none() {
        assert_eq!(StackTable::new().intern(stack_of(&[])), StackId::NONE);
    }

    #[test]
    fn threads_that_come_at_once_agree_on_the_numbers() {
        let table = StackTable::new();
        let numbers = |seed: u64| -> Vec<(u64, StackId)> {
            let order = (0..3000u64).map(|n| (n * 7919 + seed * 1013) % 3000);
            order.map(|n| (n, table.intern(stack_of(&[n + 1, n + 2, n % 5])))).collect()
        };
        let all: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|seed| scope.spawn(move || numbers(seed))).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let mut known = std::collections::HashMap::new();
        for (stack, id) in all {
            assert_eq!(*known.entry(stack).or_insert(id), id);
        }
        let different: std::collections::HashSet<StackId> = known.values().copied().collect();
        assert_eq!((known.len(), different.len(), table.refused()), (3000, 3000, 0));
    }
}
