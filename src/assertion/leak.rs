//! Assertion that repeated runs leak nothing.

use super::failure::Failure;
use super::measure::Measured;
use super::origins::BlockOrigin;
use super::rows::{Labelled, table};
use super::runs::{LiveTotals, RunPlan, Samples, Watch};
use super::setup::one_time_origins;
use super::slope::{ends_higher, is_frequent, rise, trend};
use super::undecided::{CountedWork, Undecided, counted_methods};
use crate::error::Error;
use crate::units::{Bytes, grouped};

/// Bytes per run below which rare growth is no leak: a thread pool that occasionally adds a thread stays below.
const LEAST_RISE: f64 = 4.0;

/// Code that must not keep more memory with more runs; the assertion behind [`assert_no_leak!`](crate::assert_no_leak).
///
/// A stack leaks if its live blocks or bytes keep reaching new maxima after the warm-up. If one reaches a new maximum,
/// the code runs more often than requested until the verdict is clear: up to 256 times, for up to thirty seconds, or
/// until 64 MiB have accumulated. So memory that one run leaves and the next one replaces is no leak, and neither is a
/// cache that fills up; a container that only occasionally needs more capacity is one.
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

    /// How many runs follow.
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
        Watch::begin(RunPlan { requested: warmup.saturating_add(runs), warmup, counted, judge })
    }
}

fn judge(plan: &RunPlan, measured: &Measured, samples: &Samples) -> Result<(), Failure> {
    let warmup = plan.warmup;
    let leaks = leaks(samples, warmup);
    let own = leaks_of_its_own(&leaks, measured);
    if !own.is_empty() {
        return Err(report(samples.len() - warmup, warmup, measured, &own));
    }
    check_helpers(measured, leaks.iter().any(|(origin, _)| origin.of_helper), plan.counted)
}

/// The leaks of the code's own threads, without one-time initialization.
fn leaks_of_its_own(leaks: &[(BlockOrigin, LiveTotals)], measured: &Measured) -> Vec<(BlockOrigin, LiveTotals)> {
    let mut own: Vec<_> = leaks.iter().filter(|(origin, _)| !origin.of_helper).copied().collect();
    // Symbols are resolved only if the verdict depends on them.
    if !own.is_empty() {
        let left_out = one_time_origins(measured);
        own.retain(|(origin, _)| !left_out.contains(origin));
    }
    own
}

/// Fails as undecided if memory grows on other threads that share memory with the code.
pub(super) fn check_helpers(measured: &Measured, has_grown: bool, counted: CountedWork) -> Result<(), Failure> {
    if !has_grown {
        return Ok(());
    }
    let undecided = Undecided::of(measured, None, counted);
    if undecided.bytes() == 0 {
        return Ok(());
    }
    Err(Failure::undecided(
        "the code itself keeps nothing, but other threads hold more memory with each run",
        &undecided,
    ))
}

/// What each stack has leaked since the warm-up.
fn leaks(samples: &Samples, warmup: usize) -> Vec<(BlockOrigin, LiveTotals)> {
    let half = warmup.max(samples.len() / 2);
    let grows = |series: &[f64]| ends_higher(series) && trend(series, half).goes_on();
    let leaked = |origin: BlockOrigin| {
        let bytes = samples.bytes(&origin);
        let blocks = samples.blocks(&origin);
        // Growth in every few runs matters; rarer growth matters if it is large.
        let frequent = is_frequent(&blocks, half) || is_frequent(&bytes, half);
        let matters = frequent || !origin.of_helper && rise(&bytes, half) >= LEAST_RISE;
        let leaks = (grows(&blocks) || grows(&bytes)) && matters || samples.doubles(&origin, warmup);
        let held: Vec<LiveTotals> = samples.held(&origin).collect();
        let before = held.get(..warmup)?.last().copied().unwrap_or_default();
        let last = held.last().filter(|_| leaks)?;
        let bytes = last.bytes.saturating_sub(before.bytes);
        Some((origin, LiveTotals { bytes, blocks: last.blocks.saturating_sub(before.blocks) }))
    };
    let mut leaks: Vec<(BlockOrigin, LiveTotals)> = samples.origins().into_iter().filter_map(leaked).collect();
    leaks.sort_by_key(|(origin, held)| (std::cmp::Reverse(held.bytes), origin.stack));
    leaks
}

fn report(runs: usize, warmup: usize, measured: &Measured, leaks: &[(BlockOrigin, LiveTotals)]) -> Failure {
    let bytes: u64 = leaks.iter().map(|(_, held)| held.bytes).sum();
    let blocks: u64 = leaks.iter().map(|(_, held)| held.blocks).sum();
    let head = format!(
        "leak of {} with each run: {} ({} bytes) in {} blocks from {} stacks, in {runs} runs after {warmup} to warm up",
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
