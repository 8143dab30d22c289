//! Assertion that a GPU's peak holds no memory that nothing uses.

use std::fmt::Write as _;
use std::panic::Location;

use memtrace_core::analysis::{UseCoverage, Waste, WasteKind, main_device, use_coverage, waste_at_peak};
use memtrace_core::report::{FindingKind, findings};
use memtrace_core::snapshot::Device;
use memtrace_core::units::{Bytes, grouped};
use memtrace_core::{DeviceView, Recording, visible};

use super::baseline::{Baseline, Percent};
use super::failure::Failure;
use super::recorded::OpenRecording;
use crate::device::IntoDevice;
use crate::error::Error;
use crate::record::own;
use crate::session::{IntoBytes, Snapshot, say};

/// A limit for the bytes of a GPU's peak that are past their last use or never used; the assertion behind
/// [`assert_no_waste!`](crate::assert_no_waste). It needs a limit, a baseline, or both.
///
/// It records the whole process while the code runs, because uses of memory are known only for whole devices. So other
/// tests must not use the same GPU meanwhile. Assertions of several threads take turns.
///
/// ```no_run
/// # fn forward() {}
/// memtrace::NoWaste::new().limit("1 MiB").run(forward)?;
/// # Ok::<(), memtrace::Failure>(())
/// ```
#[derive(Debug, Default)]
#[must_use = "an assertion checks nothing until `run`"]
pub struct NoWaste {
    limit: Option<Result<u64, Error>>,
    baseline: Option<Baseline>,
    tolerance: Option<Result<Percent, Error>>,
    device: Option<Device>,
}

impl NoWaste {
    /// An assertion without a limit yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The limit: text like `"1 MiB"`, or bytes.
    pub fn limit(self, limit: impl IntoBytes) -> Self {
        Self { limit: Some(own(|| limit.into_bytes())), ..self }
    }

    /// Compares the wasted bytes with the entry of this name in the baselines of the calling source file, as
    /// [`PeakLimit::baseline`](crate::PeakLimit::baseline) does for peaks.
    #[track_caller]
    pub fn baseline(self, name: impl AsRef<str>) -> Self {
        Self { baseline: Some(Baseline::named(name.as_ref(), Location::caller().file())), ..self }
    }

    /// By how much the waste may exceed the baseline, like `"5%"` (default: 1 %).
    pub fn tolerance(self, percent: impl AsRef<str>) -> Self {
        Self { tolerance: Some(own(|| Percent::parse(percent.as_ref()))), ..self }
    }

    /// Checks this device (default: the GPU with the largest peak).
    pub fn device(self, device: impl IntoDevice) -> Self {
        Self { device: Some(device.into_device()), ..self }
    }

    /// Runs `f` and compares the waste at its peak with the limit. What `f` returns stays live until the comparison is
    /// done.
    ///
    /// # Errors
    /// If more is wasted, the limit is invalid, another session is active, or no GPU memory was recorded.
    pub fn run<T>(&self, f: impl FnOnce() -> T) -> Result<T, Failure> {
        let open = self.begin()?;
        let value = f();
        self.end(open)?;
        Ok(value)
    }

    #[doc(hidden)]
    pub fn begin(&self) -> Result<OpenRecording, Failure> {
        own(|| self.parsed().map(drop))?;
        OpenRecording::begin(|builder| builder.uses(true))
    }

    #[doc(hidden)]
    pub fn end(&self, open: OpenRecording) -> Result<(), Failure> {
        let snapshot = open.end();
        own(|| self.judge(&snapshot))
    }

    fn parsed(&self) -> Result<(Option<u64>, Percent), Failure> {
        if self.limit.is_none() && self.baseline.is_none() {
            let why = "no limit for the waste; give a limit (\"1 MiB\") or a baseline";
            return Err(Error::wrong(why).into());
        }
        Ok((self.limit.clone().transpose()?, self.tolerance.clone().transpose()?.unwrap_or_default()))
    }

