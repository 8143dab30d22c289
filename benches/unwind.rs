//! Cost of a stack in nanoseconds, taken by memtrace's unwinder and by libgcc's.
//!
//! ```text
//! cargo bench --bench unwind              the table
//! cargo bench --bench unwind -- --test    a few stacks: does it still run?
//! ```
//!
//! # Conditions
//! - Every round runs every case, in an order that rotates from round to round. A ratio compares two cases of the same
//!   round, so other load on the machine affects both.
//! - libgcc counts the stack's depth in this run. Each level is one of four functions with different frame sizes, one
//!   of them with a frame pointer.
//! - Warm: all rules are cached. The first row of a depth is the very first stack.
//! - Nothing is interned or allocated: this is the unwinder alone, with its frame, its buffer and the check for
//!   unloaded objects.
#![expect(unsafe_code, reason = "calls the unsynchronised unwinder, as memtrace does")]

use std::hint::black_box;
use std::time::Instant;

use memtrace::take_stack;

const FRAMES: [usize; 3] = [21, 37, 67];
/// Recursion depths; only memtrace's stacks.
const DEEP: [usize; 4] = [100, 1000, 10_000, 100_000];
/// Takes a stack and returns the number of its addresses.
type Take = fn() -> usize;
const CASES: [(&str, Take); 2] = [("memtrace", take_stack), ("libgcc, by `backtrace`", libgcc)];

/// What memtrace does where its own unwinder cannot prove a stack.
#[inline(never)]
fn libgcc() -> usize {
    let mut stack = [0u64; 256];
    let mut length = 0;
    let visit = |frame: &backtrace::Frame| {
        let place = stack.get_mut(length).filter(|_| !frame.ip().is_null());
        length += usize::from(place.is_some());
        place.map(|place| *place = frame.ip() as u64).is_some()
    };
    // SAFETY: on unix this is libgcc's thread-safe unwinder.
    unsafe { backtrace::trace_unsynchronized(visit) };
    black_box(&stack);
    length
}

macro_rules! levels {
    ($($name:ident, $words:literal);*) => {
        $(#[inline(never)]
        fn $name(left: usize, work: &mut dyn FnMut()) {
            let words = black_box([left; $words]);
            deeper(left, work);
            black_box(words);
        })*
        const LEVELS: [fn(usize, &mut dyn FnMut()); 4] = [$($name),*];
    };
}
levels!(one_word, 1; five_words, 5; many_words, 90; a_page, 600);

/// Calls `work` after `left` more levels.
#[inline(always)]
fn deeper(left: usize, work: &mut dyn FnMut()) {
    match left {
        0 => work(),
        _ => LEVELS[left % 4](left - 1, work),
    }
}

/// The levels at which libgcc sees this many frames, and what it sees then.
fn depth_for(frames: usize) -> (usize, usize) {
    let seen = |levels| {
        let mut seen = 0;
        deeper(levels, &mut || seen = measure(libgcc, 1).1);
        seen
    };
    let levels = frames.saturating_sub(seen(0));
    (levels, seen(levels))
}

/// Nanoseconds per stack, and its frames.
#[inline(never)]
fn measure(take: Take, times: usize) -> (f64, usize) {
    let mut frames = 0;
    let began = Instant::now();
    for _ in 0..times {
        frames = black_box(take)();
    }
    (began.elapsed().as_nanos() as f64 / times as f64, frames)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

fn row(frames: usize, rounds: usize, times: usize) {
    let (levels, seen) = depth_for(frames);
    let mut nanos = [vec![], vec![]];
    deeper(levels, &mut || {
        println!("{seen:>6}  {:<24}{:>10.0}", "memtrace, first time", measure(take_stack, 1).0);
        for round in 0..rounds {
            for place in 0..CASES.len() {
                let case = (place + round) % CASES.len();
                nanos[case].push(measure(CASES[case].1, times).0);
            }
        }
    });
    let mut ratios: Vec<f64> = nanos[1].iter().zip(&nanos[0]).map(|(slow, fast)| slow / fast).collect();
    for ((name, _), nanos) in CASES.iter().zip(&mut nanos) {
        let median = median(nanos);
        println!("{seen:>6}  {name:<24}{:>10.1}{median:>10.1}{:>10.2}", nanos[0], nanos[0] / seen as f64);
    }
    println!("{seen:>6}  {:<24}{:>20.1}", "libgcc / memtrace", median(&mut ratios));
}

/// Recurses: one stack at each level, then many at the last.
#[inline(never)]
fn recurse(left: usize, times: usize) -> f64 {
    black_box(take_stack());
    let nanos = if left == 0 {
        measure(take_stack, times).0
    } else {
        black_box(recurse as fn(usize, usize) -> f64)(left - 1, times)
    };
    black_box(nanos)
}

/// Nanoseconds per stack on the way into a recursion, and at its end.
fn deep(levels: usize, times: usize) -> (f64, f64) {
    let run = move || {
        let began = Instant::now();
        recurse(levels, 1);
        let each = began.elapsed().as_nanos() as f64 / levels as f64;
        (each, recurse(levels, times))
    };
    std::thread::Builder::new().stack_size(1 << 28).spawn(run).unwrap().join().unwrap()
}

fn main() {
    // `cargo bench` passes --bench; `cargo test --benches` does not.
    let given = |option: &str| std::env::args().any(|argument| argument == option);
    let quick = !given("--bench") || given("--test");
    let (rounds, times) = if quick { (1, 8) } else { (41, 2000) };
    println!("{rounds} rounds of {times} stacks{}\n", if quick { ": a test, its figures mean nothing" } else { "" });
    println!("{:>6}  {:<24}{:>10}{:>10}{:>10}", "frames", "ns a stack", "minimum", "median", "a frame");
    FRAMES.iter().for_each(|&frames| row(frames, rounds, times));
    println!("\n{:>7}  {:>20}{:>20}", "levels", "ns at each level", "ns at the last one");
    for levels in DEEP {
        let levels = if quick { levels / 100 } else { levels };
        let (each, last) = deep(levels, times);
        println!("{levels:>7}  {each:>20.0}{last:>20.0}");
    }
}
