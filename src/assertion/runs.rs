//! Repeated runs of some code, and what is live after each run, by stack.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use memtrace_core::snapshot::StackId;

use super::failure::Failure;
use super::measure::{Measured, OpenMeasure};
use super::origins::BlockOrigin;
use super::slope;
use super::undecided::CountedWork;
use crate::error::Error;
use crate::record::guard::Own;
use crate::record::{measure, own};

/// The most runs if the verdict is not clear after the requested ones, unless something doubles.
const MOST: usize = 256;
/// With at least this many runs, extra runs end after this time, or after this many accumulated bytes.
const FEW: usize = 12;
const LONGEST: Duration = Duration::from_secs(30);
const MOST_BYTES: u64 = 64 << 20;
/// Time for detached threads and tasks to free their memory.
const SETTLES: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LiveTotals {
    pub(super) bytes: u64,
    pub(super) blocks: u64,
}

pub(super) type LiveByOrigin = HashMap<BlockOrigin, LiveTotals>;

/// What is live after each run.
#[derive(Debug, Default)]
pub(super) struct Samples(Vec<LiveByOrigin>);

impl Samples {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn origins(&self) -> HashSet<BlockOrigin> {
        self.0.iter().flat_map(LiveByOrigin::keys).copied().collect()
    }

    pub(super) fn held(&self, origin: &BlockOrigin) -> impl Iterator<Item = LiveTotals> {
        self.0.iter().map(|sample| sample.get(origin).copied().unwrap_or_default())
    }

    pub(super) fn bytes(&self, origin: &BlockOrigin) -> Vec<f64> {
        self.held(origin).map(|held| held.bytes as f64).collect()
    }

    pub(super) fn blocks(&self, origin: &BlockOrigin) -> Vec<f64> {
        self.held(origin).map(|held| held.blocks as f64).collect()
    }

    /// What an origin holds more since the warm-up.
    pub(super) fn gained(&self, origin: &BlockOrigin, warmup: usize) -> LiveTotals {
        let mut held = self.held(origin);
        let before = warmup.checked_sub(1).and_then(|at| held.nth(at)).unwrap_or_default();
        let last = held.last().unwrap_or(before);
        let (bytes, blocks) = (last.bytes.saturating_sub(before.bytes), last.blocks.saturating_sub(before.blocks));
        LiveTotals { bytes, blocks }
    }

    /// Whether an origin's blocks grow by doubling, as containers do, while there are no more of them in the second half.
    pub(super) fn doubles(&self, origin: &BlockOrigin, warmup: usize) -> bool {
        !slope::ends_higher(&self.blocks(origin)) && slope::doubles(&self.bytes(origin), warmup)
    }

    /// The bytes of all stacks, without those of other threads.
    pub(super) fn total(&self) -> Vec<f64> {
        let sum = |sample: &LiveByOrigin| {
            sample.iter().filter(|(origin, _)| !origin.of_helper).map(|(_, held)| held.bytes).sum::<u64>()
        };
        self.0.iter().map(|sample| sum(sample) as f64).collect()
    }

    /// The same under other origins; `None` leaves one out.
    pub(super) fn under(&self, other: impl Fn(&BlockOrigin) -> Option<BlockOrigin>) -> Self {
        let regrouped = |sample: &LiveByOrigin| {
            let mut sums = LiveByOrigin::new();
            for (origin, held) in sample.iter().filter_map(|(origin, held)| Some((other(origin)?, held))) {
                let sum = sums.entry(origin).or_default();
                (sum.bytes, sum.blocks) = (sum.bytes + held.bytes, sum.blocks + held.blocks);
            }
            sums
        };
        Self(self.0.iter().map(regrouped).collect())
    }

    /// The sum of all stacks under the origin of one of them, by device and without those of other threads.
    pub(super) fn as_one(&self) -> Self {
        self.under(|origin| (!origin.of_helper).then_some(BlockOrigin { stack: StackId::NONE, ..*origin }))
    }

    /// Only the stacks that hold more at the end than in the first half.
    pub(super) fn risen(&self) -> Self {
        let risen = |origin: &BlockOrigin| slope::ends_higher(&self.bytes(origin));
        let risen: HashSet<BlockOrigin> = self.origins().into_iter().filter(risen).collect();
        self.under(|origin| risen.contains(origin).then_some(*origin))
    }

    /// Whether something reached a new maximum so late that more runs are needed.
    fn is_unsure(&self, warmup: usize) -> bool {
        let is_unsettled = |origin: &BlockOrigin| {
            slope::is_unsettled(&self.bytes(origin), warmup) || slope::is_unsettled(&self.blocks(origin), warmup)
        };
        slope::is_unsettled(&self.total(), warmup) || self.origins().iter().any(is_unsettled)
    }

    fn have_doubled(&self, warmup: usize) -> bool {
        self.origins().iter().any(|origin| self.doubles(origin, warmup)) || self.total_doubles(warmup)
    }

