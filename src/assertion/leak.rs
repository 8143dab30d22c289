//! Assertion that repeated runs leak nothing.

use memtrace_core::analysis::runs::{BlockOrigin, LiveTotals, Samples, keeps_step, leaks, leaks_of_its_own};
use memtrace_core::units::{Bytes, grouped};

use super::failure::Failure;
use super::measure::Measured;
use super::origins::NamedOrigins;
use super::rows::{Labelled, table};
use super::runs::{RunPlan, Watch};
use super::undecided::{CountedWork, Undecided, counted_methods};
use crate::error::Error;

/// Code that must not keep more memory with more runs; the assertion behind [`assert_no_leak!`](crate::assert_no_leak).
///
/// A stack, a line, or the code as a whole leaks if its live blocks or bytes keep reaching new maxima after the
/// warm-up. If one of these reaches a new maximum, the code runs more often than requested until the verdict is clear:
/// up to 256 times. From the twelfth run on, the extra runs end after thirty seconds, or when 64 MiB have accumulated.
///
/// Memory that one run leaves and the next one replaces is no leak, and neither is a cache that fills up. A container
/// that only occasionally needs more capacity is a leak.
///
/// ```
/// # #[global_allocator] static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
/// let mut kept = Vec::with_capacity(256);
/// let clean = memtrace::NoLeak::new().run(|| vec![0u8; 1000].len());
/// assert!(clean.is_ok());
/// let leaks = memtrace::NoLeak::new().run(|| kept.push(vec![0u8; 1000])).unwrap_err();
/// assert!(leaks.to_string().contains("leak of 1000 B with each run"), "{leaks}");
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "an assertion checks nothing until `run`"]
pub struct NoLeak {
    warmup: usize,
    runs: usize,
    counted: CountedWork,
}

impl Default for NoLeak {
    fn default() -> Self {
        Self { warmup: 2, runs: 3, counted: CountedWork::default() }
    }
}

impl NoLeak {
    /// Two runs as warm-up, three that count.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many runs come first, in which caches may fill up.
    pub fn warmup(self, runs: usize) -> Self {
        Self { warmup: runs, ..self }
    }

    /// How many runs follow the warm-up.
    pub fn runs(self, runs: usize) -> Self {
        Self { runs, ..self }
    }

    counted_methods!();

    /// Runs `f` and drops what it returns.
    ///
    /// # Errors
    /// If something leaks, or `runs` is 0.
    pub fn run<T>(self, f: impl FnMut() -> T) -> Result<(), Failure> {
        self.begin()?.run(f)
    }

    #[doc(hidden)]
    pub fn begin(self) -> Result<Watch, Failure> {
        let Self { warmup, runs, counted } = self;
        if runs == 0 {
            return Err(Error::wrong("runs is 0, so nothing would be checked; give 1 or more").into());
        }
        if warmup.saturating_add(runs) < 2 {
            let why = "one run cannot distinguish a leak from what is kept once; give a warm-up, or 2 runs or more";
            return Err(Error::wrong(why).into());
        }
        Watch::begin(RunPlan { requested: warmup.saturating_add(runs), warmup, counted, judge })
    }
}

fn judge(plan: &RunPlan, measured: &Measured, samples: &Samples) -> Result<(), Failure> {
    let warmup = plan.warmup;
    let own = leaks_of_its_own(samples, warmup, || {
        let origins = NamedOrigins::of(measured);
        move |origin: &BlockOrigin| origins.counted_line(origin)
    });
    if !own.is_empty() {
        return Err(report(samples.runs() - warmup, warmup, measured, &own));
    }
    let of_others = leaks(samples, warmup).into_iter().map(|(origin, _)| origin).filter(|origin| origin.of_helper);
    check_helpers(samples, of_others.collect(), warmup, measured, plan.counted)
}

/// Fails if memory grows on threads that may work for the code. If the growth keeps step with the runs, the leak is
/// certain; otherwise the verdict is undecided.
pub(super) fn check_helpers(
    samples: &Samples,
    growing: Vec<BlockOrigin>,
    warmup: usize,
    measured: &Measured,
    counted: CountedWork,
) -> Result<(), Failure> {
    if growing.is_empty() {
        return Ok(());
    }
    let undecided = Undecided::of(measured, None, counted);
    if undecided.bytes() == 0 {
        return Ok(());
    }
    let half = warmup.max(samples.runs() / 2);
    let in_step = |origin: &&BlockOrigin| keeps_step(&samples.bytes(origin), half);
    if let Some(origin) = growing.iter().find(in_step) {
        let runs = samples.runs() - warmup;
        let each = samples.gained(origin, warmup).bytes / runs.max(1) as u64;
        return Err(Failure::in_step(
            &format!("leak of {} with each run on threads that existed before, in step with {runs} runs", Bytes(each)),
            &undecided,
        ));
    }
    Err(Failure::undecided(
        "the code itself keeps nothing, but other threads hold more memory with each run",
        &undecided,
    ))
}

fn report(runs: usize, warmup: usize, measured: &Measured, leaks: &[(BlockOrigin, LiveTotals)]) -> Failure {
    let bytes: u64 = leaks.iter().map(|(_, held)| held.bytes).sum();
    let blocks: u64 = leaks.iter().map(|(_, held)| held.blocks).sum();
    let head = format!(
        "leak of {} with each run: {} ({} bytes) in {} blocks from {} stacks, in {runs} runs after {warmup} warm-up runs",
        Bytes(bytes / runs as u64),
        Bytes(bytes),
        grouped(bytes),
        grouped(blocks),
        leaks.len()
    );
    Failure::with_snapshot(&head, measured, |data| {
        let cells = |held: &LiveTotals| vec![Bytes(held.bytes).to_string(), grouped(held.blocks)];
        let rows = leaks.iter().map(|(origin, held)| Labelled { origin: *origin, cells: cells(held) });
        table(&["Leaked", "Blocks"], rows, measured, data)
    })
}
