//! Assertion that live memory does not keep growing over repeated runs.

use memtrace_core::analysis::runs::{BlockOrigin, Samples, Trend, ends_higher, trend};
use memtrace_core::snapshot::SnapshotData;
use memtrace_core::units::{Bytes, signed};

use super::failure::Failure;
use super::leak::check_helpers;
use super::measure::Measured;
use super::origins::NamedOrigins;
use super::rows::{Labelled, table};
use super::runs::{RunPlan, Watch};
use super::undecided::{CountedWork, counted_methods};
use crate::error::Error;
use crate::session::say;

/// The least number of runs: fewer give no reliable verdict.
const LEAST: usize = 20;

/// Code whose memory must not keep growing with its runs; the assertion behind
/// [`assert_no_growth!`](crate::assert_no_growth).
///
/// The bytes live after each run form a series for each stack and line, and one for all together. During the warm-up,
/// by default half of the runs, a series may do anything. Afterwards a series grows in two cases:
/// * It reaches new maxima at least three times, also in the last third, and either hardly ever falls or climbs from
///   each fifth of the runs to the next.
/// * It grows by doubling.
///
/// A cache that fills up is no growth, and neither is noise. If the verdict is not clear, the code runs more often than
/// requested: up to 256 times, or up to 2¼ times this number if something doubled. The extra runs end after thirty
/// seconds, or when 64 MiB have accumulated.
///
/// ```
/// # #[global_allocator] static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
/// let mut cache = Vec::with_capacity(256);
/// let growth = memtrace::NoGrowth::new().iterations(20).run(|| cache.push(vec![0u8; 1000])).unwrap_err();
/// assert!(growth.to_string().contains("+1000 B"), "{growth}");
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "an assertion checks nothing until `run`"]
pub struct NoGrowth {
    iterations: usize,
    warmup: Option<usize>,
    counted: CountedWork,
}

impl Default for NoGrowth {
    fn default() -> Self {
        Self { iterations: 20, warmup: None, counted: CountedWork::default() }
    }
}

impl NoGrowth {
    /// Twenty runs, half of them as warm-up.
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of runs, at least 20.
    pub fn iterations(self, runs: usize) -> Self {
        Self { iterations: runs, ..self }
    }

    /// How many of the runs are warm-up.
    pub fn warmup(self, runs: usize) -> Self {
        Self { warmup: Some(runs), ..self }
    }

    counted_methods!();

    /// Runs `f` and drops what it returns.
    ///
    /// # Errors
    /// If memory grows, or there are too few runs.
    pub fn run<T>(self, f: impl FnMut() -> T) -> Result<(), Failure> {
        self.begin()?.run(f)
    }

    #[doc(hidden)]
    pub fn begin(self) -> Result<Watch, Failure> {
        let warmup = self.warmup.unwrap_or(self.iterations / 2);
        let runs = self.iterations;
        if runs == 0 {
            return Err(Error::wrong("iterations is 0, so nothing would be checked; give 1 or more").into());
        }
        if runs < LEAST || runs < warmup.saturating_add(LEAST / 2) {
            return Err(Error::wrong(format!(
                "{runs} iterations, {warmup} of them as warm-up, are too few to detect growth; give {LEAST} or more, \
                 and 10 or more after the warm-up"
            ))
            .into());
        }
        Watch::begin(RunPlan { requested: runs, warmup, counted: self.counted, judge })
    }
}

fn judge(plan: &RunPlan, measured: &Measured, samples: &Samples) -> Result<(), Failure> {
    let mut grown = Grown::of(samples, plan);
    let of_others = grown.take_helpers();
    // Symbols are resolved only if the verdict may depend on them.
    if grown.is_growing() || Grown::of(&samples.risen(), plan).total.goes_on() {
        let origins = NamedOrigins::of(measured);
        let own = |origin: &BlockOrigin| !origin.of_helper && !origins.are_the_harnesses(origin);
        let samples = samples.under(|origin| own(origin).then_some(*origin));
        let by_line = || Grown::of(&samples.under(|origin| Some(origins.line(origin))), plan);
        grown = Some(Grown::of(&samples, plan)).filter(Grown::is_growing).unwrap_or_else(by_line);
    }
    if grown.is_growing() {
        return Err(grown.report(measured, samples.runs()));
    }
    if let Trend::Unsettled = grown.total {
        say("assert_no_growth: memory still grew in the last runs, but too seldom for a verdict");
    }
    check_helpers(samples, of_others, plan.warmup, measured, plan.counted)
}

