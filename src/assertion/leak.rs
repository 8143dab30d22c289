//! Nothing may stay behind that is not freed by the next run.

use super::failure::Failure;
use super::measure::Measured;
use super::origins::Origin;
use super::rows::{Labelled, table};
use super::runs::{Held, Plan, Samples, Watch};
use super::setup::made_once_of;
use super::slope::{ends_higher, is_frequent, rise, trend};
use super::undecided::{Counted, Undecided, counted_methods};
use crate::error::Kind;
use crate::units::{Bytes, grouped};

/// Bytes with each run: less is what a pool of threads needs that grows by one now and then.
const LEAST_RISE: f64 = 4.0;

/// Code that must not leave more behind the more often it runs; what [`assert_no_leak!`](crate::assert_no_leak)
/// goes by.
///
/// A stack has leaked whose blocks or bytes reach new heights on and on after the warm-up. If any reaches one, the code
/// runs more often than was asked for, until it is clear: at most 256 times, but no longer than thirty seconds or 64 MiB of what
/// stays. So what one run leaves and the next one replaces is no leak, nor is a cache that fills up; and a container that
/// only now and then needs more room is one.
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
pub struct NoLeak {
    warmup: usize,
    runs: usize,
    counted: Counted,
}

impl Default for NoLeak {
    fn default() -> Self {
        Self { warmup: 2, runs: 3, counted: Counted::default() }
    }
}

impl NoLeak {
    /// Two runs to warm up, three that count.
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs whose leftovers are caches, and no leaks.
    #[must_use]
    pub fn warmup(self, runs: usize) -> Self {
        Self { warmup: runs, ..self }
    }

    /// Runs after them.
    #[must_use]
    pub fn runs(self, runs: usize) -> Self {
        Self { runs, ..self }
    }

    counted_methods!();

    /// Runs `f` as often as is asked for, and drops what it returns.
    ///
    /// # Errors
    /// If something leaked, or the numbers of runs make no sense.
    pub fn run<T>(self, f: impl FnMut() -> T) -> Result<(), Failure> {
        self.begin()?.run(f)
    }

    #[doc(hidden)]
    pub fn begin(self) -> Result<Watch, Failure> {
        let Self { warmup, runs, counted } = self;
        match runs {
            0 => Err(Kind::NoRuns("runs").into()),
            _ => Watch::begin(Plan { asked: warmup.saturating_add(runs), warmup, counted, judge }),
        }
    }
}

fn judge(plan: &Plan, measured: &Measured, samples: &Samples) -> Result<(), Failure> {
    let warmup = plan.warmup;
    let leaks = leaks(samples, warmup);
    let own = leaks_of_its_own(&leaks, measured);
    if !own.is_empty() {
        return Err(report(samples.len() - warmup, warmup, measured, &own));
    }
    check_helpers(measured, leaks.iter().any(|(origin, _)| origin.of_helper), plan.counted)
}

/// Those that are no other threads', less what was made once.
fn leaks_of_its_own(leaks: &[(Origin, Held)], measured: &Measured) -> Vec<(Origin, Held)> {
    let mut own: Vec<_> = leaks.iter().filter(|(origin, _)| !origin.of_helper).copied().collect();
    // Names are asked for only where they matter.
    if !own.is_empty() {
        let left_out = made_once_of(measured);
        own.retain(|(origin, _)| !left_out.contains(origin));
    }
    own
}

/// What grows on other threads that share memory with the code, if anything does.
pub(super) fn check_helpers(measured: &Measured, has_grown: bool, counted: Counted) -> Result<(), Failure> {
    if !has_grown {
        return Ok(());
    }
    let undecided = Undecided::of(measured, None, counted);
    if undecided.bytes() == 0 {
        return Ok(());
    }
    Err(Failure::undecided(
        "the code itself keeps nothing, but what other threads hold grows with its runs",
        &undecided,
    ))
}

/// What each stack has leaked since the warm-up: its blocks or their bytes grow on and on.
fn leaks(samples: &Samples, warmup: usize) -> Vec<(Origin, Held)> {
    let half = warmup.max(samples.len() / 2);
    let grows = |series: &[f64]| ends_higher(series) && trend(series, half).goes_on();
    let leaked = |origin: Origin| {
        let bytes = samples.bytes(&origin);
        let blocks = samples.blocks(&origin);
        // With each run, or with one of a few, or less often and then much.
        let frequent = is_frequent(&blocks, half) || is_frequent(&bytes, half);
        let matters = frequent || !origin.of_helper && rise(&bytes, half) >= LEAST_RISE;
        let leaks = (grows(&blocks) || grows(&bytes)) && matters || samples.doubles(&origin, warmup);
        let held: Vec<Held> = samples.held(&origin).collect();
        let before = held.get(..warmup)?.last().copied().unwrap_or_default();
        let last = held.last().filter(|_| leaks)?;
        let bytes = last.bytes.saturating_sub(before.bytes);
        Some((origin, Held { bytes, blocks: last.blocks.saturating_sub(before.blocks) }))
    };
    let mut leaks: Vec<(Origin, Held)> = samples.origins().into_iter().filter_map(leaked).collect();
    leaks.sort_by_key(|(origin, held)| (std::cmp::Reverse(held.bytes), origin.stack));
    leaks
}

fn report(runs: usize, warmup: usize, measured: &Measured, leaks: &[(Origin, Held)]) -> Failure {
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
        let cells = |held: &Held| vec![Bytes(held.bytes).to_string(), grouped(held.blocks)];
        let rows = leaks.iter().map(|(origin, held)| Labelled { origin: *origin, cells: cells(held) });
        table(&["Leaked", "Blocks"], rows, measured, data)
    })
}
