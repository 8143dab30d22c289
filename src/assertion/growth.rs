//! What is live may not grow with each run, on and on.

use super::failure::Failure;
use super::leak::check_helpers;
use super::measure::Measured;
use super::origins::Origin;
use super::rows::{Labelled, table};
use super::runs::{Plan, Samples, Watch};
use super::setup::made_once_of;
use super::slope::{Trend, ends_higher, trend};
use super::undecided::{Counted, counted_methods};
use crate::error::{Error, Kind};
use crate::session::say;
use crate::snapshot::SnapshotData;
use crate::units::{Bytes, signed};

/// Fewer runs say too little.
const LEAST: usize = 20;

/// Code that must not hold more and more the longer it goes on; what
/// [`assert_no_growth!`](crate::assert_no_growth) goes by.
///
/// Of each stack, and of all together, the bytes that are live after each run are a series. The runs of the warm-up,
/// half of all if nothing is said, may build up what they like. After that a series grows if it reaches new heights
/// at least three times, also in the last third, and besides hardly ever falls, or climbs part by part; or if it grows
/// by doubling. A cache that fills up, or what varies from run to run, is no growth: where that is not clear the code
/// runs more often than was asked for, at most 256 times, but no longer than thirty seconds or 64 MiB of what stays.
///
/// ```
/// # #[global_allocator] static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
/// let mut cache = Vec::with_capacity(256);
/// let growth = memtrace::NoGrowth::new().iterations(20).run(|| cache.push(vec![0u8; 1000])).unwrap_err();
/// assert!(growth.to_string().contains("+1000 B"), "{growth}");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct NoGrowth {
    iterations: usize,
    warmup: Option<usize>,
    counted: Counted,
}

impl Default for NoGrowth {
    fn default() -> Self {
        Self { iterations: 20, warmup: None, counted: Counted::default() }
    }
}

impl NoGrowth {
    /// Twenty runs, half of them to warm up.
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs in all, 20 or more.
    #[must_use]
    pub fn iterations(self, runs: usize) -> Self {
        Self { iterations: runs, ..self }
    }

    /// Those of them that may build something up.
    #[must_use]
    pub fn warmup(self, runs: usize) -> Self {
        Self { warmup: Some(runs), ..self }
    }

    counted_methods!();

    /// Runs `f` as often as is asked for, and drops what it returns.
    ///
    /// # Errors
    /// If something grew, or the number of runs makes no sense.
    pub fn run<T>(self, f: impl FnMut() -> T) -> Result<(), Failure> {
        self.begin()?.run(f)
    }

    #[doc(hidden)]
    pub fn begin(self) -> Result<Watch, Failure> {
        let warmup = self.warmup.unwrap_or(self.iterations / 2);
        match self.iterations {
            0 => Err(Kind::NoRuns("iterations").into()),
            runs if runs < LEAST || runs < warmup.saturating_add(LEAST / 2) => Err(Error::wrong(format!(
                "{runs} iterations with {warmup} to warm up say too little about growth; give {LEAST} or more, and \
                     10 or more after the warm-up"
            ))
            .into()),
            asked => Watch::begin(Plan { asked, warmup, counted: self.counted, judge }),
        }
    }
}

fn judge(plan: &Plan, measured: &Measured, samples: &Samples) -> Result<(), Failure> {
    let mut grown = Grown::of(samples, plan);
    // Names are asked for only where they matter.
    if grown.is_growing() {
        grown = Grown::of(&samples.without(&made_once_of(measured)), plan);
    }
    let helpers_grow = grown.take_helpers();
    if grown.is_growing() {
        return Err(grown.report(measured, samples.len()));
    }
    if let Trend::Unsettled = grown.total {
        say("assert_no_growth: memory still grew in the last runs, too seldom to tell");
    }
    check_helpers(measured, helpers_grow, plan.counted)
}

/// What became of each stack, and of all.
#[derive(Debug)]
struct Grown {
    stacks: Vec<(Origin, Trend, u64)>,
    total: Trend,
    warmup: usize,
}

impl Grown {
    /// Where more runs were needed than were asked for, half of them are those that may build something up.
    fn of(samples: &Samples, &Plan { asked, warmup, .. }: &Plan) -> Self {
        let half = if samples.len() > asked { warmup.max(samples.len() / 2) } else { warmup };
        let of = |series: &[f64]| match trend(series, half) {
            Trend::Growing { .. } if samples.len() > asked && !ends_higher(series) => Trend::Unsettled,
            trend => trend,
        };
        let of_stack = |origin: &Origin| match of(&samples.bytes(origin)) {
            trend if !trend.goes_on() && samples.doubles(origin, warmup) => Trend::Doubling,
            trend => trend,
        };
        let now = |origin: &Origin| samples.held(origin).last().unwrap_or_default().bytes;
        let mut stacks: Vec<(Origin, Trend, u64)> = samples
            .origins()
            .into_iter()
            .map(|origin| (origin, of_stack(&origin), now(&origin)))
            .filter(|(_, trend, _)| *trend != Trend::Steady)
            .collect();
        stacks.sort_by(|a, b| rate(b.1).total_cmp(&rate(a.1)).then(b.2.cmp(&a.2)).then(a.0.stack.cmp(&b.0.stack)));
        Self { stacks, total: of(&samples.total()), warmup: half }
    }

    /// Takes out what other threads hold. Does any of that grow?
    fn take_helpers(&mut self) -> bool {
        let grows = self.stacks.iter().any(|(origin, trend, _)| origin.of_helper && trend.goes_on());
        self.stacks.retain(|(origin, ..)| !origin.of_helper);
        grows
    }

    fn is_growing(&self) -> bool {
        let mut trends = self.stacks.iter().map(|(_, trend, _)| trend).chain([&self.total]);
        trends.any(|trend| trend.goes_on())
    }

    fn report(&self, measured: &Measured, runs: usize) -> Failure {
        let rate = match self.total {
            Trend::Growing { slope, give_or_take } => format!("{} with each run", sloped(slope, give_or_take)),
            _ => "in some lines, while the sum does not grow steadily".to_owned(),
        };
        let head = format!("memory grows: {rate}; {runs} runs, of which {} to warm up", self.warmup);
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
            text.push_str("\nGrew, and then no more\n");
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
