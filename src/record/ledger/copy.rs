//! Copies of a ledger, at several levels of detail.

use std::num::NonZeroU64;

use memtrace_core::snapshot::{
    Block, BlockName, CallTime, Counted, GraphNode, Mark, MemoryStats, OutOfMemory, Peak, Record, Sampling, ScopeStats,
    Segment, SegmentRecord, Stat, leave_out, positions, refused_frees,
};

use super::Ledger;
use super::segments::Segments;
use super::totals::Totals;
#[cfg(feature = "metrics")]
use super::windows::ScopeBytes;
use crate::record::ticks;

/// A copy of a ledger in ordinary memory. It uses the recorder's own stack ids.
#[derive(Clone, Debug, Default)]
pub(crate) struct LedgerCopy {
    pub(crate) records: Vec<Record>,
    pub(crate) overwritten: u64,
    pub(crate) live: Vec<Block>,
    /// Live bytes that no recorded block accounts for.
    pub(crate) not_recorded: u64,
    pub(crate) peak: Peak,
    pub(crate) peak_corrections: u64,
    pub(crate) stats: MemoryStats,
    pub(crate) scopes: Vec<ScopeStats>,
    pub(crate) marks: Vec<Mark>,
    pub(crate) ooms: Vec<OutOfMemory>,
    pub(crate) segments: Vec<Segment>,
    pub(crate) segment_records: Vec<SegmentRecord>,
    pub(crate) calls: Vec<CallTime>,
    pub(crate) names: Vec<BlockName>,
    pub(crate) lost_names: u64,
    pub(crate) graph_nodes: Vec<GraphNode>,
    pub(crate) duration_ns: u64,
    pub(crate) lost_blocks: u64,
    pub(crate) missed_frees: u64,
    pub(crate) lost_scopes: u64,
}

impl Ledger {
    /// `base`, here and below, is the number of bytes that were live when the recording began.
    pub(crate) fn stats(&self, base: u64) -> MemoryStats {
        self.look(base).0
    }

    /// The counters, and the live bytes that no recorded block accounts for, both at the same moment.
    pub(super) fn look(&self, base: u64) -> (MemoryStats, u64) {
        let census = self.census();
        let not_recorded = match self.options.sampling.is_on() {
            true => census.not_recorded(self.sample.small_before),
            false => base.saturating_sub(self.unknown),
        };
        (self.stats_of(base, &census), not_recorded)
    }

    fn stats_of(&self, base: u64, census: &Totals) -> MemoryStats {
        let total = self.total_of(census);
        let bytes = Stat {
            current: base.saturating_add_signed(total),
            // Blocks that the sample left out may have raised the total unnoticed.
            peak: base.saturating_add_signed(self.stat_peak.max(total)),
            allocated: self.allocs.bytes,
            freed: self.frees.bytes + self.unknown.saturating_sub(self.unknown_before),
        };
        let allocations = Stat {
            current: Sampling::whole(self.live_flow.parts),
            peak: Sampling::whole(self.stat_peak_parts),
            allocated: Sampling::whole(self.allocs.parts),
            freed: Sampling::whole(self.frees.parts),
        };
        MemoryStats {
            allocated_bytes: bytes,
            active_bytes: bytes,
            reserved_bytes: self.segments.as_ref().and_then(Segments::reserved).unwrap_or(bytes),
            allocations,
            num_ooms: self.num_ooms,
            num_alloc_retries: self.num_alloc_retries,
            below_threshold: 0,
            counted: self.options.sampling.is_on().then(|| Counted {
                now: census.all,
                at_peak: self.census_at_peak().all,
                before: self.sample.small_before,
            }),
        }
    }

    pub(crate) fn copy(&self, base: u64) -> LedgerCopy {
        let (records, overwritten) = self.copy_records();
        let (names, lost_names) = self.names.copy();
        LedgerCopy {
            names,
            lost_names,
            graph_nodes: self.graph_nodes.in_order().copied().collect(),
            overwritten,
            records,
            marks: self.marks.in_order().copied().collect(),
            segment_records: self.segments.iter().flat_map(|known| known.log().in_order()).copied().collect(),
            ..self.copy_state(base)
        }
    }

    /// A copy without the log.
    pub(crate) fn copy_state(&self, base: u64) -> LedgerCopy {
        let mut live: Vec<Block> = self.live.iter().collect();
        live.sort_unstable_by_key(|block| block.seq);
        LedgerCopy { live, peak: self.copy_peak(base), ..self.copy_scopes(base) }
    }

    /// A copy without the log and the blocks.
    pub(crate) fn copy_scopes(&self, base: u64) -> LedgerCopy {
        LedgerCopy {
            scopes: self.windows.stats(base),
            calls: self.calls.copy(ticks::to_ns()),
            ..self.copy_counters(base)
        }
    }

    #[cfg(feature = "metrics")]
    pub(crate) fn scope_bytes(&self) -> Vec<ScopeBytes> {
        self.windows.bytes().collect()
    }

    /// The maximum of live bytes since the scope with this instance number was entered.
    #[cfg(feature = "tracing")]
    pub(crate) fn peak_since(&self, instance: u64, base: u64) -> Option<u64> {
        self.windows.largest_since(instance).map(|largest| base.saturating_add_signed(largest))
    }

    /// A copy of the counters, without the log, the blocks, the scopes and the driver's times.
    pub(crate) fn copy_counters(&self, base: u64) -> LedgerCopy {
        let (stats, not_recorded) = self.look(base);
        LedgerCopy {
            not_recorded,
            peak: self.peak_numbers(base),
            peak_corrections: self.peak.corrections,
            stats,
            ooms: self.ooms.in_order().copied().collect(),
            segments: self.segments.iter().flat_map(Segments::current).collect(),
            duration_ns: self.clock.peek(),
            lost_blocks: self.lost_blocks,
            missed_frees: self.missed_frees,
            lost_scopes: self.windows.lost,
            ..LedgerCopy::default()
        }
    }

    /// The log, and how many records it has lost. The log is empty if there is no memory for the copy, because lack of
    /// memory must not end the program.
    fn copy_records(&self) -> (Vec<Record>, u64) {
        let mut records = Vec::new();
        if records.try_reserve_exact(self.records.len()).is_ok() {
            records.extend(self.records.since(0).1.flatten());
        }
        let pushed = self.records.end();
        let refused = positions(&refused_frees(&records));
        leave_out(&mut records, &refused);
        // A refused free left two records (the free and its undoing) in the log. Neither counts as lost.
        let gone = pushed.saturating_sub(2 * self.refused_frees + records.len() as u64);
        (records, gone)
    }

    fn copy_peak(&self, base: u64) -> Peak {
        Peak { blocks: self.peak.live_set(self.live.iter()), ..self.peak_numbers(base) }
    }

    pub(super) fn peak_numbers(&self, base: u64) -> Peak {
        let not_recorded = match self.options.sampling.is_on() {
            true => self.census_at_peak().not_recorded(self.sample.small_before),
            false => base.saturating_sub(self.peak.at.unknown_freed) + self.peak.lost,
        };
        Peak {
            bytes: base.saturating_add_signed(self.peak.at.total),
            time_ns: self.peak.at.time_ns,
            seq: NonZeroU64::new(self.peak.at.seq),
            blocks: Vec::new(),
            not_recorded,
            below_threshold: self.peak.below_threshold,
        }
    }
}
