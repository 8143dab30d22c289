//! Assertion on how the peak grows with the input size.

use std::collections::HashMap;

use memtrace_core::analysis::runs::BlockOrigin;
use memtrace_core::snapshot::{Device, RecordKind};
use memtrace_core::units::{Bytes, grouped};

use super::failure::Failure;
use super::measure::{Measured, OpenMeasure};
use super::rows::{Labelled, table};
use super::runs::left_early;
use super::undecided::{CountedWork, Undecided, counted_methods};
use crate::device::IntoDevice;
use crate::error::Error;
use crate::record::guard::Own;
use crate::record::own;

/// How the peak may grow with the input size.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Scaling {
    /// Not at all.
    Constant,
    /// Proportional to the size.
    Linear,
    /// Proportional to the square of the size.
    Quadratic,
    /// Proportional to this power of the size.
    Power(f64),
    /// Proportional to this function of the size.
    As(fn(usize) -> f64),
}

impl Scaling {
    fn of(self, size: usize) -> f64 {
        match self {
            Self::Constant => 0.0,
            Self::Linear => size as f64,
            Self::Quadratic => (size as f64).powi(2),
            Self::Power(power) => (size as f64).powf(power),
            Self::As(function) => function(size),
        }
    }
}

/// The peak may exceed the prediction by this share of the prediction, plus `SLACK` bytes.
const TOLERANCE: f64 = 0.1;
const SLACK: f64 = 4096.0;
/// Stacks with less than this share of the largest peak are ignored.
const LEAST_SHARE: f64 = 0.01;
/// The least ratio of the largest size to the smallest.
const LEAST_SPAN: usize = 4;

/// Code whose peak must not grow faster with its input than stated; the assertion behind
/// [`assert_scaling!`](crate::assert_scaling).
///
/// The code runs once for each size. From the second largest size to the largest, the peak may grow as `f(size)`, the
/// stated [`Scaling`], plus a tenth and 4,096 bytes. The same limit applies to the most bytes that each stack held by
/// itself, if the stack occurs at all sizes and holds 1 % of the largest peak. Constant memory in addition to `f` does
/// no harm, but hides smaller memory that grows. So choose a largest size whose memory is many times 4,096 bytes.
///
/// ```
/// # #[global_allocator] static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
/// use memtrace::{Scales, Scaling};
/// let linear = Scales::new(Scaling::Linear).sizes([1000, 2000, 4000]);
/// assert!(linear.run(|n| vec![0u8; 8 * n]).is_ok());
/// assert!(linear.run(|n| vec![0u8; n * n / 10]).is_err());
/// ```
#[derive(Debug)]
#[must_use = "an assertion checks nothing until `run`"]
pub struct Scales {
    scaling: Scaling,
    sizes: Own<Vec<usize>>,
    device: Option<Device>,
    counted: CountedWork,
}

impl Scales {
    /// An assertion without sizes yet.
    pub fn new(scaling: Scaling) -> Self {
        Self { scaling, sizes: Own::new(Vec::new()), device: None, counted: CountedWork::default() }
    }

    /// The input sizes: three or more, the largest at least four times the smallest and twice the second largest. It is
    /// best to double the size each time, because memory that grows by doubling, as in a `Vec`, jumps between such
    /// sizes.
    pub fn sizes(self, sizes: impl AsRef<[usize]>) -> Self {
        let sorted = Own::make(|| {
            let mut sizes = sizes.as_ref().to_vec();
            sizes.sort_unstable();
            sizes.dedup();
            sizes
        });
        Self { sizes: sorted, ..self }
    }

    /// Checks only this device (default: the one with the largest peak).
    pub fn device(self, device: impl IntoDevice) -> Self {
        Self { device: Some(device.into_device()), ..self }
    }

    counted_methods!();

    /// Runs `f` for each size, after a warm-up with the smallest, and drops what it returns.
    ///
    /// # Errors
    /// If the peak grows faster than stated, or the sizes do not suffice.
    pub fn run<T>(&self, mut f: impl FnMut(usize) -> T) -> Result<(), Failure> {
        let mut watch = self.begin()?;
        while let Some(size) = watch.next_size()? {
            drop(f(size));
        }
        watch.finish()
    }

