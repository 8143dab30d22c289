//! What was measured, to be held against a number of bytes.

use std::cell::OnceCell;

use super::failure::Failure;
use super::measure::Measured;
use super::setup::Needed;
use super::undecided::{Counted, Undecided};
use crate::session::say;
use crate::snapshot::Device;

/// A measurement. Names of functions are asked for only where they matter.
#[derive(Debug)]
pub(super) struct Held<'a> {
    pub(super) measured: &'a Measured,
    pub(super) counted: Counted,
    needed: OnceCell<Needed>,
}

impl<'a> Held<'a> {
    pub(super) fn new(measured: &'a Measured, counted: Counted) -> Self {
        Self { measured, counted, needed: OnceCell::new() }
    }

    /// Without what was made once.
    pub(super) fn needed(&self) -> &Needed {
        self.needed.get_or_init(|| Needed::of(self.measured))
    }

    /// Holds the peak against a limit: what was made once does not count, and what other threads may have done for the
    /// code makes it undecided. `over` is called with the bytes that are too many, `within` says what holds otherwise.
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
        let shared = self.measured.helpers().iter().filter(|helper| helper.shares && helper.device == device);
        let handed = self.measured.handed().iter().filter(|on| on.device == device).map(|on| on.ledger.peak.bytes);
        if peak.saturating_add(shared.map(|helper| helper.bytes).chain(handed).sum()) <= limit {
            return Ok(());
        }
        let undecided = Undecided::of(self.measured, Some(device), self.counted);
        if peak.saturating_add(undecided.bytes()) <= limit {
            return Ok(());
        }
        Err(Failure::undecided(&within(), &undecided))
    }
}
