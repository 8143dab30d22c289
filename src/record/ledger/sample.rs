//! A ledger that holds a sample of the small blocks: its totals are what is counted, and its blocks only share them out.

use super::{Flow, Ledger, LedgerOptions};
use crate::record::census::Census;
use crate::record::peak::Moment;
use crate::snapshot::Block;

/// What such a ledger knows besides.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample {
    /// What the live blocks of the sample stand for, by their sizes alone.
    estimate: u64,
    /// Bytes live when the recording began.
    pub(super) before: u64,
    /// Of these, the ones in small blocks: they are in no sample, and nobody can tell when one of them is freed.
    pub(super) small_before: u64,
    /// At the peak.
    at_peak: Census,
}

impl Sample {
    pub(super) fn beginning_with(census: Census) -> Self {
        Self { estimate: 0, before: census.all, small_before: census.small(), at_peak: census }
    }

    /// The log begins anew; what was live when the recording began is what it was, as far as it can still be there.
    pub(super) fn begin_anew(&mut self, census: Census) {
        (self.small_before, self.at_peak) = (self.small_before.min(census.small()), census);
    }

    /// A block was live at the peak that was taken for freed; `estimate` is what it stands for, if it is of the sample.
    pub(super) fn add_to_peak(&mut self, size: u64, estimate: u64) {
        let Census { all, large, estimate: sampled, .. } = &mut self.at_peak;
        *all = all.saturating_add(size);
        *large = large.saturating_add(if estimate == 0 { size } else { 0 });
        *sampled = sampled.saturating_add(estimate);
    }
}

impl LedgerOptions {
    /// What is counted now without the ledger's blocks.
    pub(super) fn census(&self) -> Census {
        let ask = self.outside.zip(self.sampling.interval());
        let (small, large_before) = ask.map_or((0, 0), |(ask, interval)| ask(self.min_size, interval));
        Census { all: small.saturating_add(large_before), large_before, ..Census::default() }
    }
}

impl Ledger {
    /// What is counted now, if a sample is recorded.
    pub(super) fn census(&self) -> Census {
        if !self.options.sampling.is_on() {
            return Census::default();
        }
        let (outside, estimate) = (self.options.census(), self.sample.estimate);
        let large = self.live_flow.bytes.saturating_sub(estimate);
        Census { all: outside.all.saturating_add(self.real_bytes), large, estimate, ..outside }
    }

    /// What was counted at the peak; what its blocks stand for that are still known.
    pub(super) fn census_at_peak(&self) -> Census {
        let (lost, of_sample) = (self.peak.lost, self.peak.lost_of_sample);
        self.sample.at_peak.without(lost.saturating_sub(of_sample), of_sample)
    }

    /// Bytes live relative to the start of the recording.
    pub(super) fn total(&self) -> i64 {
        self.total_of(&self.census())
    }

    /// The same as it is seen where a scope begins or ends: no more than the peak, which is looked for elsewhere.
    pub(super) fn total_for_scopes(&self) -> i64 {
        self.total().min(self.peak.total)
    }

    pub(super) fn total_of(&self, census: &Census) -> i64 {
        if self.options.sampling.is_on() {
            (census.all as i64).wrapping_sub(self.sample.before as i64)
        } else {
            self.recorded_total()
        }
    }

    /// Bytes that were live when a recording of a sample began.
    pub(crate) fn counted_before(&self) -> u64 {
        self.sample.before
    }

    /// As `after_alloc`. Blocks come here seldom: most are not in the sample.
    #[cold]
    #[inline(never)]
    pub(super) fn after_counted_alloc(&mut self, block: &Block, flow: Flow) {
        let census = self.census();
        let now = self.count_alloc(block, flow, self.total_of(&census));
        self.new_peak(now, census);
    }

    /// If this is one.
    pub(super) fn new_peak(&mut self, now: Moment, census: Census) {
        let options = self.options;
        if self.peak.after_alloc(now, || options.below_threshold()) {
            self.sample.at_peak = census;
        }
    }

    /// What a new block of the sample stands for.
    #[cold]
    #[inline(never)]
    pub(super) fn sampled_in(&mut self, size: u64) -> Flow {
        let flow = Flow::of(self.options.sampling, size);
        self.sample.estimate = self.sample.estimate.saturating_add(flow.bytes);
        flow
    }

    /// The same of one that goes.
    #[cold]
    #[inline(never)]
    pub(super) fn sampled_out(&mut self, size: u64) -> Flow {
        let flow = Flow::of(self.options.sampling, size);
        self.sample.estimate = self.sample.estimate.saturating_sub(flow.bytes);
        flow
    }
}