    #[doc(hidden)]
    pub fn begin(&self) -> Result<ScalingWatch<'_>, Failure> {
        let (first, last) = (self.sizes.first().copied(), self.sizes.last().copied());
        let spans = first.zip(last).is_some_and(|(first, last)| first > 0 && last / first >= LEAST_SPAN);
        let doubled = matches!(*self.sizes.as_slice(), [.., before, last] if last / 2 >= before);
        if self.sizes.len() < 3 || !spans || !doubled {
            let why = "too few sizes to tell how memory scales; give three or more above 0, the largest at least four \
                       times the smallest and twice the one before it";
            return Err(Error::wrong(why).into());
        }
        Ok(ScalingWatch { plan: self, at: 0, open: None, measured: Own::new(Vec::new()) })
    }
}

/// A watched loop: `while let Some(size) = watch.next_size()? { … }`, then `watch.finish()`.
#[doc(hidden)]
#[derive(Debug)]
pub struct ScalingWatch<'a> {
    plan: &'a Scales,
    /// How many runs have begun, including the warm-up.
    at: usize,
    open: Option<OpenMeasure>,
    measured: Own<Vec<Measured>>,
}

impl ScalingWatch<'_> {
    pub fn next_size(&mut self) -> Result<Option<usize>, Failure> {
        if let Some(open) = self.open.take() {
            let measured = open.end();
            if self.at > 1 {
                own(|| self.measured.push(measured));
            }
        }
        let Some(size) = self.plan.sizes.get(self.at.saturating_sub(1)).copied() else { return Ok(None) };
        self.at += 1;
        self.open = Some(OpenMeasure::begin(self.plan.counted.whole_process)?);
        Ok(Some(size))
    }

    pub fn finish(self) -> Result<(), Failure> {
        // This is not inside `own`, because `Scaling::As` calls a function of the user's.
        let scaled: Vec<f64> = self.plan.sizes.iter().map(|size| self.plan.scaling.of(*size)).collect();
        own(|| self.judge(&scaled))
    }

    fn judge(&self, scaled: &[f64]) -> Result<(), Failure> {
        let (runs, of) = (self.measured.len(), self.plan.sizes.len());
        let Some(largest) = self.measured.last().filter(|_| runs == of) else {
            return Err(left_early(runs, of));
        };
        let main = largest.devices().iter().max_by_key(|on| on.peak).map_or(Device::Cpu, |on| on.device);
        let device = self.plan.device.unwrap_or(main);
        let peaks = Peaks { plan: self.plan, scaled, measured: &self.measured, device };
        let whole = peaks.faster(&peaks.whole());
        let stacks = peaks.faster_stacks();
        if whole.is_some() || !stacks.is_empty() {
            return Err(peaks.report(whole, &stacks, largest));
        }
        let undecided = Undecided::of(largest, Some(device), self.plan.counted);
        let mut with_others = peaks.whole();
        with_others.last_mut().into_iter().for_each(|last| *last = last.saturating_add(undecided.bytes()));
        match peaks.faster(&with_others) {
            Some(_) => Err(Failure::undecided("the peak scales as stated", &undecided)),
            None => Ok(()),
        }
    }
}

/// The peaks of one device at each size.
struct Peaks<'a> {
    plan: &'a Scales,
    /// The value of the scaling function for each size.
    scaled: &'a [f64],
    measured: &'a [Measured],
    device: Device,
}

/// Actual and predicted bytes at the largest size.
#[derive(Clone, Copy, Debug)]
struct Faster {
    bytes: u64,
    predicted: f64,
}

