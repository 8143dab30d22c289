//! Comparison of a measured peak with a limit in bytes.

use std::cell::OnceCell;

use memtrace_core::snapshot::Device;

use super::failure::Failure;
use super::measure::Measured;
use super::setup::Needed;
use super::undecided::{CountedWork, Undecided};
use crate::session::say;

/// A measurement, with a snapshot that is made only if the verdict depends on it.
#[derive(Debug)]
pub(super) struct PeakCheck<'a> {
    pub(super) measured: &'a Measured,
    pub(super) counted: CountedWork,
    needed: OnceCell<Needed>,
}

impl<'a> PeakCheck<'a> {
    pub(super) fn new(measured: &'a Measured, counted: CountedWork) -> Self {
        Self { measured, counted, needed: OnceCell::new() }
    }

    /// The measurement without one-time initialization.
    pub(super) fn needed(&self) -> &Needed {
        self.needed.get_or_init(|| Needed::of(self.measured))
    }

    /// Fails if the peak exceeds the limit. One-time initialization does not count. The verdict is undecided if it
    /// depends on work that other threads may have done for the code. `over` makes the failure for a peak over the
    /// limit. `within` makes the text for an undecided verdict, which says what holds without that work.
    pub(super) fn at_most(
        &self,
        limit: u64,
        device: Device,
        over: impl FnOnce(u64) -> Failure,
        within: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        let mut peak = self.measured.device(device).peak;
        if peak > limit {
            peak = self.needed().peak(device);
            if peak > limit {
                return Err(over(peak));
            }
            say(&self.needed().setup().unwrap_or_default());
        }
        self.decided(peak, limit, device, within)
    }

    /// Fails if work that other threads may have done for the code could make this peak exceed the limit.
    pub(super) fn decided(
        &self,
        peak: u64,
        limit: u64,
        device: Device,
        within: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        let others = self.measured.helpers().iter().filter(|helper| helper.device == device);
        let handed = self.measured.handed().iter().filter(|on| on.device == device).map(|on| on.ledger.peak.bytes);
        if peak.saturating_add(others.map(|helper| helper.bytes).chain(handed).sum()) <= limit {
            return Ok(());
        }
        let undecided = Undecided::of(self.measured, Some(device), self.counted);
        if peak.saturating_add(undecided.bytes()) <= limit {
            return Ok(());
        }
        Err(Failure::undecided(&within(), &undecided))
    }
}
