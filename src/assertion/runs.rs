//! Repeated runs of some code.

use std::time::{Duration, Instant};

use memtrace_core::analysis::runs::{BlockOrigin, FEW, LiveByOrigin, MOST, Samples, settles_after};

use super::failure::Failure;
use super::measure::{Measured, OpenMeasure};
use super::undecided::CountedWork;
use crate::error::Error;
use crate::record::guard::Own;
use crate::record::{measure, own};

/// With at least [`FEW`] runs, extra runs end after this time, or when `MOST_BYTES` have accumulated.
const LONGEST: Duration = Duration::from_secs(30);
const MOST_BYTES: u64 = 64 << 20;
/// Time for detached threads and tasks to free their memory.
const SETTLES: Duration = Duration::from_millis(20);

/// How often to run, and how to judge the result.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunPlan {
    /// The requested number of runs.
    pub(super) requested: usize,
    /// How many of the requested runs are warm-up.
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

    /// Must be called before each run. Returns whether there is another run.
    pub fn again(&mut self) -> bool {
        own(|| self.is_another())
    }

    /// The verdict; a failure if not all runs finished.
    pub fn finish(self) -> Result<(), Failure> {
        own(|| {
            if self.samples.runs() < self.total {
                return Err(left_early(self.samples.runs(), self.total));
            }
            (self.plan.judge)(&self.plan, &self.open.end(), &self.samples)
        })
    }

    fn is_another(&mut self) -> bool {
        if self.begun {
            self.samples.push(sample(self.open.opened()));
        }
        self.begun = true;
        if self.samples.runs() == self.total && self.must_go_on() {
            self.total = (2 * self.total + 2).min(self.most());
        }
        let runs = self.samples.runs();
        if runs >= self.plan.requested.max(FEW) && self.takes_long() {
            self.total = runs;
        }
        let goes_on = self.samples.runs() < self.total;
        if !goes_on && self.total > self.plan.requested {
            self.settle();
        }
        goes_on
    }

    /// Takes the last sample again after a moment, because detached threads and tasks may still free memory.
    fn settle(&mut self) {
        std::thread::sleep(SETTLES);
        self.samples.set_last(sample(self.open.opened()));
    }

    /// Whether more runs are needed.
    fn must_go_on(&self) -> bool {
        self.total < self.most() && self.samples.is_unsure(self.plan.warmup)
    }

    /// The most runs. If something doubled late, it may have stopped growing since. To see this takes as many runs
    /// again as the doubling took.
    fn most(&self) -> usize {
        let RunPlan { requested, warmup, .. } = self.plan;
        let most = requested.max(MOST);
        let is_open = self.samples.have_doubled(warmup) && !self.samples.have_grown(warmup);
        if is_open { settles_after(most + 1) } else { most }
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