impl Peaks<'_> {
    fn whole(&self) -> Vec<u64> {
        self.measured.iter().map(|measured| measured.device(self.device).peak).collect()
    }

    /// The last peak and its prediction from the earlier peaks, if it exceeds the prediction and the tolerance.
    fn faster(&self, peaks: &[u64]) -> Option<Faster> {
        let (last, earlier) = peaks.split_last()?;
        let predicted = predict(self.scaled, earlier);
        (*last as f64 > predicted * (1.0 + TOLERANCE) + SLACK).then_some(Faster { bytes: *last, predicted })
    }

    fn faster_stacks(&self) -> Vec<(BlockOrigin, Faster)> {
        let least = self.whole().last().map_or(0.0, |peak| *peak as f64 * LEAST_SHARE);
        let by_size: Vec<_> = self.measured.iter().map(|measured| by_stack(measured, self.device)).collect();
        let Some(largest) = by_size.last() else { return Vec::new() };
        let series =
            |origin: &BlockOrigin| by_size.iter().map(|stacks| stacks.get(origin).copied()).collect::<Option<Vec<_>>>();
        let faster = |(origin, bytes): (&BlockOrigin, &u64)| {
            let faster = self.faster(&series(origin)?)?;
            (*bytes as f64 >= least).then_some((*origin, faster))
        };
        let mut stacks: Vec<(BlockOrigin, Faster)> = largest.iter().filter_map(faster).collect();
        stacks.sort_by_key(|(origin, faster)| (std::cmp::Reverse(faster.bytes), origin.stack));
        stacks
    }

    fn report(&self, whole: Option<Faster>, stacks: &[(BlockOrigin, Faster)], largest: &Measured) -> Failure {
        Failure::with_snapshot(&self.head(whole), largest, |data| {
            let cells =
                |faster: &Faster| vec![Bytes(faster.bytes).to_string(), Bytes(faster.predicted as u64).to_string()];
            let rows = stacks.iter().map(|(origin, faster)| Labelled { origin: *origin, cells: cells(faster) });
            let stacks = table(&["Bytes", "Predicted"], rows, largest, data);
            format!(
                "Stacks that grew faster: the most that each held at the largest size\n{stacks}\n{}",
                memtrace_core::export::at_peak(data, self.device, 5)
            )
        })
    }

    fn head(&self, whole: Option<Faster>) -> String {
        let sizes = self.plan.sizes.iter().zip(self.whole());
        let peaks: Vec<String> =
            sizes.map(|(size, peak)| format!("{}: {}", grouped(*size as u64), Bytes(peak))).collect();
        let grows = match whole {
            Some(Faster { predicted, .. }) => {
                format!(
                    "the peak on {} grows faster than {:?}, which predicts {} for the largest size",
                    self.device,
                    self.plan.scaling,
                    Bytes(predicted as u64)
                )
            }
            None => format!("part of the peak on {} grows faster than {:?}", self.device, self.plan.scaling),
        };
        format!("{grows}\nPeak by size      {}", peaks.join(", "))
    }
}

/// Predicts the last peak from the one before. `f` is the scaling function. For a peak that grows as `f` plus
/// constants, the ratio `peak / f` never rises. The same is true if the peak is the maximum of several phases of the
/// code that each grow like this. A fitted line would not follow such a maximum.
fn predict(scaled: &[f64], earlier: &[u64]) -> f64 {
    let highest = earlier.iter().copied().max().unwrap_or(0) as f64;
    let [.., before, last] = scaled else { return highest };
    let grown = earlier.last().map_or(0.0, |peak| *peak as f64 * last / before);
    if *before > 0.0 { grown.max(highest) } else { highest }
}

/// The most bytes that each stack held by itself. The map is empty if the log has lost its beginning.
fn by_stack(measured: &Measured, device: Device) -> HashMap<BlockOrigin, u64> {
    let mut held: HashMap<BlockOrigin, (u64, u64)> = HashMap::new();
    for seen in measured.seen().iter().filter(|seen| seen.device == device && seen.ledger.overwritten == 0) {
        for record in &seen.ledger.records {
            let (now, most) =
                held.entry(BlockOrigin { device, stack: record.alloc_stack, of_helper: false }).or_default();
            match record.kind {
                RecordKind::Alloc => *now += record.size,
                RecordKind::Free => *now = now.saturating_sub(record.size),
            }
            *most = (*most).max(*now);
        }
    }
    held.into_iter().map(|(origin, (_, most))| (origin, most)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prediction_goes_on_as_it_was() {
        assert_eq!(predict(&[1.0, 2.0, 4.0], &[15, 25]), 50.0);
        assert_eq!(predict(&[0.0, 0.0, 0.0], &[15, 10]), 15.0, "constant");
        assert_eq!(predict(&[1.0, 2.0, 4.0], &[90, 15]), 90.0, "what falls is not predicted to fall further");
    }

    #[test]
    fn the_largest_of_linear_phases_is_linear() {
        let peak = |n: u64| (700 + 10 * n).max(300 + 21 * n).max(40 * n);
        for sizes in [[8, 16, 32, 64], [10, 20, 30, 40], [1, 2, 50, 100]] {
            let peaks = sizes.map(peak);
            let scaled = sizes.map(|n| n as f64);
            assert!(peaks[3] as f64 <= predict(&scaled, &peaks[..3]), "{sizes:?}");
        }
    }
}
