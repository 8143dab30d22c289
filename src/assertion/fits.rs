//! Assertion that code fits on a GPU.

use std::fmt::Write as _;

use memtrace_core::analysis::{Card, Fit, FitVerdict};
use memtrace_core::report::fit_line;
use memtrace_core::snapshot::Device;
use memtrace_core::units::Bytes;
use memtrace_core::{DeviceView, Recording, export};

use super::failure::{Failure, ROWS};
use super::recorded::OpenRecording;
use crate::device::IntoDevice;
use crate::error::Error;
use crate::record::guard::Own;
use crate::record::own;
use crate::session::{IntoBytes, Snapshot};

/// A GPU that some code must fit on; the assertion behind [`assert_fits!`](crate::assert_fits).
///
/// It records the whole process while the code runs, so other tests must not use the same GPU meanwhile. Assertions of
/// several threads take turns. The memory that the code asks for is exact, on a simulated GPU, too. The memory that
/// CUDA takes in addition is a range, and its upper end counts. `cargo memtrace fit` prints the same rows, and
/// docs/fit.md has their sources.
///
/// ```no_run
/// # fn forward() {}
/// memtrace::Fits::on("RTX 4090").reserve("1 GiB").run(forward)?;
/// # Ok::<(), memtrace::Failure>(())
/// ```
#[derive(Debug)]
#[must_use = "an assertion checks nothing until `run`"]
pub struct Fits {
    card: Own<String>,
    reserve: Option<Result<u64, Error>>,
    device: Option<Device>,
}

impl Fits {
    /// A card by name, such as `"RTX 4090"`, or by its memory as CUDA reports it, such as `"22.5 GiB"`.
    pub fn on(card: impl AsRef<str>) -> Self {
        Self { card: Own::make(|| card.as_ref().to_owned()), reserve: None, device: None }
    }

    /// What other processes and the display use of the card: text like `"1 GiB"`, or bytes.
    pub fn reserve(self, bytes: impl IntoBytes) -> Self {
        Self { reserve: Some(own(|| bytes.into_bytes())), ..self }
    }

    /// Checks this device (default: each GPU that was used).
    pub fn device(self, device: impl IntoDevice) -> Self {
        Self { device: Some(device.into_device()), ..self }
    }

    /// Runs `f` and judges what it and the process needed.
    ///
    /// # Errors
    /// If the needed memory does not fit, or if the verdict is undecided because the card's memory lies between the
    /// least and the most that may be needed. Also if the card is not known, another session is active, or no GPU
    /// memory was recorded.
    pub fn run<T>(&self, f: impl FnOnce() -> T) -> Result<T, Failure> {
        let open = self.begin()?;
        let value = f();
        self.end(open)?;
        Ok(value)
    }

    #[doc(hidden)]
    pub fn begin(&self) -> Result<OpenRecording, Failure> {
        own(|| self.parsed().map(drop))?;
        OpenRecording::begin(|builder| builder)
    }

    #[doc(hidden)]
    pub fn end(&self, open: OpenRecording) -> Result<(), Failure> {
        let snapshot = open.end();
        own(|| self.judge(&snapshot))
    }

    /// The card, and what others use of it.
    fn parsed(&self) -> Result<(Card, u64), Error> {
        let name = self.card.as_str();
        let by_size = || memtrace_core::parse_bytes(name).ok().map(|memory| Card::of_memory(name, memory));
        let card = Card::named(name)
            .or_else(by_size)
            .ok_or_else(|| Error::wrong(format!("no card {name:?} is known; give its memory, such as \"22.5 GiB\"")))?;
        Ok((card, self.reserve.clone().transpose()?.unwrap_or(0)))
    }

    fn judge(&self, snapshot: &Snapshot) -> Result<(), Failure> {
        let (card, reserve) = self.parsed()?;
        let recording = Recording::new(snapshot);
        let is_asked = |on: &&DeviceView<'_>| self.device.is_none_or(|device| on.device == device);
        let gpus = recording.devices().iter().filter(|on| matches!(on.device, Device::Cuda(_)) && on.peak.total() > 0);
        let gpus: Vec<_> = gpus.filter(is_asked).collect();
        if gpus.is_empty() {
            return Err(Error::wrong(
                "no memory of a GPU was recorded, so nothing would be checked; open it in the code",
            )
            .into());
        }
        for on in gpus {
            if let Some(why) = Fit::doubt(on) {
                return Err(Failure::unknown(&format!("{card} on {}: {why}", on.device, card = card.name)));
            }
            let fit = Fit::of(on, card.clone()).with("other processes, display", reserve);
            match fit.verdict() {
                FitVerdict::Fits(..) => {}
                FitVerdict::DoesNotFit(..) => return Err(Failure::of_snapshot(&text_of(&fit, on, snapshot), snapshot)),
                FitVerdict::Undecided(..) => return Err(Failure::unknown(&text_of(&fit, on, snapshot))),
            }
        }
        Ok(())
    }
}

/// The verdict, the rows of the need, and what was live at the peak.
fn text_of(fit: &Fit, on: &DeviceView<'_>, snapshot: &Snapshot) -> String {
    let mut text = format!("{} on {}\n", fit_line(fit), on.device);
    for row in &fit.rows {
        let (low, high) = (Bytes(row.low).to_string(), Bytes(row.high).to_string());
        _ = writeln!(text, "{low:>12} {high:>12}  {}: {}", row.what, row.known_by);
    }
    text + "\n" + export::at_peak(snapshot, on.device, ROWS).trim_end()
}
