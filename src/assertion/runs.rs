//! Code that runs again and again, and what is live after each run, by stack.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use super::failure::Failure;
use super::measure::{Measured, OpenMeasure};
use super::origins::Origin;
use super::slope;
use super::undecided::Counted;
use crate::error::Kind;
use crate::record::guard::Own;
use crate::record::{measure, own};

/// Runs in all, where it is not clear after those that were asked for whether something grows on.
const MOST: usize = 256;
/// After so long, or with so many bytes more than at first, it is left at what is known.
const LONGEST: Duration = Duration::from_secs(30);
const MOST_BYTES: u64 = 64 << 20;
/// What threads free that nobody waits for is freed by then.
const SETTLES: Duration = Duration::from_millis(20);

/// Bytes and blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) bytes: u64,
    pub(super) blocks: u64,
}

/// What is live after a run.
pub(super) type Sample = HashMap<Origin, Held>;

/// What is live after each run.
#[derive(Debug, Default)]
pub(super) struct Samples(Vec<Sample>);

impl Samples {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn origins(&self) -> HashSet<Origin> {
        self.0.iter().flat_map(Sample::keys).copied().collect()
    }

    pub(super) fn held(&self, origin: &Origin) -> impl Iterator<Item = Held> {
        self.0.iter().map(|sample| sample.get(origin).copied().unwrap_or_default())
    }

    pub(super) fn bytes(&self, origin: &Origin) -> Vec<f64> {
        self.held(origin).map(|held| held.bytes as f64).collect()
    }

    pub(super) fn blocks(&self, origin: &Origin) -> Vec<f64> {
        self.held(origin).map(|held| held.blocks as f64).collect()
    }

    /// Does a stack have blocks that grow by doubling, as containers do, and are no more than before?
    pub(super) fn doubles(&self, origin: &Origin, warmup: usize) -> bool {
        let blocks = self.blocks(origin);
        let before = blocks.iter().take(warmup).copied().fold(0.0, f64::max);
        blocks.last().is_some_and(|last| *last <= before + 1.0) && slope::doubles(&self.bytes(origin), warmup)
    }

    /// Of all stacks together, but not of other threads'.
    pub(super) fn total(&self) -> Vec<f64> {
        let sum = |sample: &Sample| {
            sample.iter().filter(|(origin, _)| !origin.of_helper).map(|(_, held)| held.bytes).sum::<u64>()
        };
        self.0.iter().map(|sample| sum(sample) as f64).collect()
    }

    /// Without some of them.
    pub(super) fn without(&self, left_out: &HashSet<Origin>) -> Self {
        let rest = |sample: &Sample| {
            sample.iter().filter(|(origin, _)| !left_out.contains(origin)).map(|(o, h)| (*o, *h)).collect()
        };
        Self(self.0.iter().map(rest).collect())
    }

    /// Something has lately reached a new height, so more runs would tell.
    fn is_unsure(&self, warmup: usize) -> bool {
        let is_unsettled = |origin: &Origin| {
            slope::is_unsettled(&self.bytes(origin), warmup) || slope::is_unsettled(&self.blocks(origin), warmup)
        };
        slope::is_unsettled(&self.total(), warmup) || self.origins().iter().any(is_unsettled)
    }

    /// How much more there is than after the warm-up.
    fn grown(&self, warmup: usize) -> u64 {
        let sum =
            |sample: Option<&Sample>| sample.map_or(0, |sample| sample.values().map(|held| held.bytes).sum::<u64>());
        sum(self.0.last()).saturating_sub(sum(self.0.get(warmup.saturating_sub(1))))
    }
}

/// What is to run, and what is said of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Runs in all, unless it is not clear after them.
    pub(super) asked: usize,
    /// Those of them that may build something up.
    pub(super) warmup: usize,
    pub(super) counted: Counted,
    pub(super) judge: fn(&Self, &Measured, &Samples) -> Result<(), Failure>,
}

/// A loop that is watched: `while watch.again() { … }`, then `watch.finish()`. All its runs are one measurement.
#[doc(hidden)]
#[derive(Debug)]
pub struct Watch {
    plan: Plan,
    open: OpenMeasure,
    began: Instant,
    begun: bool,
    total: usize,
    samples: Own<Samples>,
}

impl Watch {
    pub(super) fn begin(plan: Plan) -> Result<Self, Failure> {
        let open = OpenMeasure::begin_on(plan.counted.whole_process)?;
        let samples = Own::new(Samples::default());
        Ok(Self { plan, open, began: Instant::now(), begun: false, total: plan.asked, samples })
    }

    pub(super) fn run<T>(mut self, mut f: impl FnMut() -> T) -> Result<(), Failure> {
        while self.again() {
            drop(f());
        }
        self.finish()
    }

    /// To be called before each run, and once after the last: is there another one?
    pub fn again(&mut self) -> bool {
        own(|| self.is_another())
    }

    /// The verdict, if all runs came to their end.
    pub fn finish(self) -> Result<(), Failure> {
        own(|| {
            if self.samples.len() < self.total {
                return Err(Kind::LeftEarly { runs: self.samples.len(), of: self.total }.into());
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
            self.total = (2 * self.total + 2).min(MOST.max(self.total));
        }
        let goes_on = self.samples.len() < self.total;
        if !goes_on && self.total > self.plan.asked {
            self.settle();
        }
        goes_on
    }

    /// Looks once more after the last run: threads and tasks that nobody waited for may free something yet.
    fn settle(&mut self) {
        std::thread::sleep(SETTLES);
        let settled = sample(self.open.opened());
        if let Some(last) = self.samples.0.last_mut() {
            *last = settled;
        }
    }

    /// Once in any case, where it is not clear.
    fn must_go_on(&self) -> bool {
        let (samples, warmup) = (&self.samples, self.plan.warmup);
        let takes_long = || self.began.elapsed() > LONGEST || samples.grown(warmup) > MOST_BYTES;
        let enough = self.total > self.plan.asked && takes_long();
        !enough && samples.is_unsure(warmup)
    }
}

fn sample(opened: measure::OpenMeasurement) -> Sample {
    let mut sample = Sample::new();
    let mut add = |device, stack, size, of_helper| {
        let held = sample.entry(Origin { device, stack, of_helper }).or_default();
        held.bytes += size;
        held.blocks += 1;
    };
    measure::each_live(opened, |device, handed, block| add(device, block.stack, block.size, handed));
    measure::each_of_helpers(opened, |device, stack, size| add(device, stack, size, true));
    sample
}