    fn judge(&self, snapshot: &Snapshot) -> Result<(), Failure> {
        let (limit, tolerance) = self.parsed()?;
        let device = self.device.or_else(|| main_device(snapshot)).unwrap_or(Device::Cuda(0));
        let recording = Recording::new(snapshot);
        let on = recording.device(device).filter(|_| matches!(device, Device::Cuda(_)));
        let found = on.and_then(|on| Some((on, waste_at_peak(on)?)));
        let (on, rows) = found.ok_or_else(|| Error::wrong(nothing_known(device, on)))?;
        unknown_uses(use_coverage(snapshot)).iter().for_each(|note| say(note));
        let wasted = rows.iter().fold(0u64, |sum, row| sum.saturating_add(row.bytes));
        if let Some(limit) = limit.filter(|limit| wasted > *limit) {
            return Err(failure(snapshot, on, &rows, wasted, &format!("the limit of {}", Bytes(limit))));
        }
        let Some(baseline) = &self.baseline else { return Ok(()) };
        let lines = rows.iter().map(|row| (row.bytes, row.line.clone())).collect();
        baseline.check_bytes(&format!("{device} (waste)"), (wasted, lines), tolerance, |known, limit| {
            let against = format!("its baseline of {} and a limit of {}", Bytes(known.peak), Bytes(limit));
            failure(snapshot, on, &rows, wasted, &against)
        })
    }
}

/// The failure's text if nothing is known about waste. The assertion fails then, because nothing was checked.
fn nothing_known(device: Device, on: Option<&DeviceView<'_>>) -> String {
    match on {
        None => format!("no memory of {device} was recorded, so nothing would be checked; open the GPU in the code"),
        Some(on) if on.overwritten > 0 => format!(
            "the log of {device} is full, so the peak cannot be replayed; check less code at once, or raise \
             MEMTRACE_MAX_ENTRIES"
        ),
        Some(_) => format!(
            "uses of {device}'s memory were not recorded, so nothing would be checked; is MEMTRACE_USES=0 or \
             MEMTRACE_SAMPLE_INTERVAL set?"
        ),
    }
}

/// A note if the last use of some memory is unknown.
fn unknown_uses(coverage: UseCoverage) -> Option<String> {
    let UseCoverage { bytes, known } = coverage;
    (known < bytes).then(|| {
        let (known, bytes) = (Bytes(known), Bytes(bytes));
        format!("assert_no_waste: the last use is known of {known} of {bytes}; the rest may hide waste")
    })
}

fn failure(snapshot: &Snapshot, on: &DeviceView<'_>, rows: &[Waste], wasted: u64, over: &str) -> Failure {
    let mut text = format!(
        "{} ({} bytes) of the peak of {} on {} are past their last use or never used, over {over}\n",
        Bytes(wasted),
        grouped(wasted),
        Bytes(on.peak.bytes),
        on.device
    );
    for row in rows.iter().take(10) {
        let what = match row.kind {
            WasteKind::NeverUsed => "never used",
            _ => "past the last use",
        };
        _ = writeln!(text, "{:>12}  {what}, {}", Bytes(row.bytes).to_string(), visible::line(&row.line));
    }
    let advised = findings(on).into_iter();
    for finding in advised.filter(|finding| matches!(finding.kind, FindingKind::PastLastUse | FindingKind::NeverUsed)) {
        _ = writeln!(text, "\n{}: {}", finding.cost, visible::line(&finding.what));
        finding.line.iter().for_each(|line| _ = writeln!(text, "   at {}", visible::line(line)));
        finding.advice.iter().for_each(|line| _ = writeln!(text, "   {}", visible::line(line)));
    }
    Failure::of_snapshot(&text, snapshot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_says_how_much_may_hide_waste() {
        let note = |known| unknown_uses(UseCoverage { bytes: 4096, known });
        assert_eq!(note(4096), None);
        let text = note(1024).unwrap();
        assert!(text.contains("known of 1.000 KiB of 4.000 KiB"), "{text}");
    }
}
