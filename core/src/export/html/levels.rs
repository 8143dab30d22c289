//! Levels of detail. Each level divides the time into equal buckets, with the lowest, the highest and the last number
//! of live bytes in each. The coarsest level also has what held the highest.

use super::history::{HistoryStep, PageHistory};
use super::keys::{BlockKey, UsedStacks};
use crate::analysis::reserved::Reserved;
use crate::snapshot::DeviceSnapshot;

/// The most buckets of the coarsest level; a picture has fewer columns of pixels than this.
const COARSE: u64 = 4096;
/// Buckets of the finest level, at most.
const FINE: u64 = 1 << 18;
/// Each level has this many times the buckets of the one before.
const FINER: u64 = 8;
/// The most series of a key in the timeline; all other labels are merged into one series.
const SERIES: usize = 11;

/// The time that the levels cover, divided into buckets whose length is a whole number of nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct BucketScale {
    pub(super) start_ns: u64,
    pub(super) each_ns: u64,
    pub(super) buckets: u64,
}

impl BucketScale {
    fn new(start_ns: u64, end_ns: u64, most: u64) -> Self {
        let span = end_ns.saturating_sub(start_ns).max(1);
        let each_ns = span.div_ceil(most).max(1);
        Self { start_ns, each_ns, buckets: span / each_ns + 1 }
    }

    fn bucket(self, time_ns: u64) -> usize {
        (time_ns.saturating_sub(self.start_ns) / self.each_ns).min(self.buckets - 1) as usize
    }
}

/// The scales of a log, from coarse to fine. More than two buckets per record would show nothing new.
pub(super) fn scales(history: &PageHistory, start_ns: u64, end_ns: u64) -> Vec<BucketScale> {
    let most = (2 * history.steps.len() as u64).min(FINE);
    let finer = std::iter::successors(Some(COARSE), |buckets| Some(buckets * FINER).filter(|next| *next <= most));
    finer.map(|buckets| BucketScale::new(start_ns, end_ns, buckets)).collect()
}

/// A curve in buckets.
#[derive(Clone, Debug, Default)]
pub(super) struct CurveBuckets {
    pub(super) lowest: Vec<u64>,
    pub(super) highest: Vec<u64>,
    pub(super) last: Vec<u64>,
}

impl CurveBuckets {
    /// Appends buckets with this value until there are `buckets` of them.
    fn fill(&mut self, buckets: usize, value: u64) {
        for column in [&mut self.lowest, &mut self.highest, &mut self.last] {
            column.resize(buckets.max(column.len()), value);
        }
    }

    /// Changes the curve's value within the last bucket. Returns true if this value is higher than all before it in
    /// the bucket.
    fn set(&mut self, value: u64) -> bool {
        let (Some(lowest), Some(highest), Some(last)) =
            (self.lowest.last_mut(), self.highest.last_mut(), self.last.last_mut())
        else {
            return false;
        };
        *last = value;
        *lowest = value.min(*lowest);
        let is_highest = value > *highest;
        *highest = value.max(*highest);
        is_highest
    }
}

/// The curve of live bytes.
pub(super) fn live(history: &PageHistory, scale: BucketScale) -> CurveBuckets {
    let mut curve = CurveBuckets::default();
    let mut now = history.at_start;
    for step in &history.steps {
        curve.fill(scale.bucket(step.time_ns) + 1, now);
        now = step.total;
        curve.set(now);
    }
    curve.fill(scale.buckets as usize, now);
    curve
}

/// The curve of reserved bytes; `None` if no segment was reported.
pub(super) fn reserved(device: &DeviceSnapshot, scale: BucketScale) -> Option<CurveBuckets> {
    let mut sweep = Reserved::of(device)?;
    let mut curve = CurveBuckets::default();
    let mut now = sweep.bytes();
    let mut note = |time_ns: u64, bytes: u64| {
        curve.fill(scale.bucket(time_ns) + 1, now);
        now = bytes;
        curve.set(now);
    };
    for record in &device.records {
        sweep.before(record.time_ns, &mut note);
        sweep.after(record);
        note(record.time_ns, sweep.bytes());
    }
    sweep.before(u64::MAX, &mut note);
    curve.fill(scale.buckets as usize, now);
    Some(curve)
}

