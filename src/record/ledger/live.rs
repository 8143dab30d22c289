//! Open-addressing hash table of live blocks: linear probing, backward-shift deletion, no tombstones.
//!
//! Slots are packed records of 32 bytes, so a look-up usually reads one cache line. With many live blocks, waiting for
//! memory is most of the cost of recording. Blocks that cannot be packed are in a separate map.

use std::sync::atomic::Ordering;

use memtrace_core::snapshot::{Block, ContextId, Record};

use super::super::gates::GATES;
use super::super::memory::{OwnMap, own_map};
use super::super::pages::{LARGE, PageVec, Pages};
use super::super::prefetch::prefetch;
use super::packed::{Packed, address_of, context_of, pack, record_of, seq_of, size_of_block};

const FIRST_SIZE: usize = 64;
/// First size of a large table: one huge page. Slots are accessed in random order, so small pages would overflow the
/// TLB.
const FIRST_LARGE_SIZE: usize = LARGE / size_of::<Packed<4>>();
const EMPTY: Packed<4> = [0; 4];

#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn prefetch_slot(address: u64) {
    // Relaxed: if the table has moved meanwhile, the prefetch is useless but harmless.
    let [start, places] = &GATES.heap_table;
    let home = home_in(places.load(Ordering::Relaxed), address);
    let place = start.load(Ordering::Relaxed).wrapping_add(home.wrapping_mul(size_of::<Packed<4>>()));
    prefetch(place);
    // A removal also reads the next slot.
    prefetch(place.wrapping_add(size_of::<Packed<4>>()));
}

/// Multiplicative (Fibonacci) hash: the upper bits of the product depend on all bits of the address.
#[cfg_attr(not(debug_assertions), inline(always))]
fn home_in(places: usize, address: u64) -> usize {
    let product = address.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (product >> 32) as usize & places.wrapping_sub(1)
}

/// Whether a slot is empty. No packed block has address 0.
#[cfg_attr(not(debug_assertions), inline(always))]
fn is_empty(words: &Packed<4>) -> bool {
    words[1] == 0
}

/// A live block. It is stored whole only if it cannot be packed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LiveBlock {
    Packed(Packed<4>),
    Whole(Block),
}

/// Defines a getter for each field: the function that reads it from packed words, and how it is read from a [`Block`].
macro_rules! getters {
    ($($name:ident -> $type:ty = $packed:ident, [$($whole:tt)*];)*) => {
        $(
            #[inline]
            pub(crate) fn $name(&self) -> $type {
                match self {
                    Self::Packed(words) => $packed(words),
                    Self::Whole(block) => block.$($whole)*,
                }
            }
        )*
    };
}

impl LiveBlock {
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn of(block: &Block) -> Self {
        pack(&Record::alloc_of(block)).filter(|words| !is_empty(words)).map_or(Self::Whole(*block), Self::Packed)
    }

    getters! {
        address -> u64 = address_of, [address];
        size -> u64 = size_of_block, [size];
        context -> ContextId = context_of, [context];
        seq -> u64 = seq_of, [raw_seq()];
    }

