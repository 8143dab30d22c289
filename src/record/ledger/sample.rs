//! A ledger under Poisson sampling. Exact totals come from the untraced counters plus the recorded blocks. The sample
//! only says how the total is divided between sites. The total is compared with the peak only when a block is recorded.

use memtrace_core::snapshot::Block;

use super::peak::PeakMoment;
use super::totals::Totals;
use super::{Ledger, LedgerOptions, WeightSum};

/// Additional state under sampling.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::record) struct SampleTotals {
    /// Weight of the live sampled blocks, computed from their sizes.
    estimate: u64,
    /// Bytes that were live when the recording began.
    pub(in crate::record) before: u64,
    /// The part of `before` in blocks below the sampling interval. None of them is in the sample, and their frees
    /// cannot be recognised.
    pub(super) small_before: u64,
    /// Counts at the peak.
    at_peak: Totals,
}

impl SampleTotals {
    pub(super) fn beginning_with(census: Totals) -> Self {
        Self { estimate: 0, before: census.all, small_before: census.small(), at_peak: census }
    }

    /// Restarts the log. Small blocks from before the recording can only have become fewer.
    pub(super) fn restart(&mut self, census: Totals) {
        self.small_before = self.small_before.min(census.small());
        self.at_peak = census;
    }

    /// Adds a block to the counts at the peak: its free had been logged before the peak, but failed. `estimate` is the
    /// block's weight if the block was sampled, else 0.
    pub(super) fn add_to_peak(&mut self, size: u64, estimate: u64) {
        let Totals { all, large, estimate: sampled, .. } = &mut self.at_peak;
        *all = all.saturating_add(size);
        *large = large.saturating_add(if estimate == 0 { size } else { 0 });
        *sampled = sampled.saturating_add(estimate);
    }
}

impl LedgerOptions {
    /// Current counts of the blocks outside the ledger.
    pub(super) fn census(&self) -> Totals {
        let ask = self.outside.zip(self.sampling.interval());
        let (small, large_before) = ask.map_or((0, 0), |(ask, interval)| ask(self.min_size, interval));
        Totals { all: small.saturating_add(large_before), large_before, ..Totals::default() }
    }
}

impl Ledger {
    /// Current counts of the device; zeros without sampling.
    pub(super) fn census(&self) -> Totals {
        if !self.options.sampling.is_on() {
            return Totals::default();
        }
        let (outside, estimate) = (self.options.census(), self.sample.estimate);
        let large = self.live_flow.bytes.saturating_sub(estimate);
        Totals { all: outside.all.saturating_add(self.real_bytes), large, estimate, ..outside }
    }

    /// Counts at the peak, without the blocks that could not be kept.
    pub(super) fn census_at_peak(&self) -> Totals {
        let (lost, of_sample) = (self.peak.lost, self.peak.lost_of_sample);
        self.sample.at_peak.without(lost.saturating_sub(of_sample), of_sample)
    }

    /// Live bytes relative to the start of the recording.
    pub(super) fn total(&self) -> i64 {
        self.total_of(&self.census())
    }

    /// The [`total`](Self::total) for a scope that opens or closes. It is at most the peak: blocks that the sample left
    /// out may have raised the total above the peak without being compared with it.
    pub(super) fn total_for_scopes(&self) -> i64 {
        self.total().min(self.peak.at.total)
    }

    pub(super) fn total_of(&self, census: &Totals) -> i64 {
        if self.options.sampling.is_on() {
            (census.all as i64).wrapping_sub(self.sample.before as i64)
        } else {
            self.recorded_total()
        }
    }

    /// `after_alloc` of a sampled recording. Out of line, because most blocks are not recorded.
    #[cold]
    #[inline(never)]
    pub(super) fn after_counted_alloc(&mut self, block: &Block, flow: WeightSum) {
        let census = self.census();
        let now = self.count_alloc(block, flow, self.total_of(&census));
        self.new_peak(now, census);
    }

    pub(super) fn new_peak(&mut self, now: PeakMoment, census: Totals) {
        let options = self.options;
        if self.peak.after_alloc(now, || options.below_threshold()) {
            self.sample.at_peak = census;
        }
    }

    /// Returns the weight of a sampled block, and adds it to the estimate: the block is being allocated.
    #[cold]
    #[inline(never)]
    pub(super) fn sampled_in(&mut self, size: u64) -> WeightSum {
        let flow = WeightSum::of(self.options.sampling, size);
        self.sample.estimate = self.sample.estimate.saturating_add(flow.bytes);
        flow
    }

    /// Returns the weight of a sampled block, and subtracts it from the estimate: the block is being freed.
    #[cold]
    #[inline(never)]
    pub(super) fn sampled_out(&mut self, size: u64) -> WeightSum {
        let flow = WeightSum::of(self.options.sampling, size);
        self.sample.estimate = self.sample.estimate.saturating_sub(flow.bytes);
        flow
    }
}
