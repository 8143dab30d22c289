//! Cost of recording: nanoseconds per alloc+free pair of a 4 KiB block, compared with no recording, with the obvious
//! recorder (a mutex around a list of `Backtrace::new_unresolved`), and with other unwinders.
//!
//! ```text
//! scripts/bench-record [--rounds N] [--json FILE] the tables, with instruction counts
//! cargo bench --bench record [-- --rounds N --json FILE]
//!                                                 the same without those
//! cargo bench --bench record -- --only CASE,...   the rows of those cases, and no ratios
//! cargo bench --bench record -- --fixed CASE FRAMES PAIRS
//!                                                 PAIRS pairs of one case, for valgrind and the like
//! cargo bench --bench record -- --threads         processor time on 1 to 64 threads
//! cargo bench --bench record -- --alternate [meet]
//!                                                 two threads that take turns, for `cargo xtask instructions`
//! cargo test --benches                            a few pairs: does it still run?
//! ```
//!
//! # Why not divan
//! Ratios must hold on shared machines. divan times one benchmark after the other, so load that starts half-way changes
//! their ratio. Here every round runs every case, in an order that rotates from round to round, and a ratio compares
//! two cases of the same round.
//!
//! # Conditions
//! - 10,000 live blocks unless stated otherwise; a pair frees a random one and allocates its successor. So tables are
//!   not trivial, and no timed pair makes a new peak.
//! - 1,024 call chains, a random one for each pair: the innermost four frames vary, the others stay. Each occurs
//!   before pairs are timed. In the cases "in order" they repeat in the same order, as in a program's loop: there
//!   memtrace predicts the next stack.
//! - One size, no scopes; stacks of allocations, not of frees, in all cases. A log of 2^20 records.
//! - Frames are machine frames, counted in this run by the naive recorder, with its own one or two. memtrace's own
//!   frames make its stacks a few longer.
//! - Every measurement starts a new session, on a new thread. Its stacks are known from the warm-up, but its log starts
//!   empty and grows: page faults are included, as in a program's first seconds.
//! - Mean: one clock reading for all pairs of a round. p50 and p99: single pairs, each between two readings, whose own
//!   cost is subtracted. With several threads, the slowest counts.
//! - The naive recorder calls `System` for the block and empties its list at 4096 entries, within the measured time.
//!   Its own allocations go through memtrace's allocator, which is installed but not recording.
//! - memtrace's allocator is called directly like the system's, not through `Box`, so that both have equally many
//!   calls.
//! - All figures include the allocation itself and the call chain, except those that say "beyond".
#![expect(unsafe_code, reason = "calls allocators, unwinders and the processor's clock directly")]

mod alternate;
mod case;
mod chains;
mod clock;
mod figures;
mod heaps;
mod threads;
mod unwinders;

use std::alloc::System;

use memtrace::{Builder, Enabled, StackContext};

use self::case::{Case, WARM_UP};
use self::figures::{Row, json, print};
use self::heaps::{Naive, Taking};

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

const FRAMES: [usize; 3] = [21, 37, 67];
const LIVE: [usize; 2] = [1000, 100_000];
const FULL_IN_ORDER: &str = "full in order";
const SYSTEM_IN_ORDER: &str = "system in order";
/// Few blocks, which stay in the CPU cache: where little is added, nothing else may vary.
const FEW: usize = 16;

fn counters_only() -> Builder {
    memtrace::builder().context(StackContext::None).enabled(Enabled::State)
}

fn without_stacks() -> Builder {
    memtrace::builder().context(StackContext::None)
}

fn stacks_of_frees() -> Builder {
    memtrace::builder().context(StackContext::All)
}

fn sampled() -> Builder {
    memtrace::builder().sample_interval("512 KiB")
}

static BACKTRACE: Taking = Taking(unwinders::backtrace_crate);
static LIBGCC: Taking = Taking(unwinders::libgcc);
static FRAMEHOP: Taking = Taking(unwinders::framehop);