    /// Whether it is clear already that something grows.
    fn have_grown(&self, warmup: usize) -> bool {
        let half = warmup.max(self.len() / 2);
        let grows = |series: Vec<f64>| slope::ends_higher(&series) && slope::trend(&series, half).goes_on();
        self.origins().iter().any(|origin| grows(self.blocks(origin)) || grows(self.bytes(origin)))
    }

    /// Whether all stacks of a device together grow by doubling.
    pub(super) fn total_doubles(&self, warmup: usize) -> bool {
        let total = self.as_one();
        total.origins().iter().any(|origin| total.doubles(origin, warmup))
    }

    /// Bytes accumulated since the warm-up.
    fn grown(&self, warmup: usize) -> u64 {
        let sum = |sample: Option<&LiveByOrigin>| {
            sample.map_or(0, |sample| sample.values().map(|held| held.bytes).sum::<u64>())
        };
        sum(self.0.last()).saturating_sub(sum(self.0.get(warmup.saturating_sub(1))))
    }
}

/// How often to run, and how to judge the result.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunPlan {
    /// The requested number of runs.
    pub(super) requested: usize,
    /// How many of them are warm-up.
    pub(super) warmup: usize,
    pub(super) counted: CountedWork,
    pub(super) judge: fn(&Self, &Measured, &Samples) -> Result<(), Failure>,
}

/// A watched loop: `while watch.again() { … }`, then `watch.finish()`. All its runs are one measurement.
#[doc(hidden)]
#[derive(Debug)]
pub struct Watch {
    plan: RunPlan,
    open: OpenMeasure,
    began: Instant,
    begun: bool,
    total: usize,
    samples: Own<Samples>,
}

impl Watch {
    pub(super) fn begin(plan: RunPlan) -> Result<Self, Failure> {
        let open = OpenMeasure::begin(plan.counted.whole_process)?;
        let samples = Own::new(Samples::default());
        Ok(Self { plan, open, began: Instant::now(), begun: false, total: plan.requested, samples })
    }

    pub(super) fn run<T>(mut self, mut f: impl FnMut() -> T) -> Result<(), Failure> {
        while self.again() {
            drop(f());
        }
        self.finish()
    }

    /// Call before each run. Returns whether there is another one.
    pub fn again(&mut self) -> bool {
        own(|| self.is_another())
    }

    /// The verdict, if all runs finished.
    pub fn finish(self) -> Result<(), Failure> {
        own(|| {
            if self.samples.len() < self.total {
                return Err(left_early(self.samples.len(), self.total));
            }
            (self.plan.judge)(&self.plan, &self.open.end(), &self.samples)
        })
    }

    fn is_another(&mut self) -> bool {
        if self.begun {
            self.samples.0.push(sample(self.open.opened()));
        }
        self.begun = true;
        if self.samples.len() == self.total && self.must_go_on() {
            self.total = (2 * self.total + 2).min(self.most());
        }
        let runs = self.samples.len();
        if runs >= self.plan.requested.max(FEW) && self.takes_long() {
            self.total = runs;
        }
        let goes_on = self.samples.len() < self.total;
        if !goes_on && self.total > self.plan.requested {
            self.settle();
        }
        goes_on
    }

    /// Takes the last sample again after a moment, because detached threads and tasks may still free memory.
    fn settle(&mut self) {
        std::thread::sleep(SETTLES);
        let settled = sample(self.open.opened());
        if let Some(last) = self.samples.0.last_mut() {
            *last = settled;
        }
    }

    /// Whether more runs are needed.
    fn must_go_on(&self) -> bool {
        self.total < self.most() && self.samples.is_unsure(self.plan.warmup)
    }

    /// Something that doubled late may be full now. That takes as long to see as it took to get there.
    fn most(&self) -> usize {
        let RunPlan { requested, warmup, .. } = self.plan;
        let most = requested.max(MOST);
        let is_open = self.samples.have_doubled(warmup) && !self.samples.have_grown(warmup);
        if is_open { slope::settles_after(most + 1) } else { most }
    }

    fn takes_long(&self) -> bool {
        self.began.elapsed() > LONGEST || self.samples.grown(self.plan.warmup) > MOST_BYTES
    }
}

/// The failure of an assertion whose code left the loop by `return` or `?`.
pub(super) fn left_early(runs: usize, of: usize) -> Failure {
    Error::wrong(format!(
        "only {runs} of {of} runs finished, so there is no verdict; let every run finish, without `return` or `?`"
    ))
    .into()
}

fn sample(opened: measure::OpenMeasurement) -> LiveByOrigin {
    let mut sample = LiveByOrigin::new();
    let mut add = |device, stack, size, of_helper| {
        let held = sample.entry(BlockOrigin { device, stack, of_helper }).or_default();
        held.bytes += size;
        held.blocks += 1;
    };
    measure::each_live(opened, |device, handed, block| add(device, block.stack, block.size, handed));
    measure::each_of_helpers(opened, |device, stack, size| add(device, stack, size, true));
    sample
}