/// The trends of each stack and of the total.
#[derive(Debug)]
struct Grown {
    stacks: Vec<(BlockOrigin, Trend, u64)>,
    total: Trend,
    warmup: usize,
}

impl Grown {
    /// If there were more runs than requested, at least half of all runs are warm-up.
    fn of(samples: &Samples, &RunPlan { requested, warmup, .. }: &RunPlan) -> Self {
        let half = if samples.runs() > requested { warmup.max(samples.runs() / 2) } else { warmup };
        let of = |series: &[f64]| match trend(series, half) {
            Trend::Growing { .. } if samples.runs() > requested && !ends_higher(series) => Trend::Unsettled,
            trend => trend,
        };
        let doubling = |trend: Trend, doubles| if !trend.goes_on() && doubles { Trend::Doubling } else { trend };
        let of_stack = |origin: &BlockOrigin| doubling(of(&samples.bytes(origin)), samples.doubles(origin, warmup));
        let now = |origin: &BlockOrigin| samples.held(origin).last().unwrap_or_default().bytes;
        let mut stacks: Vec<(BlockOrigin, Trend, u64)> = samples
            .origins()
            .into_iter()
            .map(|origin| (origin, of_stack(&origin), now(&origin)))
            .filter(|(_, trend, _)| *trend != Trend::Steady)
            .collect();
        stacks.sort_by(|a, b| rate(b.1).total_cmp(&rate(a.1)).then(b.2.cmp(&a.2)).then(a.0.stack.cmp(&b.0.stack)));
        let total = samples.total();
        Self { stacks, total: doubling(of(&total), samples.total_doubles(warmup)), warmup: half }
    }

    /// Removes the stacks of other threads from the list, and returns those of them that grow.
    fn take_helpers(&mut self) -> Vec<BlockOrigin> {
        let others = self.stacks.extract_if(.., |(origin, ..)| origin.of_helper);
        others.filter(|(_, trend, _)| trend.goes_on()).map(|(origin, ..)| origin).collect()
    }

    fn is_growing(&self) -> bool {
        let mut trends = self.stacks.iter().map(|(_, trend, _)| trend).chain([&self.total]);
        trends.any(|trend| trend.goes_on())
    }

    fn report(&self, measured: &Measured, runs: usize) -> Failure {
        let rate = match self.total {
            Trend::Growing { slope, give_or_take } => format!("{} with each run", sloped(slope, give_or_take)),
            Trend::Doubling => "by doubling".to_owned(),
            _ => "in some stacks, although the total does not grow steadily".to_owned(),
        };
        let head = format!("memory grows: {rate}; {runs} runs, the first {} as warm-up", self.warmup);
        Failure::with_snapshot(&head, measured, |data| self.tables(measured, data))
    }

    fn tables(&self, measured: &Measured, data: &SnapshotData) -> String {
        let (mut growing, mut other) = (Vec::new(), Vec::new());
        for (origin, trend, now) in &self.stacks {
            let bytes = Bytes(*now).to_string();
            let row = |cells| Labelled { origin: *origin, cells };
            match trend {
                Trend::Growing { slope, give_or_take } => {
                    growing.push(row(vec![sloped(*slope, *give_or_take), bytes]));
                }
                Trend::Doubling => growing.push(row(vec!["by doubling".to_owned(), bytes])),
                Trend::Settled(last) if *now > 0 => other.push(row(vec![format!("run {}", last + 1), bytes])),
                Trend::Unsettled if *now > 0 => other.push(row(vec!["not settled".to_owned(), bytes])),
                _ => {}
            }
        }
        let mut text = table(&["With each run", "Live now"], growing, measured, data);
        if !other.is_empty() {
            text.push_str("\nGrew, then stopped\n");
            text.push_str(&table(&["Last growth", "Live now"], other, measured, data));
        }
        text
    }
}

fn rate(trend: Trend) -> f64 {
    if let Trend::Growing { slope, .. } = trend { slope } else { 0.0 }
}

fn sloped(slope: f64, give_or_take: f64) -> String {
    let slope = signed(slope.round() as i64);
    if give_or_take < 0.5 { slope } else { format!("{slope} ± {}", Bytes(give_or_take.round() as u64)) }
}
