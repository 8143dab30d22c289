//! How a ledger enters allocs and frees.

use std::num::NonZeroU64;

use memtrace_core::snapshot::{Block, StackId};

use super::Ledger;
use super::live::{Entered, LiveBlock};
use super::moment::{Moment, Now};
use super::peak::PeakMoment;
use super::weight_sum::WeightSum;
use crate::record::event_site::EventSite;

impl Ledger {
    /// Enters a block; false if there is no memory for it.
    pub(crate) fn alloc(&mut self, address: u64, size: u64, site: EventSite) -> bool {
        self.alloc_at(address, size, site, &Now)
    }

    pub(crate) fn alloc_at(&mut self, address: u64, size: u64, site: EventSite, moment: &impl Moment) -> bool {
        let block = Block {
            address,
            size,
            seq: NonZeroU64::new(self.seq + 1),
            time_ns: moment.time(&mut self.clock),
            stack: site.stack,
            context: site.context,
            thread: site.thread,
            stream: site.stream,
            memory: site.memory,
        };
        match LiveBlock::of(&block) {
            LiveBlock::Packed(words) => self.enter(LiveBlock::Packed(words), block, moment),
            LiveBlock::Whole(block) => self.enter_whole(block, moment),
        }
    }

    #[cold]
    #[inline(never)]
    fn enter_whole(&mut self, block: Block, moment: &impl Moment) -> bool {
        self.enter(LiveBlock::Whole(block), block, moment)
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn enter(&mut self, held: LiveBlock, block: Block, moment: &impl Moment) -> bool {
        let Block { address, size, .. } = block;
        match self.live.enter(&held) {
            Entered::New => {}
            Entered::Taken => return self.alloc_again(&block),
            Entered::NoRoom => {
                self.lost_blocks += 1;
                return false;
            }
        }
        self.seq += 1;
        self.note_retry(size, block.thread);
        if let Some(segments) = &mut self.segments {
            segments.on_alloc(address, size);
        }
        let flow = self.flow_in(size);
        self.live_flow.add(flow);
        self.real_bytes += size;
        self.allocs.add(flow);
        if self.options.max_entries > 0 && !self.options.skip_allocs {
            self.records.alloc(&held, self.options.stacks_in_log);
        }
        self.after_alloc(&block, flow, moment);
        true
    }

    /// Called if the ledger already has a block at the new block's address: the free of that older block was
    /// missed.
    #[cold]
    fn alloc_again(&mut self, block: &Block) -> bool {
        let Block { address, size, stack, context, thread, stream, memory, .. } = *block;
        let site = EventSite { stack, context, thread, stream, memory };
        self.missed_frees += 1;
        self.free(address, EventSite { stack: StackId::NONE, ..site });
        self.alloc(address, size, site)
    }

    /// Frees the block at this address if `seq` is the log position of its alloc.
    pub(crate) fn free_if(&mut self, address: u64, seq: u64, site: EventSite) -> Option<LiveBlock> {
        self.live.get(address).filter(|block| block.raw_seq() == seq)?;
        self.free(address, site)
    }

    pub(crate) fn free(&mut self, address: u64, site: EventSite) -> Option<LiveBlock> {
        self.free_at(address, site, &Now)
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn free_at(&mut self, address: u64, site: EventSite, moment: &impl Moment) -> Option<LiveBlock> {
        // The clock is read first, so that the prefetched slot of the block arrives meanwhile.
        let time_ns = self.time_of_free(moment);
        match self.live.remove_packed(address) {
            Some(words) => Some(self.freed(LiveBlock::Packed(words), &site, time_ns)),
            None => self.free_whole(address, &site, time_ns),
        }
    }

    #[cold]
    #[inline(never)]
    fn free_whole(&mut self, address: u64, site: &EventSite, time_ns: u64) -> Option<LiveBlock> {
        self.live.remove_whole(address).map(|block| self.freed(LiveBlock::Whole(block), site, time_ns))
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn freed(&mut self, held: LiveBlock, site: &EventSite, time_ns: u64) -> LiveBlock {
        let (address, size) = (held.address(), held.size());
        let flow = self.flow_out(size);
        self.live_flow.parts -= flow.parts;
        self.live_flow.bytes -= flow.bytes;
        self.real_bytes -= size;
        self.frees.add(flow);
        if let Some(segments) = &mut self.segments {
            segments.on_free(address, size);
        }
        self.windows.on_free(held.context(), flow.bytes);
        self.peak.after_free(&held, flow.bytes);
        self.log_free(&held, site, time_ns);
        held
    }

    /// Logs the free of a block from before the recording.
    pub(crate) fn free_unknown(&mut self, address: u64, size: u64, site: EventSite) {
        self.free_unknown_at(address, size, site, &Now);
    }

    pub(crate) fn free_unknown_at(&mut self, address: u64, size: u64, site: EventSite, moment: &impl Moment) {
        self.unknown += size;
        let EventSite { stream, memory, .. } = site;
        let block = Block { address, size, stream, memory, ..Block::default() };
        let time_ns = self.time_of_free(moment);
        self.log_free(&LiveBlock::of(&block), &site, time_ns);
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn after_alloc(&mut self, block: &Block, flow: WeightSum, moment: &impl Moment) {
        if self.options.sampling.is_on() {
            return self.after_counted_alloc(block, flow);
        }
        let now = self.count_alloc(block, flow, self.recorded_total());
        let options = self.options;
        self.peak.after_alloc(now, || moment.below_threshold(&options));
    }

    #[inline(always)]
    pub(super) fn count_alloc(&mut self, block: &Block, flow: WeightSum, total: i64) -> PeakMoment {
        self.stat_peak = self.stat_peak.max(total);
        self.stat_peak_parts = self.stat_peak_parts.max(self.live_flow.parts);
        self.windows.on_alloc(block.context, flow, total);
        PeakMoment { total, seq: block.raw_seq(), time_ns: block.time_ns, unknown_freed: self.unknown }
    }

    #[inline(always)]
    pub(super) fn flow_in(&mut self, size: u64) -> WeightSum {
        if self.samples(size) { self.sampled_in(size) } else { WeightSum::one(size) }
    }

    #[inline(always)]
    fn flow_out(&mut self, size: u64) -> WeightSum {
        if self.samples(size) { self.sampled_out(size) } else { WeightSum::one(size) }
    }

    pub(super) fn logs_frees(&self) -> bool {
        self.options.max_entries > 0 && !self.options.skip_frees
    }

    /// The time of a free; 0 if frees are not logged.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn time_of_free(&mut self, moment: &impl Moment) -> u64 {
        if self.logs_frees() { moment.time(&mut self.clock) } else { 0 }
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn log_free(&mut self, held: &LiveBlock, site: &EventSite, time_ns: u64) {
        if self.logs_frees() {
            self.records.free(held, time_ns, site, self.options.stacks_in_log);
        }
    }
}