fn cases() -> Vec<Case> {
    let full = |frames| Case::new("full", &ALLOC, Some(memtrace::builder), frames);
    let alone = |frames| Case::new("system", &System, None, frames);
    let mut cases = vec![
        alone(FRAMES[0]),
        Case::new("off", &ALLOC, None, FRAMES[0]),
        Case::new("counters", &ALLOC, Some(counters_only), FRAMES[0]),
        Case::new("log", &ALLOC, Some(without_stacks), FRAMES[0]),
        Case::new("all", &ALLOC, Some(stacks_of_frees), FRAMES[0]),
        Case::new("sampled", &ALLOC, Some(sampled), FRAMES[0]),
    ];
    cases.extend(FRAMES.map(full));
    cases.extend(FRAMES.map(|frames| full(frames).in_order(FULL_IN_ORDER)));
    cases.push(alone(FRAMES[0]).in_order(SYSTEM_IN_ORDER));
    cases.extend(FRAMES.map(|frames| full(frames).threads(2)));
    cases.extend(LIVE.map(|live| full(FRAMES[0]).live(live)));
    cases.extend(LIVE.map(|live| alone(FRAMES[0]).live(live)));
    cases.push(alone(FRAMES[0]).threads(2));
    cases.extend([alone(FRAMES[0]).live(FEW), Case::new("off", &ALLOC, None, FRAMES[0]).live(FEW)]);
    cases.extend(FRAMES.map(|frames| Case::other("naive", &Naive, frames)));
    let others = [("backtrace::trace", &BACKTRACE), ("libgcc", &LIBGCC), ("framehop", &FRAMEHOP)];
    cases.extend(others.iter().flat_map(|&(name, heap)| FRAMES.map(|frames| Case::other(name, heap, frames))));
    cases
}

fn run(mut cases: Vec<Case>, rounds: usize, warm_up: usize, pairs: usize) -> Vec<Row> {
    cases.iter_mut().for_each(Case::find_depth);
    let mut rows: Vec<Row> = cases.into_iter().map(|case| Row { case, rounds: Vec::with_capacity(rounds) }).collect();
    for round in 0..rounds {
        for place in 0..rows.len() {
            let at = (place + round) % rows.len();
            let measured = rows[at].case.measure(warm_up, pairs);
            rows[at].rounds.push(measured);
        }
    }
    rows
}

fn row<'a>(rows: &'a [Row], name: &str, frames: usize, threads: usize, live: usize) -> &'a Row {
    let is = |case: &Case| (case.name, case.wished, case.threads, case.live) == (name, frames, threads, live);
    rows.iter().find(|row| is(&row.case)).expect("the table has it")
}

/// The additional cost of a pair through memtrace while nothing is recorded, from the fastest rounds.
fn off(rows: &[Row]) -> f64 {
    row(rows, "off", FRAMES[0], 1, FEW).least() - row(rows, "system", FRAMES[0], 1, FEW).least()
}

/// The figures that documents quote: (name, value).
fn summary(rows: &[Row]) -> Vec<(String, f64)> {
    let at = |name, frames| row(rows, name, frames, 1, 10_000);
    let system = at("system", FRAMES[0]);
    let mut figures = vec![("off beyond system, ns".into(), off(rows))];
    figures.push(("counters beyond system, ns".into(), at("counters", FRAMES[0]).beyond(system)));
    for frames in FRAMES {
        let full = at("full", frames);
        let two = row(rows, "full", frames, 2, 10_000);
        figures.push((format!("full beyond system at {frames}, ns"), full.beyond(system)));
        let (ordered, alone) = (at(FULL_IN_ORDER, frames), at(SYSTEM_IN_ORDER, FRAMES[0]));
        figures.push((format!("the same in order at {frames}, ns"), ordered.beyond(alone)));
        let naive = at("naive", frames);
        figures.push((format!("naive / full at {frames}"), naive.times(full)));
        figures.push((format!("the same beyond system at {frames}"), naive.adds_times(full, system)));
        figures.push((format!("two threads / one at {frames}"), two.times(full)));
    }
    figures
}

