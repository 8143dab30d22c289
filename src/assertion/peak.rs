//! Assertion that a peak stays within a limit or baseline.

use std::panic::Location;

use memtrace_core::snapshot::Device;
use memtrace_core::units::{Bytes, grouped};
use memtrace_core::visible;

use super::baseline::{Baseline, Percent};
use super::failure::Failure;
use super::measure::{Measured, MeasuredDevice, OpenMeasure};
use super::peak_check::PeakCheck;
use super::run_log::{self, PeakRow};
use super::undecided::{CountedWork, counted_methods};
use crate::device::IntoDevice;
use crate::error::{Error, NOT_INSTALLED};
use crate::hook::cuda;
use crate::record::guard::{self, Own};
use crate::record::own;
use crate::session::IntoBytes;

/// A limit for the memory peak of some code; the assertion behind [`assert_peak!`](crate::assert_peak). It needs a
/// limit, a baseline, or both.
///
/// ```
/// # #[global_allocator] static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
/// let limit = memtrace::PeakLimit::new().limit("1 MiB");
/// assert_eq!(limit.run(|| vec![0u8; 1000]).unwrap().len(), 1000);
/// assert!(limit.run(|| vec![0u8; 2 << 20]).unwrap_err().is_violation());
/// ```
#[derive(Debug, Default)]
#[must_use = "an assertion checks nothing until `run` or `check`"]
pub struct PeakLimit {
    limit: Option<Result<u64, Error>>,
    baseline: Option<Baseline>,
    tolerance: Option<Result<Percent, Error>>,
    device: Option<Device>,
    name: Option<Own<String>>,
    counted: CountedWork,
    code: &'static str,
    made_at: Option<&'static Location<'static>>,
}

impl PeakLimit {
    /// An assertion without a limit yet.
    #[track_caller]
    pub fn new() -> Self {
        Self { made_at: Some(Location::caller()), ..Self::default() }
    }

    /// The limit: text like `"512 MiB"`, or bytes. It applies to each device by itself.
    pub fn limit(self, limit: impl IntoBytes) -> Self {
        Self { limit: Some(own(|| limit.into_bytes())), ..self }
    }

    /// Compares the peak with the entry of this name in the baselines of the calling source file:
    /// `tests/model.peaks.txt` for `tests/model.rs`. `MEMTRACE_UPDATE_BASELINES=1` stores the measured peak there.
    #[track_caller]
    pub fn baseline(self, name: impl AsRef<str>) -> Self {
        Self { baseline: Some(Baseline::named(name.as_ref(), Location::caller().file())), ..self }
    }

    /// By how much the peak may exceed the baseline, like `"5%"` (default: 1 %).
    pub fn tolerance(self, percent: impl AsRef<str>) -> Self {
        Self { tolerance: Some(own(|| Percent::parse(percent.as_ref()))), ..self }
    }

    /// Checks only this device (default: the one with the largest peak).
    pub fn device(self, device: impl IntoDevice) -> Self {
        Self { device: Some(device.into_device()), ..self }
    }

    counted_methods!();

    /// The name in the list of all peaks (default: the baseline's name, the code, or its line).
    pub fn name(self, name: impl AsRef<str>) -> Self {
        Self { name: Some(Own::make(|| name.as_ref().to_owned())), ..self }
    }

    #[doc(hidden)]
    pub fn code(self, code: &'static str) -> Self {
        Self { code, ..self }
    }

    /// Runs `f` on this thread and compares its peak with the limit.
    ///
    /// # Errors
    /// If the peak exceeds the limit, or the limit is invalid. In the latter case `f` does not run.
    pub fn run<T>(&self, f: impl FnOnce() -> T) -> Result<T, Failure> {
        let open = self.begin()?;
        let value = f();
        self.check(&open.end())?;
        Ok(value)
    }

    /// Compares a measurement with the limit.
    ///
    /// # Errors
    /// If the peak exceeds the limit, or the limit is invalid.
    pub fn check(&self, measured: &Measured) -> Result<(), Failure> {
        own(|| self.judge(measured))
    }

    fn judge(&self, measured: &Measured) -> Result<(), Failure> {
        let (limit, tolerance) = self.parsed()?;
        let on = self.device_of(measured)?;
        let held = PeakCheck::new(measured, self.counted);
        let against_limit = limit.map_or(Ok(()), |limit| self.check_limit(limit, &on, &held));
        let (outcome, baseline) = match (against_limit, &self.baseline) {
            (Ok(()), Some(baseline)) => baseline.check(self.device.is_none(), on.device, &held, tolerance),
            (against_limit, _) => (against_limit, None),
        };
        run_log::note(PeakRow { name: &self.called(), on: &on, limit, baseline, measured, passed: outcome.is_ok() });
        outcome
    }

    /// The limit and the tolerance, if they are valid.
    fn parsed(&self) -> Result<(Option<u64>, Percent), Failure> {
        if self.limit.is_none() && self.baseline.is_none() {
            let why = "no limit for the peak; give a limit (\"512 MiB\") or a baseline";
            return Err(Error::wrong(why).into());
        }
        Ok((self.limit.clone().transpose()?, self.tolerance.clone().transpose()?.unwrap_or_default()))
    }

    /// The device to check; an error if its memory cannot be seen, because 0 bytes would then pass every limit.
    fn device_of(&self, measured: &Measured) -> Result<MeasuredDevice, Failure> {
        let largest = measured.devices().iter().max_by_key(|on| on.peak).map(|on| on.device);
        let device = self.device.or(largest).unwrap_or(Device::Cpu);
        match device {
            Device::Cpu if !guard::allocator_is_installed() => Err(Error::wrong(NOT_INSTALLED).into()),
            Device::Cpu => Ok(measured.device(device)),
            _ if !cuda::is_loaded() => Err(Error::wrong(format!(
                "memory of {device} cannot be seen: the CUDA driver is not loaded; open the device first"
            ))
            .into()),
            _ => Ok(measured.device(device)),
        }
    }

    fn called(&self) -> String {
        let named = self.name.as_deref().map(String::as_str);
        let named = named.or(self.baseline.as_ref().map(Baseline::name)).unwrap_or(self.code);
        match self.made_at.filter(|_| named.is_empty()) {
            Some(at) => format!("{}:{}", at.file(), at.line()),
            None => visible::line(named).into_owned(),
        }
    }

    fn check_limit(&self, limit: u64, on: &MeasuredDevice, held: &PeakCheck<'_>) -> Result<(), Failure> {
        let name = self.called();
        let of = if name.is_empty() { name } else { format!(" of `{name}`") };
        let over = |peak: u64| {
            let (bytes, over) = (grouped(peak), Bytes(peak - limit));
            let (device, peak, limit) = (on.device, Bytes(peak), Bytes(limit));
            let head =
                format!("the peak{of}, {peak} ({bytes} bytes) on {device}, is over the limit of {limit} by {over}");
            Failure::at_peak(&head, held.measured, held.needed(), device)
        };
        held.at_most(limit, on.device, over, || format!("the peak{of} is within the limit of {}", Bytes(limit)))
    }

    #[doc(hidden)]
    pub fn begin(&self) -> Result<OpenMeasure, Failure> {
        own(|| self.parsed())?;
        Ok(OpenMeasure::begin(self.counted.whole_process)?)
    }
}

/// Compares a measurement with a limit in bytes.
///
/// # Errors
/// If its peak exceeds the limit, if the verdict is undecided, or if the device's memory cannot be seen.
#[track_caller]
pub fn check_peak(limit: u64, measured: &Measured) -> Result<(), Failure> {
    PeakLimit::new().limit(limit).check(measured)
}
