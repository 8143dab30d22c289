//! Cost of a span under memtrace's layer: nanoseconds per enter+exit of a stored span, and per create+enter+exit+close
//! of a new one, relative to tracing-subscriber's registry alone.
//!
//! ```text
//! cargo bench --bench spans          the table
//! cargo test --benches               a few spans, to see that it runs
//! ```
//!
//! # Conditions
//! - Every round runs every case, in an order that shifts by one. A ratio compares two cases of the same round;
//!   `benches/record/main.rs` gives the reason.
//! - A turn enters nested spans and leaves them. Figures are per span: a depth of 4 is four spans. Spans have
//!   level TRACE, no fields, and one callsite per level; they are created anew in each turn, or once per measurement.
//! - Nothing allocates inside the spans. A recording takes the device's lock and keeps two marks for every span; each
//!   measurement starts a new session.
//! - The registry alone keeps its stack of spans and counts references. Nothing is subtracted.

use std::hint::black_box;
use std::time::Instant;

use memtrace::Device;
use tracing::{Dispatch, Span, dispatcher, trace_span};
use tracing_subscriber::prelude::*;

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

const DEPTHS: [usize; 2] = [1, 4];
const WARM_UP: usize = 64;

/// The subscriber's layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listener {
    Registry,
    Layer,
    LayerRecording,
}

const LISTENERS: [Listener; 3] = [Listener::Registry, Listener::Layer, Listener::LayerRecording];

impl Listener {
    fn name(self) -> &'static str {
        match self {
            Self::Registry => "registry alone",
            Self::Layer => "with memtrace's layer, not recording",
            Self::LayerRecording => "with memtrace's layer, recording",
        }
    }

    fn dispatch(self) -> Dispatch {
        match self {
            Self::Registry => Dispatch::new(tracing_subscriber::registry()),
            _ => Dispatch::new(tracing_subscriber::registry().with(memtrace::layer())),
        }
    }
}

#[derive(Clone, Copy)]
struct Case {
    depth: usize,
    made_anew: bool,
    listener: Listener,
}

impl Case {
    /// Nanoseconds per span.
    fn measure(self, turns: usize) -> f64 {
        let recording = self.listener == Listener::LayerRecording;
        let session = recording.then(|| memtrace::start().expect("no other session is under way"));
        let nanos = dispatcher::with_default(&self.listener.dispatch(), || self.time(turns));
        let spans_seen = session.is_some_and(|session| {
            let snapshot = session.snapshot();
            let cpu = snapshot.device(Device::Cpu).expect("the heap is recorded");
            cpu.scopes.iter().map(|scope| scope.calls).sum::<u64>() == ((WARM_UP + turns) * self.depth) as u64
        });
        assert_eq!(spans_seen, recording, "every span is a scope");
        nanos / (turns * self.depth) as f64
    }

    fn time(self, turns: usize) -> f64 {
        let stored: Vec<Span> = (0..self.depth).map(made).collect();
        let turn = || if self.made_anew { nest_new(0, self.depth) } else { nest(&stored) };
        (0..WARM_UP).for_each(|_| turn());
        let began = Instant::now();
        (0..turns).for_each(|_| turn());
        began.elapsed().as_nanos() as f64
    }

    fn what(self) -> &'static str {
        if self.made_anew { "create, enter, exit, close" } else { "enter, exit" }
    }
}

/// The span of a nesting level.
fn made(level: usize) -> Span {
    let span = match level {
        0 => trace_span!("model"),
        1 => trace_span!("block"),
        2 => trace_span!("attn"),
        _ => trace_span!("linear"),
    };
    assert!(!span.is_disabled(), "somebody listens");
    span
}

fn nest(spans: &[Span]) {
    if let Some((outermost, inside)) = spans.split_first() {
        let _entered = outermost.enter();
        nest(black_box(inside));
    }
}

fn nest_new(level: usize, depth: usize) {
    if level < depth {
        let span = made(level);
        let _entered = span.enter();
        nest_new(level + 1, black_box(depth));
    }
}

/// All cases by depth and kind of span, with the registry first in each group.
fn cases() -> Vec<Case> {
    let each = |(depth, made_anew)| LISTENERS.map(|listener| Case { depth, made_anew, listener });
    [false, true].into_iter().flat_map(|made_anew| DEPTHS.map(|depth| (depth, made_anew))).flat_map(each).collect()
}

/// Nanoseconds of each case in each round.
fn run(cases: &[Case], rounds: usize, turns: usize) -> Vec<Vec<f64>> {
    let mut nanos = vec![Vec::with_capacity(rounds); cases.len()];
    for round in 0..rounds {
        for place in 0..cases.len() {
            let case = (place + round) % cases.len();
            nanos[case].push(cases[case].measure(turns));
        }
    }
    nanos
}

fn minimum_and_median(values: &[f64]) -> (f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    (sorted[0], sorted[sorted.len() / 2])
}

/// Ratios to the registry alone: of the minima, and the median of the rounds' ratios.
fn ratios(nanos: &[Vec<f64>], case: usize) -> (f64, f64) {
    let (with, alone) = (&nanos[case], &nanos[case - case % LISTENERS.len()]);
    let by_round: Vec<f64> = with.iter().zip(alone).map(|(with, alone)| with / alone).collect();
    (minimum_and_median(with).0 / minimum_and_median(alone).0, minimum_and_median(&by_round).1)
}

fn print_table(cases: &[Case], nanos: &[Vec<f64>]) {
    println!("{:<28}{:>6}  {:<38}{:>18}{:>18}", "", "", "", "ns per span", "to registry alone");
    println!("{:<28}{:>6}  {:<38}{:>9}{:>9}{:>9}{:>9}", "", "depth", "", "minimum", "median", "of min.", "median");
    for (index, (case, rounds)) in cases.iter().zip(nanos).enumerate() {
        let (minimum, median) = minimum_and_median(rounds);
        let (what, depth, name) = (case.what(), case.depth, case.listener.name());
        let (of_minima, by_round) = ratios(nanos, index);
        println!("{what:<28}{depth:>6}  {name:<38}{minimum:>9.1}{median:>9.1}{of_minima:>9.2}{by_round:>9.2}");
    }
}

fn main() {
    let given = |option: &str| std::env::args().any(|argument| argument == option);
    // `cargo bench` passes --bench; `cargo test --benches` does not.
    let quick = !given("--bench") || given("--test");
    let (rounds, turns) = if quick { (1, 32) } else { (21, 20_000) };
    let cases = cases();
    let nanos = run(&cases, rounds, turns);
    println!("{rounds} rounds of {turns} turns{}\n", if quick { ": a test, its figures mean nothing" } else { "" });
    print_table(&cases, &nanos);
}