fn whole_json(rows: &[Row]) -> String {
    let at = |name, frames| row(rows, name, frames, 1, 10_000);
    let by_depth =
        |of: &dyn Fn(usize) -> f64| FRAMES.map(|frames| format!("\"{frames}\": {:.1}", of(frames))).join(", ");
    let least = |of: &dyn Fn(usize) -> f64| FRAMES.map(of).into_iter().fold(f64::INFINITY, f64::min);
    format!(
        "{{\n  \"pair_ns\": {{{}}},\n  \"pair_in_order_ns\": {{{}}},\n  \"pair_with_allocation_ns\": {{{}}},\n  \"pair_p99_ns\": {{{}}},\n  \
         \"naive_ratio\": {:.1},\n  \"off_ns\": {:.1},\n  \"two_threads_to_one\": {{{}}},\n  \"cases\": [\n    {}\n  ]\n}}\n",
        by_depth(&|frames| at("full", frames).beyond(at("system", FRAMES[0]))),
        by_depth(&|frames| at(FULL_IN_ORDER, frames).beyond(at(SYSTEM_IN_ORDER, FRAMES[0]))),
        by_depth(&|frames| at("full", frames).p50()),
        by_depth(&|frames| at("full", frames).p99()),
        least(&|frames| at("naive", frames).adds_times(at("full", frames), at("system", FRAMES[0]))),
        off(rows),
        by_depth(&|frames| row(rows, "full", frames, 2, 10_000).times(at("full", frames))),
        json(rows),
    )
}

/// Runs pairs of one case, and nothing else whose cost depends on their number.
fn fixed(arguments: &[String]) {
    let [name, frames, pairs] = arguments else { panic!("--fixed CASE FRAMES PAIRS") };
    let [frames, pairs] = [frames, pairs].map(|number| number.parse().expect("a number"));
    let all = cases();
    let wanted = |case: &&Case| (case.name, case.wished, case.threads, case.live) == (name, frames, 1, 10_000);
    let mut case = *all.iter().find(wanted).expect("a case of the table");
    case.find_depth();
    case.measure(WARM_UP + pairs, 0);
}

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let given = |option: &str| arguments.iter().position(|argument| argument == option);
    if let Some(at) = given("--fixed") {
        fixed(arguments.get(at + 1..at + 4).unwrap_or(&[]));
        return Ok(());
    }
    if let Some(at) = given("--alternate") {
        alternate::run(arguments.get(at + 1).is_some_and(|word| word == "meet"));
        return Ok(());
    }
    // `cargo bench` passes --bench; `cargo test --benches` does not.
    let quick = given("--bench").is_none() || given("--test").is_some();
    let rounds = given("--rounds").and_then(|at| arguments.get(at + 1)?.parse().ok()).unwrap_or(21);
    let (rounds, warm_up, pairs) = if quick { (1, 32, 32) } else { (rounds, WARM_UP, 4096) };
    if given("--threads").is_some() {
        threads::print(rounds);
        return Ok(());
    }
    let only = given("--only").and_then(|at| arguments.get(at + 1));
    let wanted = |case: &Case| only.is_none_or(|names| names.split(',').any(|name| name == case.name));
    let rows = run(cases().into_iter().filter(wanted).collect(), rounds, warm_up, pairs);
    println!("{rounds} rounds of {pairs} pairs{}\n", if quick { ": a test, its figures mean nothing" } else { "" });
    print(&rows);
    if only.is_some() {
        return Ok(());
    }
    println!("\nmedians of the rounds' differences and ratios");
    summary(&rows).iter().for_each(|(name, value)| println!("{name:<32}{value:>10.2}"));
    match given("--json").map(|at| arguments.get(at + 1)) {
        Some(Some(path)) => std::fs::write(path, whole_json(&rows)),
        Some(None) => Err(std::io::Error::other("--json needs a file")),
        None => Ok(()),
    }
}
