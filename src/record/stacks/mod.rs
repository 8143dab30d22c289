//! Interning table of stacks. Each distinct stack is stored once, and its id is the place where it is stored.
//!
//! Known stacks are found without a lock, because stored stacks and the index never move, change or disappear. So
//! threads that allocate at the same lines share cache lines instead of passing their ownership around, and a
//! thread-local cache in front would gain nothing. New stacks are added under a lock. `tests/loom` checks the index
//! under every interleaving.

mod guess;
mod index;
mod leak;
mod words;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use memtrace_core::snapshot::StackId;
use memtrace_core::units::MAX_STACK_DEPTH;

use self::guess::Guesses;
use self::index::{EntryCount, StackIndex};
use self::words::{Pen, Words};
use super::lock::{Lock, Locked, rank};
use super::unwind::objects::mark;
use super::unwind::stack::{KnownStack, PredictStack, SpacingBuffer, Stack, hash_with};

/// One table for the whole process. It is never emptied: a program has the same few thousand stacks in every
/// recording. It takes 256 MiB at most; stacks beyond that are not stored (`Health::lost_stacks`).
#[derive(Debug)]
pub(crate) struct StackTable {
    index: StackIndex,
    words: Words,
    guesses: Guesses,
    writer: Lock<Writer, { rank::STACKS }>,
    refused: AtomicU64,
}

/// The state that is needed to add a stack.
#[derive(Debug)]
pub(super) struct Writer {
    new: Adding,
    /// Buffer for a stack with an unload mark.
    marked: [u64; MAX_STACK_DEPTH + 2],
}

#[derive(Debug)]
struct Adding {
    pen: Pen,
    count: EntryCount,
    spacing: SpacingBuffer,
}

/// Set in the last word of a stack that ends with an unload mark; see [`objects`](super::unwind::objects).
const MARK: u64 = 1 << 63;

impl StackTable {
    pub(crate) const fn new() -> Self {
        let new = Adding { pen: Pen::new(), count: EntryCount::new(), spacing: SpacingBuffer::new() };
        let writer = Lock::new(Writer { new, marked: [0; MAX_STACK_DEPTH + 2] });
        Self {
            index: StackIndex::new(),
            words: Words::new(),
            guesses: Guesses::new(),
            writer,
            refused: AtomicU64::new(0),
        }
    }

    /// The id of this stack; `NONE` if the table is full.
    #[inline]
    pub(crate) fn intern(&self, stack: Stack<'_>) -> StackId {
        if stack.addresses.is_empty() {
            return StackId::NONE;
        }
        let mark = if stack.may_go { mark(stack.addresses) } else { 0 };
        if mark > 0 {
            return self.intern_marked(&stack, mark);
        }
        self.find(stack.hash, stack.addresses).unwrap_or_else(|| self.add(stack))
    }

    #[inline]
    fn find(&self, hash: u64, addresses: &[u64]) -> Option<StackId> {
        self.index.find(hash, |place| self.words.stack(place) == addresses).map(StackId)
    }

    #[cold]
    #[inline(never)]
    fn intern_marked(&self, stack: &Stack<'_>, mark: u64) -> StackId {
        let Writer { new, marked } = &mut *self.lock();
        let mark = MARK | mark;
        let Some(marked) = marked.get_mut(..=stack.addresses.len()) else { return StackId::NONE };
        marked.iter_mut().zip(stack.addresses.iter().chain([&mark])).for_each(|(to, from)| *to = *from);
        self.add_to(new, Stack { addresses: marked, hash: hash_with(stack.hash, mark), ..*stack })
    }

    #[cold]
    fn add(&self, stack: Stack<'_>) -> StackId {
        self.add_to(&mut self.lock().new, stack)
    }

    fn add_to(&self, new: &mut Adding, stack: Stack<'_>) -> StackId {
        let Stack { addresses, hash, source, .. } = stack;
        // Another thread may have added the stack meanwhile.
        if let Some(known) = self.find(hash, addresses) {
            return known;
        }
        let Adding { pen, count, spacing } = new;
        let room = self.index.reserve(count);
        let spacing = source.and_then(|source| source.spacing(spacing));
        let Some(place) = room.then(|| self.words.write(pen, addresses, spacing)).flatten() else {
            self.refused.fetch_add(1, Relaxed);
            return StackId::NONE;
        };
        self.index.add(count, hash, place);
        StackId(place)
    }

