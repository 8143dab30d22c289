//! The workload: blocks that are replaced at the end of many different call chains.

use std::alloc::Layout;
use std::hint::black_box;

use crate::clock::ticks;
use crate::heaps::Heap;

pub(crate) const BLOCK: Layout = Layout::new::<[u8; 4096]>();
const WAYS: usize = 16;
const CHAIN_LEVELS: u32 = 3;
/// Chains in use, of the 16³ possible ones.
pub(crate) const CHAINS: usize = 1024;

pub(crate) struct Blocks {
    heap: Heap,
    slots: Vec<*mut u8>,
    random: u64,
    /// Number of pairs so far, if chains repeat in the same order; `None` for random chains.
    in_order: Option<usize>,
}

impl Blocks {
    pub(crate) fn new(heap: Heap, live: usize, seed: u64, in_order: bool) -> Self {
        let slots = (0..live).map(|_| allocate(heap)).collect();
        Self { heap, slots, random: seed, in_order: in_order.then_some(0) }
    }

    /// Frees a random block and allocates its successor in the next chain; both through `heap`.
    #[inline(always)]
    fn step(&mut self, heap: Heap) {
        self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let slot = (self.random >> 33) as usize % self.slots.len();
        let path = match &mut self.in_order {
            None => (self.random >> 20) as usize,
            // Visits every chain before any repeats, and no neighbours in sequence.
            Some(pairs) => {
                *pairs += 1;
                *pairs * 389
            }
        };
        chain::<0>(black_box(CHAIN_LEVELS), path % CHAINS, heap, &mut self.slots[slot]);
    }

    #[inline(never)]
    pub(crate) fn exchange(&mut self, heap: Heap, pairs: usize) {
        for _ in 0..pairs {
            self.step(heap);
        }
    }

    /// The same, timing each pair in ticks.
    #[inline(never)]
    pub(crate) fn exchange_timed(&mut self, heap: Heap, pairs: usize, took: &mut Vec<u32>) {
        for _ in 0..pairs {
            let began = ticks();
            self.step(heap);
            took.push(ticks().wrapping_sub(began).min(u64::from(u32::MAX)) as u32);
        }
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        for &block in &self.slots {
            // SAFETY: each slot holds a block of this heap and layout, freed only here.
            unsafe { self.heap.dealloc(block, BLOCK) };
        }
    }
}

fn allocate(heap: Heap) -> *mut u8 {
    // SAFETY: the layout's size is not 0.
    let block = black_box(unsafe { heap.alloc(BLOCK) });
    assert!(!block.is_null(), "out of memory");
    block
}

macro_rules! ways {
    ($way:expr, $levels:expr, $path:expr, $heap:expr, $slot:expr; $($n:literal)*) => {
        match $way { $($n => chain::<$n>($levels, $path, $heap, $slot),)* _ => {} }
    };
}

/// Replaces a block at the end of a chain of calls to one of 16 functions each, selected by the digits of `path`.
#[inline(never)]
fn chain<const WAY: usize>(levels: u32, path: usize, heap: Heap, slot: &mut *mut u8) {
    match levels {
        0 => replace(heap, slot),
        _ => ways!(path % WAYS, levels - 1, path / WAYS, heap, slot; 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15),
    }
    // Prevents a tail call and identical-code folding.
    black_box(WAY);
}

fn replace(heap: Heap, slot: &mut *mut u8) {
    // SAFETY: the slot holds a block of this heap and layout; it is replaced next.
    unsafe { heap.dealloc(black_box(*slot), BLOCK) };
    *slot = allocate(heap);
}

/// Calls `work` from `levels` frames further in.
#[inline(never)]
pub(crate) fn deeper(levels: usize, work: &mut dyn FnMut()) {
    match levels {
        0 => work(),
        _ => deeper(levels - 1, work),
    }
    black_box(levels);
}
