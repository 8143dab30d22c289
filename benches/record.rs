//! What recording costs: nanoseconds per alloc+free pair of one 4 KiB block, and how much more the
//! naive way costs (a mutex around a list of `Backtrace::new_unresolved`).
//!
//! ```text
//! cargo bench --bench record [-- --json FILE]     the table
//! cargo test --benches                            a few pairs: does it still run?
//! ```
//!
//! # Why not divan
//! What is wanted are ratios, on machines that are shared. divan times one benchmark after another,
//! so that a neighbour who wakes up half-way changes the ratio. Here every round runs every case, the
//! order shifting by one from round to round, and a ratio compares two cases of the same round.
//!
//! # Conditions
//! - 1,000 live blocks; a pair frees a random one of them and allocates its successor. So every
//!   lookup has a table to search, the heap's own work is a warm one, and once the blocks are there
//!   no pair makes a new peak.
//! - 16 call chains in rotation: the innermost frames of two pairs in a row always differ, the
//!   outer ones stay. That is kinder than a real program, which has thousands of stacks.
//! - One size, one thread, no scopes; stacks of allocations only, on both sides.
//! - Frames are machine frames from the call of the allocator outwards. Either side's own frames
//!   come on top, a handful each.
//! - Every round begins a new session. Its stacks are known from the warm-up, but its log of 2^20
//!   records is empty and still grows: page faults are counted in, as in a program's first seconds.
//! - The naive way runs with memtrace's allocator installed and off, which its own allocations go
//!   through; it calls `System` for the block, notes a free without a stack, and empties its list at
//!   4096 entries within the time taken (two times a round).
//! - All figures include the call through the chain and the allocation itself, which the first row
//!   shows alone. Nothing is subtracted, so ratios come out smaller than those of the added cost.
#![expect(unsafe_code, reason = "calls allocators directly")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use backtrace::Backtrace;
use memtrace::{Builder, Device, Enabled, StackContext};

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

const BLOCK: Layout = Layout::new::<[u8; 4096]>();
const LIVE: usize = 1000;
const WARM_UP: usize = 512;
const FRAMES: [usize; 3] = [21, 37, 67];
/// Frames of a chain besides its innermost one.
const CHAIN_LEVELS: usize = 3;
const CHAINS: [Chain; 16] = [
    chain::<0>, chain::<1>, chain::<2>, chain::<3>, chain::<4>, chain::<5>, chain::<6>, chain::<7>,
    chain::<8>, chain::<9>, chain::<10>, chain::<11>, chain::<12>, chain::<13>, chain::<14>, chain::<15>,
];

type Heap = &'static (dyn GlobalAlloc + Sync);
type Chain = fn(usize, Heap, &mut *mut u8);

/// The program's own allocator, as `Box` and `Vec` reach it: through memtrace.
struct Watched;

// SAFETY: passes everything on to the global allocator.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { std::alloc::alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps `dealloc`'s contract.
        unsafe { std::alloc::dealloc(block, layout) }
    }
}

/// The naive recorder. Called explicitly and never installed, so its own allocations do not recurse.
struct Naive;

static NAIVE_LOG: Mutex<Vec<(usize, Option<Backtrace>)>> = Mutex::new(Vec::new());

fn naive_log() -> MutexGuard<'static, Vec<(usize, Option<Backtrace>)>> {
    NAIVE_LOG.lock().unwrap_or_else(PoisonError::into_inner)
}

fn note(block: *mut u8, stack: Option<Backtrace>) {
    let mut log = naive_log();
    if log.len() == 4096 {
        log.clear();
    }
    log.push((block.addr(), stack));
}

// SAFETY: passes everything on to the system allocator.
unsafe impl GlobalAlloc for Naive {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps `alloc`'s contract.
        let block = unsafe { System.alloc(layout) };
        note(block, Some(Backtrace::new_unresolved()));
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        note(block, None);
        // SAFETY: the caller keeps `dealloc`'s contract.
        unsafe { System.dealloc(block, layout) }
    }
}

/// Counts the frames from the call of the allocator outwards.
struct FrameCounter;

static FRAMES_SEEN: AtomicUsize = AtomicUsize::new(0);