    #[cfg(test)]
    pub(crate) fn known(&self, stack: StackId) -> Option<KnownStack<'_>> {
        self.words.known(stack.0)
    }

    /// Reports this thread's stack to the prediction.
    #[inline(always)]
    pub(crate) fn learn(&self, stack: StackId) {
        self.guesses.learn(stack.0);
    }

    /// Appends a stack's addresses to `out`, innermost first, and returns its unload mark. With the mark, `ObjectMap`
    /// finds the objects of the addresses.
    pub(crate) fn copy_to(&self, stack: StackId, out: &mut Vec<u64>) -> u64 {
        if stack == StackId::NONE {
            return 0;
        }
        let words = self.words.stack(stack.0);
        let (addresses, mark) = match words.split_last() {
            Some((mark, addresses)) if mark & MARK != 0 => (addresses, mark & !MARK),
            _ => (words, 0),
        };
        out.extend(addresses.iter().rev());
        mark
    }

    /// Number of stacks that were not stored.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    pub(super) fn lock(&self) -> Locked<'_, Writer, { rank::STACKS }> {
        self.writer.lock()
    }
}

impl<'a> PredictStack<'a> for &'a StackTable {
    #[inline(always)]
    fn predict(self, innermost: u64) -> Option<KnownStack<'a>> {
        self.words.known(self.guesses.next(innermost)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::unwind::stack::HASH_OF_NONE;

    fn stack_of(addresses: &[u64]) -> Stack<'_> {
        // There are few distinct hashes, so the addresses must distinguish stacks.
        let hash = addresses.iter().fold(HASH_OF_NONE, |hash, address| hash_with(hash, *address)) >> 58 << 58;
        Stack { addresses, hash, shortened: false, may_go: false, source: None }
    }

    #[test]
    fn equal_stacks_share_a_number_and_different_ones_do_not() {
        static TABLE: StackTable = StackTable::new();
        let stacks: Vec<[u64; 3]> = (0..500u64).map(|n| [7, n % 250 + 1, n % 250]).collect();
        let ids: Vec<StackId> = stacks.iter().map(|addresses| TABLE.intern(stack_of(addresses))).collect();
        assert_eq!(ids[..250], ids[250..]);
        let mut unique = ids[..250].to_vec();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), 250);
        for (id, stack) in ids.iter().zip(&stacks) {
            let mut out = Vec::new();
            assert_eq!(TABLE.copy_to(*id, &mut out), 0);
            out.reverse();
            assert_eq!(out, stack);
        }
    }

    #[test]
    fn a_stack_of_other_code_at_the_same_addresses_is_another_one() {
        static TABLE: StackTable = StackTable::new();
        let marked = |mark| match mark {
            0 => TABLE.intern(stack_of(&[5, 6])),
            _ => TABLE.intern_marked(&stack_of(&[5, 6]), mark),
        };
        let ids = [0, 1, 2].map(marked);
        assert_eq!(ids, [0, 1, 2].map(marked));
        for (id, mark) in ids.into_iter().zip(0..) {
            let mut out = Vec::new();
            assert_eq!((TABLE.copy_to(id, &mut out), out), (mark, vec![6, 5]));
        }
        let deepest = vec![1; MAX_STACK_DEPTH + 1];
        assert_ne!(TABLE.intern_marked(&stack_of(&deepest), 1), StackId::NONE);
    }

    #[test]
    fn the_empty_stack_is_none() {
        static TABLE: StackTable = StackTable::new();
        assert_eq!(TABLE.intern(stack_of(&[])), StackId::NONE);
    }

    #[test]
    fn threads_that_come_at_once_agree_on_the_numbers() {
        static TABLE: StackTable = StackTable::new();
        let numbers = |seed: u64| -> Vec<(u64, StackId)> {
            let order = (0..3000u64).map(|n| (n * 7919 + seed * 1013) % 3000);
            order.map(|n| (n, TABLE.intern(stack_of(&[n + 1, n + 2, n % 5])))).collect()
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
        assert_eq!((known.len(), different.len(), TABLE.refused()), (3000, 3000, 0));
    }
}