    #[inline]
    pub(crate) fn block(&self) -> Block {
        match self {
            Self::Packed(words) => record_of(words).block(),
            Self::Whole(block) => *block,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entered {
    New,
    /// Another block is at this address. It stays.
    Taken,
    NoRoom,
}

// Two functions called one after the other, because each has a large stack frame in unoptimised builds.

#[inline(never)]
fn room_for(size: usize) -> Option<PageVec<Packed<4>>> {
    let mut places = PageVec::new_in(Pages);
    places.try_reserve_exact(size).ok()?;
    Some(places)
}

#[inline(never)]
fn fill(places: &mut PageVec<Packed<4>>, size: usize) {
    places.resize(size, EMPTY);
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct LiveBlocks {
    /// The slots. Their number is a power of two, and at least a quarter of them are empty.
    places: PageVec<Packed<4>>,
    first_size: usize,
    /// This is the heap's table, from which [`prefetch_slot`] prefetches.
    is_heap: bool,
    whole: OwnMap<u64, Block>,
    packed: usize,
}

impl LiveBlocks {
    pub(crate) const fn new() -> Self {
        Self { places: PageVec::new_in(Pages), first_size: FIRST_SIZE, is_heap: false, packed: 0, whole: own_map() }
    }

    /// A table for many blocks, in a ledger whose log has room for `records` records. A short log means that memory is
    /// scarce, so the table gets memory only with its first block.
    pub(crate) fn large(is_heap: bool, records: usize) -> Self {
        let mut blocks = Self { first_size: FIRST_LARGE_SIZE, is_heap, ..Self::new() };
        if records >= FIRST_LARGE_SIZE {
            // The memory is taken now rather than at the first block. If there is none, the first block tries again.
            blocks.grow();
        }
        blocks
    }

    pub(crate) fn len(&self) -> usize {
        self.packed + self.whole.len()
    }

    /// Enters a block. Its log position must not be 0.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn enter(&mut self, held: &LiveBlock) -> Entered {
        let LiveBlock::Packed(words) = held else { return self.enter_whole(held) };
        let room = (self.packed + 1) * 4 <= self.places.len() * 3 || self.grow();
        if !room {
            return Entered::NoRoom;
        }
        let address = address_of(words);
        let mut at = self.home(address);
        while let Some(there) = self.places.get_mut(at) {
            if is_empty(there) {
                if !self.whole.is_empty() && self.whole.contains_key(&address) {
                    return Entered::Taken;
                }
                *there = *words;
                self.packed += 1;
                return Entered::New;
            }
            if address_of(there) == address {
                return Entered::Taken;
            }
            at = self.after(at);
        }
        Entered::NoRoom
    }

    #[inline]
    pub(crate) fn get(&self, address: u64) -> Option<Block> {
        match self.find(address) {
            Some(at) => self.places.get(at).map(|words| record_of(words).block()),
            None => self.whole.get(&address).copied(),
        }
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn remove_packed(&mut self, address: u64) -> Option<Packed<4>> {
        let at = self.find(address)?;
        let words = self.places.get(at).copied();
        self.close_gap(at);
        self.packed -= 1;
        words
    }

    pub(crate) fn remove_whole(&mut self, address: u64) -> Option<Block> {
        if self.whole.is_empty() { None } else { self.whole.remove(&address) }
    }

    /// All live blocks, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Block> {
        self.places
            .iter()
            .filter(|words| !is_empty(words))
            .map(|words| record_of(words).block())
            .chain(self.whole.values().copied())
    }

    pub(crate) fn forget_times(&mut self) {
        for words in self.places.iter_mut().filter(|words| !is_empty(words)) {
            let packed = pack(&Record { time_ns: 0, ..record_of(words) });
            *words = packed.unwrap_or(*words);
        }
        self.whole.values_mut().for_each(|block| block.time_ns = 0);
    }

    #[cold]
    fn enter_whole(&mut self, held: &LiveBlock) -> Entered {
        let block = held.block();
        if self.get(block.address).is_some() {
            return Entered::Taken;
        }
        if self.whole.try_reserve(1).is_err() {
            return Entered::NoRoom;
        }
        self.whole.insert(block.address, block);
        Entered::New
    }

    /// The slot of the block with this address.
    #[inline]
    fn find(&self, address: u64) -> Option<usize> {
        let mut at = self.home(address);
        loop {
            let words = self.places.get(at)?;
            if is_empty(words) {
                return None;
            }
            if address_of(words) == address {
                return Some(at);
            }
            at = self.after(at);
        }
    }

    #[inline]
    fn first_empty(&self, address: u64) -> usize {
        let mut at = self.home(address);
        while self.places.get(at).is_some_and(|words| !is_empty(words)) {
            at = self.after(at);
        }
        at
    }

    /// Backward-shift deletion: up to the next empty slot, fills the gap with each block that may move into it.
    #[inline]
    fn close_gap(&mut self, mut gap: usize) {
        let mask = self.places.len().wrapping_sub(1);
        let mut at = self.after(gap);
        while let Some(&words) = self.places.get(at).filter(|words| !is_empty(words)) {
            let home = self.home(address_of(&words));
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(gap) & mask {
                self.put(gap, words);
                gap = at;
            }
            at = self.after(at);
        }
        self.put(gap, EMPTY);
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) -> bool {
        let size = (self.places.len() * 2).max(self.first_size);
        let Some(mut places) = room_for(size) else { return false };
        fill(&mut places, size);
        if self.is_heap {
            GATES.heap_table[0].store(places.as_ptr().addr(), Ordering::Relaxed);
            GATES.heap_table[1].store(size, Ordering::Relaxed);
        }
        let old = std::mem::replace(&mut self.places, places);
        for words in old.iter().filter(|words| !is_empty(words)) {
            let at = self.first_empty(address_of(words));
            self.put(at, *words);
        }
        true
    }

    #[inline]
    fn put(&mut self, at: usize, words: Packed<4>) {
        if let Some(place) = self.places.get_mut(at) {
            *place = words;
        }
    }

    #[inline]
    fn home(&self, address: u64) -> usize {
        home_in(self.places.len(), address)
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
        (at + 1) & self.places.len().wrapping_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::num::NonZeroU64;

    use memtrace_core::snapshot::{ContextId, MemoryKind, StackId, ThreadId};
    use proptest::prelude::*;

    use super::*;

    fn block(address: u64, seq: u64, whole: bool) -> Block {
        Block {
            address,
            size: seq * 3,
            seq: NonZeroU64::new(seq),
            time_ns: seq,
            stack: StackId(seq as u32),
            context: ContextId(1),
            thread: ThreadId(2),
            stream: u32::from(whole),
            memory: MemoryKind::Heap,
        }
    }

    #[test]
    fn a_large_table_is_there_before_the_first_block_unless_the_log_is_short() {
        let places = |records| LiveBlocks::large(false, records).places.len();
        assert_eq!((places(FIRST_LARGE_SIZE), places(100)), (FIRST_LARGE_SIZE, 0));
    }

    /// Otherwise a look-up would read many slots.
    #[test]
    fn a_table_is_at_most_three_quarters_full_and_blocks_are_near_their_home() {
        for spread in [16, 256, 4096, 2 << 20, 1 << 32] {
            let mut live = LiveBlocks::new();
            for n in 1..=3000u64 {
                assert_eq!(live.enter(&LiveBlock::of(&block(n * spread, n, false))), Entered::New);
                let needed = (n as usize * 4).div_ceil(3).next_power_of_two().max(FIRST_SIZE);
                assert_eq!(live.places.len(), needed, "{n} blocks");
            }
            let mask = live.places.len() - 1;
            let far = |n: u64| live.find(n * spread).unwrap().wrapping_sub(live.home(n * spread)) & mask;
            assert!((1..=3000).map(far).sum::<usize>() < 3 * 3000, "{spread}");
        }
    }

    proptest! {
        #[test]
        fn it_holds_what_a_map_would(steps in prop::collection::vec((0..300u64, 0..4u32), 0..2000), spread in 0..3u32) {
            let (mut live, mut map) = (LiveBlocks::new(), HashMap::new());
            for (seq, (n, step)) in (1..).zip(steps) {
                // Neighbours, pages, and distant addresses.
                let address = n << [4, 12, 40][spread as usize];
                if step == 0 {
                    let packed = live.remove_packed(address).map(|words| LiveBlock::Packed(words).block());
                    let removed = packed.or_else(|| live.remove_whole(address));
                    prop_assert_eq!(removed, map.remove(&address));
                } else {
                    let new = block(address, seq, step == 3);
                    let expected = if map.contains_key(&address) { Entered::Taken } else { Entered::New };
                    prop_assert_eq!(live.enter(&LiveBlock::of(&new)), expected);
                    map.entry(address).or_insert(new);
                }
                prop_assert_eq!(live.get(address), map.get(&address).copied());
                prop_assert_eq!(live.len(), map.len());
            }
            live.forget_times();
            let mut all: Vec<Block> = live.iter().collect();
            all.sort_by_key(|block| block.seq);
            let mut expected: Vec<Block> = map.into_values().map(|block| Block { time_ns: 0, ..block }).collect();
            expected.sort_by_key(|block| block.seq);
            prop_assert_eq!(all, expected);
        }
    }
}