/// The largest series of a key, and their bytes at the highest moment of each bucket.
#[derive(Clone, Debug, Default)]
pub(super) struct SeriesMix {
    /// The numbers of the series' labels, the one with the highest maximum first.
    pub(super) labels: Vec<u32>,
    /// The bytes of each series in each bucket.
    pub(super) bytes: Vec<Vec<u64>>,
}

/// Computes a key's series over the log.
pub(super) fn mix(history: &PageHistory, key: &BlockKey, stacks: &UsedStacks, scale: BucketScale) -> SeriesMix {
    let of_rows: Vec<u32> = history.rows.iter().zip(0..).map(|(row, at)| key.of_row(stacks, at, row) as u32).collect();
    let label = |row: u32| of_rows.get(row as usize).map_or(0, |label| *label as usize);
    let mut sums = vec![0u64; key.labels.len()];
    for row in history.rows.iter().zip(0..).take(history.early) {
        sums[label(row.1)] += row.0.weight;
    }
    let labels = largest(history, &sums, &label);
    let mut series: Vec<Option<usize>> = vec![None; key.labels.len()];
    labels.iter().enumerate().for_each(|(at, label)| series[*label as usize] = Some(at));
    let mut now: Vec<u64> = labels.iter().map(|label| sums[*label as usize]).collect();
    let mut mix = SeriesMix { bytes: vec![Vec::with_capacity(scale.buckets as usize); labels.len()], labels };
    let (mut total, mut highest) = (history.at_start, 0);
    for step in &history.steps {
        let bucket = scale.bucket(step.time_ns) + 1;
        if mix.fill(bucket, &now) {
            highest = total;
        }
        if let Some(at) = series[label(step.row)] {
            change(&mut now[at], history, step);
        }
        total = step.total;
        if total > highest {
            highest = total;
            mix.set(&now);
        }
    }
    mix.fill(scale.buckets as usize, &now);
    mix
}

impl SeriesMix {
    /// Appends buckets with the values `now` until there are `buckets` of them. Returns true if it appended any.
    fn fill(&mut self, buckets: usize, now: &[u64]) -> bool {
        let before = self.bytes.first().map_or(buckets, Vec::len);
        self.bytes.iter_mut().zip(now).for_each(|(series, now)| series.resize(buckets.max(before), *now));
        before < buckets
    }

    fn set(&mut self, now: &[u64]) {
        for (series, now) in self.bytes.iter_mut().zip(now) {
            if let Some(last) = series.last_mut() {
                *last = *now;
            }
        }
    }
}

fn change(sum: &mut u64, history: &PageHistory, step: &HistoryStep) {
    let weight = history.rows.get(step.row as usize).map_or(0, |row| row.weight);
    *sum = if step.is_free { sum.saturating_sub(weight) } else { sum.saturating_add(weight) };
}

/// The labels whose own highest bytes are the largest, at most [`SERIES`].
fn largest(history: &PageHistory, at_start: &[u64], label: &impl Fn(u32) -> usize) -> Vec<u32> {
    let (mut now, mut most) = (at_start.to_vec(), at_start.to_vec());
    for step in &history.steps {
        let at = label(step.row);
        change(&mut now[at], history, step);
        most[at] = most[at].max(now[at]);
    }
    let mut labels: Vec<u32> = (0..most.len() as u32).filter(|label| most[*label as usize] > 0).collect();
    labels.sort_by_key(|label| (std::cmp::Reverse(most[*label as usize]), *label));
    labels.truncate(SERIES);
    labels
}
