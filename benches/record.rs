//! What recording costs: nanoseconds per alloc+free pair of one 4 KiB block, and how much more the
//! naive way costs (a mutex around a list of `Backtrace::new_unresolved`).
//!
//! ```text
//! cargo bench --bench record [-- --json FILE]     the table
//! cargo test --benches                            a few pairs: does it still run?
//! ```
//!
//! # Why not divan
//! What counts are ratios, on machines that are shared. divan times one benchmark after another, so
//! that a neighbour who wakes up half-way changes them. Here every round runs every case, the order
//! shifting by one from round to round, and a ratio compares two cases of the same round.
//!
//! # Conditions
//! - 1,000 live blocks; a pair frees a random one and allocates its successor. So tables have
//!   something to search, and no pair that is timed makes a new peak.
//! - 16 call chains in rotation: the innermost frames of two pairs in a row differ, the outer ones
//!   stay. Kinder than a real program, which has thousands of stacks.
//! - One size, one thread, no scopes; stacks of allocations, not of frees, on both sides.
//! - Frames are machine frames, counted in this run: what the naive way takes, its own one or two
//!   included. memtrace's own make its stacks a few longer.
//! - Every measurement begins a new session. Its stacks are known from the warm-up, but its log of
//!   2^20 records starts empty and grows: page faults are counted in, as in a program's first seconds.
//! - The naive way calls `System` for the block and empties its list at 4096 entries, within the time
//!   taken. Its own allocations go through memtrace's allocator, which is installed, and off.
//! - Nothing is subtracted: all figures include the call through the chain and the allocation itself,
//!   which the first row shows alone. So the ratios are smaller than those of the added cost.
#![expect(unsafe_code, reason = "calls allocators directly")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
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
/// Call chains: as many as there are paths of `CHAIN_LEVELS` turns.
const CHAINS: usize = 1 << CHAIN_LEVELS;
const CHAIN_LEVELS: u32 = 4;

type Heap = &'static (dyn GlobalAlloc + Sync);

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

/// Frames of the stack that the naive recorder took last.
fn frames_seen() -> usize {
    let log = naive_log();
    let stack = log.iter().rev().find_map(|(_, stack)| stack.as_ref());
    // libgcc reports one frame with address 0 past the outermost.
    stack.map_or(0, |stack| stack.frames().iter().filter(|frame| !frame.ip().is_null()).count())
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
        for pair in 0..pairs {
            self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let slot = (self.random >> 33) as usize % LIVE;
            chain::<false>(black_box(CHAIN_LEVELS), pair % CHAINS, self.heap, &mut self.slots[slot]);
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

/// Replaces a block at the end of a chain of calls to either side, as the bits of `path` say.
#[inline(never)]
fn chain<const SIDE: bool>(levels: u32, path: usize, heap: Heap, slot: &mut *mut u8) {
    match (levels, path & 1) {
        (0, _) => replace(heap, slot),
        (_, 0) => chain::<false>(levels - 1, path >> 1, heap, slot),
        _ => chain::<true>(levels - 1, path >> 1, heap, slot),
    }
    // What follows a call keeps it a frame, and the two functions differ.
    black_box(SIDE);
}

fn replace(heap: Heap, slot: &mut *mut u8) {
    // SAFETY: the slot holds a block of this heap and layout, and gets another one next.
    unsafe { heap.dealloc(black_box(*slot), BLOCK) };
    *slot = allocate(heap);
}

/// Calls `work` from `levels` frames further in.
#[inline(never)]
fn deeper(levels: usize, work: &mut dyn FnMut()) {
    match levels {
        0 => work(),
        _ => deeper(levels - 1, work),
    }
    black_box(levels);
}

struct Case {
    name: &'static str,
    heap: Heap,
    session: Option<fn() -> Builder>,
    /// As wished for; as counted once `find_depth` was here.
    frames: usize,
    /// Frames added to get there.
    levels: usize,
}

impl Case {
    fn new(name: &'static str, heap: Heap, session: Option<fn() -> Builder>, frames: usize) -> Self {
        Self { name, heap, session, frames, levels: 0 }
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
        nanos
    }

    /// Calls `measure` from as deep as `take` does.
    #[inline(never)]
    fn find_depth(&mut self) {
        let mut counter = Self::new("frame counter", &Naive, None, 0);
        counter.measure(1);
        counter.levels = self.frames.saturating_sub(frames_seen());
        naive_log().clear();
        counter.measure(1);
        (self.levels, self.frames) = (counter.levels, frames_seen());
        naive_log().clear();
    }

    #[inline(never)]
    fn take(&self, pairs: usize) -> f64 {
        let nanos = self.measure(pairs);
        let frames = frames_seen();
        assert!(frames == 0 || frames == self.frames, "{}: {frames} frames", self.name);
        naive_log().clear();
        nanos
    }
}

fn counters_only() -> Builder {
    memtrace::builder().context(StackContext::None).enabled(Enabled::State)
}

/// The cases without stacks, then memtrace at each depth, then the naive way at each depth.
fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case::new("System, not through memtrace", &System, None, FRAMES[0]),
        Case::new("memtrace, off", &Watched, None, FRAMES[0]),
        Case::new("memtrace, counters only", &Watched, Some(counters_only), FRAMES[0]),
    ];
    cases.extend(FRAMES.map(|frames| Case::new("memtrace, full stacks", &Watched, Some(memtrace::builder), frames)));
    cases.extend(FRAMES.map(|frames| Case::new("naive, full stacks", &Naive, None, frames)));
    cases
}

