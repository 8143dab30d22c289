//! The time of an event: now, or a moment before the event waited for the ledger's lock.

use super::options::LedgerOptions;
use crate::record::clock::Clock;

pub(crate) trait Moment {
    fn time(&self, clock: &mut Clock) -> u64;

    /// Bytes below the threshold at that moment.
    fn below_threshold(&self, options: &LedgerOptions) -> u64;
}

pub(crate) struct Now;

impl Moment for Now {
    #[inline(always)]
    fn time(&self, clock: &mut Clock) -> u64 {
        clock.now()
    }

    fn below_threshold(&self, options: &LedgerOptions) -> u64 {
        options.below_threshold()
    }
}

/// A moment before the event started to wait for the lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Earlier {
    /// Value of the processor's time counter.
    pub(crate) ticks: u64,
    /// Bytes below the threshold. They are given only if the event may make a new peak.
    pub(crate) below_threshold: Option<u64>,
}

impl Moment for Earlier {
    #[inline(always)]
    fn time(&self, clock: &mut Clock) -> u64 {
        clock.at(self.ticks)
    }

    fn below_threshold(&self, options: &LedgerOptions) -> u64 {
        self.below_threshold.unwrap_or_else(|| options.below_threshold())
    }
}