// SAFETY: passes everything on to the system allocator.
unsafe impl GlobalAlloc for FrameCounter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // libgcc reports one frame with address 0 past the outermost.
        let stack = Backtrace::new_unresolved();
        FRAMES_SEEN.store(stack.frames().iter().filter(|frame| !frame.ip().is_null()).count(), Relaxed);
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps `dealloc`'s contract.
        unsafe { System.dealloc(block, layout) }
    }
}

/// The live blocks, all from one heap.
struct Blocks {
    heap: Heap,
    slots: Vec<*mut u8>,
    random: u64,
}

impl Blocks {
    fn new(heap: Heap) -> Self {
        Self { heap, slots: (0..LIVE).map(|_| allocate(heap)).collect(), random: 99 }
    }

    fn exchange(&mut self, pairs: usize) {
        for chain in CHAINS.iter().cycle().take(pairs) {
            self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let slot = (self.random >> 33) as usize % LIVE;
            chain(black_box(CHAIN_LEVELS), self.heap, &mut self.slots[slot]);
        }
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        for &block in &self.slots {
            // SAFETY: every slot holds a block of this heap and layout, freed only here.
            unsafe { self.heap.dealloc(block, BLOCK) };
        }
    }
}

fn allocate(heap: Heap) -> *mut u8 {
    // SAFETY: the layout has a size.
    let block = black_box(unsafe { heap.alloc(BLOCK) });
    assert!(!block.is_null(), "out of memory");
    block
}

/// One of 16 functions that differ only in their addresses. What follows a call keeps it a frame.
#[inline(never)]
fn chain<const ID: usize>(levels: usize, heap: Heap, slot: &mut *mut u8) {
    if levels > 0 {
        chain::<ID>(levels - 1, heap, slot);
    } else {
        // SAFETY: the slot holds a block of this heap and layout, and gets another one next.
        unsafe { heap.dealloc(black_box(*slot), BLOCK) };
        *slot = allocate(heap);
    }
    black_box(ID);
}

/// Calls `work` from `levels` frames further in.
#[inline(never)]
fn deeper(levels: usize, work: &mut dyn FnMut()) {
    if levels > 0 { deeper(levels - 1, work) } else { work() }
    black_box(levels);
}

struct Case {
    name: &'static str,
    heap: Heap,
    session: Option<fn() -> Builder>,
    /// Frames added between the round and the chain.
    levels: usize,
    frames: usize,
}

impl Case {
    fn new(name: &'static str, heap: Heap, session: Option<fn() -> Builder>, (levels, frames): (usize, usize)) -> Self {
        Self { name, heap, session, levels, frames }
    }

    /// Nanoseconds per pair, in a session of its own if it has one.
    #[inline(never)]
    fn measure(&self, pairs: usize) -> f64 {
        let session = self.session.map(|options| options().start().expect("no other session is under way"));
        let mut blocks = Blocks::new(self.heap);
        let mut nanos = 0.0;
        deeper(self.levels, &mut || {
            blocks.exchange(WARM_UP);
            let began = Instant::now();
            blocks.exchange(pairs);
            nanos = began.elapsed().as_nanos() as f64 / pairs as f64;
        });
        let recorded = memtrace::stats(Device::Cpu).allocations.allocated as usize;
        assert_eq!(recorded >= LIVE + WARM_UP + pairs, session.is_some(), "{}: {recorded} recorded", self.name);
        drop(blocks);
        naive_log().clear();
        nanos
    }
}

fn counters_only() -> Builder {
    memtrace::builder().context(StackContext::None).enabled(Enabled::State)
}

/// The cases without stacks, then memtrace at each depth, then the naive way at each depth.
fn cases() -> Vec<Case> {
    let depths = FRAMES.map(levels_for);
    let mut cases = vec![
        Case::new("System, not through memtrace", &System, None, depths[0]),
        Case::new("memtrace, off", &Watched, None, depths[0]),
        Case::new("memtrace, counters only", &Watched, Some(counters_only), depths[0]),
    ];
    cases.extend(depths.map(|depth| Case::new("memtrace, full stacks", &Watched, Some(memtrace::builder), depth)));
    cases.extend(depths.map(|depth| Case::new("naive, full stacks", &Naive, None, depth)));
    cases
}

/// How many levels it takes to get to so many frames, and the frames there really are then.
fn levels_for(frames: usize) -> (usize, usize) {
    let levels = frames.saturating_sub(count_frames(0));
    (levels, count_frames(levels))
}