/// Nanoseconds of each case in each round.
fn run(cases: &mut [Case], rounds: usize, pairs: usize) -> Vec<Vec<f64>> {
    for case in &mut *cases {
        case.find_depth();
    }
    let mut nanos = vec![Vec::with_capacity(rounds); cases.len()];
    for round in 0..rounds {
        for place in 0..cases.len() {
            let case = (place + round) % cases.len();
            nanos[case].push(cases[case].take(pairs));
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
    let case = |(case, nanos): (&Case, &Vec<f64>)| {
        let ((minimum, median), name, frames) = (minimum_and_median(nanos), case.name, case.frames);
        format!(r#"{{"name": "{name}", "frames": {frames}, "min_ns": {minimum:.1}, "median_ns": {median:.1}}}"#)
    };
    let ratio = |(frames, minima, median)| {
        format!(r#"{{"frames": {frames}, "of_minima": {minima:.3}, "median": {median:.3}}}"#)
    };
    let rows = |rows: Vec<String>| rows.join(",\n    ");
    let (block, rounds) = (BLOCK.size(), nanos[0].len());
    format!(
        "{{\n  \"block_bytes\": {block}, \"live_blocks\": {LIVE}, \"chains\": {CHAINS},\n  \
         \"rounds\": {rounds}, \"pairs\": {pairs},\n  \
         \"cases\": [\n    {}\n  ],\n  \"naive_to_memtrace\": [\n    {}\n  ]\n}}\n",
        rows(cases.iter().zip(nanos).map(case).collect()),
        rows(ratios(cases, nanos).into_iter().map(ratio).collect()),
    )
}

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let given = |option: &str| arguments.iter().position(|argument| argument == option);
    // `cargo bench` passes --bench; `cargo test --benches` does not.
    let quick = given("--bench").is_none() || given("--test").is_some();
    let (rounds, pairs) = if quick { (1, 32) } else { (21, 4096) };
    let mut cases = cases();
    let nanos = run(&mut cases, rounds, pairs);
    println!("{rounds} rounds of {pairs} pairs{}\n", if quick { ": a test, its figures mean nothing" } else { "" });
    print_table(&cases, &nanos);
    match given("--json").map(|at| arguments.get(at + 1)) {
        Some(Some(path)) => std::fs::write(path, json(&cases, &nanos, pairs)),
        Some(None) => Err(std::io::Error::other("--json needs a file")),
        None => Ok(()),
    }
}