#[inline(never)]
fn count_frames(levels: usize) -> usize {
    black_box(Case::new("frame counter", &FrameCounter, None, (levels, 0)).measure(1));
    FRAMES_SEEN.load(Relaxed)
}

/// Nanoseconds of each case in each round.
fn run(cases: &[Case], rounds: usize, pairs: usize) -> Vec<Vec<f64>> {
    let mut nanos = vec![vec![0.0; rounds]; cases.len()];
    for round in 0..rounds {
        for place in 0..cases.len() {
            let case = (place + round) % cases.len();
            nanos[case][round] = cases[case].measure(pairs);
        }
    }
    nanos
}

fn minimum_and_median(values: &[f64]) -> (f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    (sorted[0], sorted[sorted.len() / 2])
}

/// At each depth: (frames, ratio of the minima, median of the rounds' ratios), naive to memtrace.
fn ratios(cases: &[Case], nanos: &[Vec<f64>]) -> Vec<(usize, f64, f64)> {
    let naive = cases.len() - FRAMES.len();
    let ratio = |case: usize| {
        let (slow, fast) = (&nanos[case], &nanos[case - FRAMES.len()]);
        let by_round: Vec<f64> = slow.iter().zip(fast).map(|(slow, fast)| slow / fast).collect();
        (cases[case].frames, minimum_and_median(slow).0 / minimum_and_median(fast).0, minimum_and_median(&by_round).1)
    };
    (naive..cases.len()).map(ratio).collect()
}

fn print_table(cases: &[Case], nanos: &[Vec<f64>]) {
    println!("{:<32}{:>8}{:>12}{:>12}", "ns per alloc+free of 4 KiB", "frames", "minimum", "median");
    for (case, nanos) in cases.iter().zip(nanos) {
        let (minimum, median) = minimum_and_median(nanos);
        println!("{:<32}{:>8}{minimum:>12.1}{median:>12.1}", case.name, case.frames);
    }
    println!("\n{:<32}{:>8}{:>12}{:>12}", "naive / memtrace", "frames", "of minima", "median");
    for (frames, minima, median) in ratios(cases, nanos) {
        println!("{:<32}{frames:>8}{minima:>12.2}{median:>12.2}", "");
    }
}

fn json(cases: &[Case], nanos: &[Vec<f64>], pairs: usize) -> String {
    let rounds = nanos[0].len();
    let mut out = format!("{{\n\"block_bytes\": {}, \"live_blocks\": {LIVE}, ", BLOCK.size());
    let _ = write!(out, "\"chains\": {}, \"rounds\": {rounds}, \"pairs\": {pairs},\n\"cases\": [", CHAINS.len());
    for (index, (case, nanos)) in cases.iter().zip(nanos).enumerate() {
        let (minimum, median) = minimum_and_median(nanos);
        let (comma, name, frames) = (if index > 0 { "," } else { "" }, case.name, case.frames);
        let _ = write!(out, "{comma}\n  {{\"name\": \"{name}\", \"frames\": {frames}, ");
        let _ = write!(out, "\"min_ns\": {minimum:.1}, \"median_ns\": {median:.1}}}");
    }
    out.push_str("\n],\n\"naive_to_memtrace\": [");
    for (index, (frames, minima, median)) in ratios(cases, nanos).into_iter().enumerate() {
        let comma = if index > 0 { "," } else { "" };
        let _ = write!(out, "{comma}\n  {{\"frames\": {frames}, \"of_minima\": {minima:.3}, \"median\": {median:.3}}}");
    }
    out + "\n]\n}\n"
}

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let given = |option: &str| arguments.iter().position(|argument| argument == option);
    // `cargo bench` passes --bench; `cargo test --benches` does not.
    let quick = given("--bench").is_none() || given("--test").is_some();
    let (rounds, pairs) = if quick { (1, 32) } else { (21, 4096) };
    let cases = cases();
    let nanos = run(&cases, rounds, pairs);
    println!("{rounds} rounds of {pairs} pairs{}\n", if quick { ": a test, its figures mean nothing" } else { "" });
    print_table(&cases, &nanos);
    match given("--json").map(|at| arguments.get(at + 1)) {
        Some(Some(path)) => std::fs::write(path, json(&cases, &nanos, pairs)),
        Some(None) => Err(std::io::Error::other("--json needs a file")),
        None => Ok(()),
    }
}
