//! Undo of frees that were logged and then refused.
//!
//! A free is entered before the driver is called. Otherwise blocks of other threads that reuse the memory would make
//! the peak too high. If the driver refuses, the refusal is logged (`Record::again`), and readers leave out both
//! records, the free's and the refusal's. The ledger then searches the log for a peak that it missed while the block
//! counted as freed.

use memtrace_core::snapshot::{Block, Record, RecordKind, ThreadId};

use super::live::{Entered, LiveBlock};
use super::peak::PeakMoment;
use super::{Ledger, WeightSum};
use crate::record::memory::{OwnVec, System, try_push, with_room};

/// Number of the newest records that are first searched for the free; each further search covers eight times as
/// many.
const FIRST_LOOK: u64 = 64;

/// A heap free as the CPU's ledger saw it. It is used to undo the free.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LedgerFree {
    /// The ledger had the block, in the recording with this epoch.
    Recorded(LiveBlock, u64),
    /// The block is from before the recording with this epoch. The free was logged, and the block was subtracted
    /// from the untraced counters.
    FromBefore(u64),
    /// Blocks of this size are not recorded, or the sample left this block out.
    NotRecorded,
    /// The ledger has not seen the free yet. If this thread may undo the free, the ledger will keep what that needs.
    Waiting(ThreadId),
}

impl Ledger {
    /// Keeps the data to undo this thread's last free, which waited for the ledger's lock.
    pub(crate) fn keep_free(&mut self, thread: ThreadId, freed: LedgerFree) {
        if self.kept_frees.try_reserve(1).is_ok() {
            self.kept_frees.insert(thread, freed);
        }
    }

    /// Takes the data to undo this thread's last free.
    pub(crate) fn kept_free(&mut self, thread: ThreadId) -> Option<LedgerFree> {
        self.kept_frees.remove(&thread)
    }

    /// Puts the block of a refused free back; false if that was not possible. Also searches for a peak that the
    /// device missed, but not for peaks that single scopes missed.
    pub(crate) fn undo_free(&mut self, block: &Block) -> bool {
        if self.live.enter(&LiveBlock::of(block)) != Entered::New {
            self.lost_blocks += 1;
            return false;
        }
        let flow = self.flow_in(block.size);
        self.live_flow.add(flow);
        self.frees.subtract(flow);
        self.real_bytes += block.size;
        if let Some(segments) = &mut self.segments {
            segments.on_alloc(block.address, block.size);
        }
        self.windows.take_back(block.context, flow.bytes);
        if !self.peak.take_back(block, flow.bytes) && block.raw_seq() <= self.peak.at.seq {
            // A new peak was found since the free, and this block was missing from it.
            self.add_to_peak(block.size, flow);
        }
        self.look_back(block);
        self.end_undo(block);
        true
    }

    /// [`undo_free`](Self::undo_free) for a block from before the recording.
    pub(crate) fn undo_free_unknown(&mut self, address: u64, size: u64) {
        self.unknown = self.unknown.saturating_sub(size);
        let block = Block { address, size, ..Block::default() };
        self.look_back(&block);
        self.end_undo(&block);
    }

    fn end_undo(&mut self, block: &Block) {
        self.peak.corrections += 1;
        if self.logs_frees() {
            self.refused_frees += 1;
            self.records.again(block, self.options.stacks_in_log);
        }
        let census = self.census();
        let total = self.total_of(&census);
        self.note_total(total, total);
        let now = PeakMoment { total, seq: self.seq, time_ns: self.now(), unknown_freed: self.unknown };
        self.new_peak(now, census);
    }

    fn note_total(&mut self, total: i64, in_open_scopes: i64) {
        self.stat_peak = self.stat_peak.max(total);
        self.windows.note_total(in_open_scopes);
    }

    /// Searches the log for the largest total since this block's free, with the block counted as live. That total
    /// may be a new peak.
    fn look_back(&mut self, block: &Block) {
        let Some(since) = self.since_free(block) else { return };
        let scopes_since = self.marks.newest().map_or(0, |mark| mark.time_ns);
        let (mut total, mut unknown_freed) = (self.recorded_total(), self.unknown);
        let (mut largest, mut in_open_scopes) = (None::<(usize, PeakMoment)>, i64::MIN);
        for (index, record) in since.iter().enumerate().rev() {
            let size = record.size as i64;
            if record.kind == RecordKind::Free {
                unknown_freed -= if record.alloc_seq.is_none() { record.size } else { 0 };
                total += size;
                continue;
            }
            if record.time_ns >= scopes_since {
                in_open_scopes = in_open_scopes.max(total);
            }
            if largest.as_ref().is_none_or(|(_, moment)| total >= moment.total) {
                let (seq, time_ns) = (record.raw_seq(), record.time_ns);
                largest = Some((index, PeakMoment { total, seq, time_ns, unknown_freed }));
            }
            total -= size;
        }
        if let Some((index, moment)) = largest {
            self.note_total(moment.total, in_open_scopes);
            self.raise_peak(moment, since.get(index..).unwrap_or_default());
        }
    }

    /// Moves the peak to this moment if the moment's total is higher. `since` are its record and those after it.
    fn raise_peak(&mut self, moment: PeakMoment, since: &[Record]) {
        if moment.total <= self.peak.at.total {
            return;
        }
        let (seq, mut freed) = (moment.seq, OwnVec::new_in(System));
        let is_of_peak = |record: &&Record| record.kind == RecordKind::Free && (1..=seq).contains(&record.raw_seq());
        let mut lost = 0;
        for free in since.iter().filter(is_of_peak) {
            lost += if try_push(&mut freed, self.block_before(free)) { 0 } else { free.size };
        }
        let options = self.options;
        self.peak.move_to(moment, freed, lost, || options.below_threshold());
    }

    /// The freed block, completed from the record of its alloc if that is still known.
    fn block_before(&self, free: &Record) -> Block {
        let known = self.peak.freed().find(|block| block.seq == free.alloc_seq);
        known.unwrap_or_else(|| {
            let is_alloc = |record: &Record| record.kind == RecordKind::Alloc && record.alloc_seq == free.alloc_seq;
            self.records.since(0).1.flatten().find(is_alloc).unwrap_or(*free).block()
        })
    }

    /// The records since the free of this block, oldest first. `None` if some are missing, or if there is no memory.
    fn since_free(&self, block: &Block) -> Option<OwnVec<Record>> {
        if self.options.sampling.is_on() {
            return None;
        }
        let (end, mut look) = (self.records.end(), FIRST_LOOK);
        let is_free = |record: &Record| {
            record.kind == RecordKind::Free && (record.address, record.alloc_seq) == (block.address, block.seq)
        };
        loop {
            let (gone, records) = self.records.since(end.saturating_sub(look));
            let mut since = OwnVec::new_in(System);
            for record in records {
                since.try_reserve(1).ok()?;
                since.push(record?);
            }
            if let Some(free) = since.iter().rposition(is_free) {
                since.drain(..=free);
                return without_refused(since);
            }
            if gone > 0 || look >= end {
                return None;
            }
            look = look.saturating_mul(8);
        }
    }

    fn add_to_peak(&mut self, size: u64, flow: WeightSum) {
        if self.stat_peak == self.peak.at.total {
            self.stat_peak += size as i64;
        }
        self.peak.at.total += size as i64;
        let is_sampled = self.samples(size);
        self.sample.add_to_peak(size, if is_sampled { flow.bytes } else { 0 });
    }
}

/// The records without refused frees, and without the records of their refusals. `None` if there is no memory.
fn without_refused(records: OwnVec<Record>) -> Option<OwnVec<Record>> {
    let (mut waiting, mut kept) = (OwnVec::new_in(System), with_room(records.len())?);
    for record in records.iter().rev() {
        if let Some(block) = record.refused() {
            if !try_push(&mut waiting, (block.address, block.seq)) {
                return None;
            }
            continue;
        }
        let key = (record.address, record.alloc_seq);
        match waiting.iter().position(|known| *known == key && record.kind == RecordKind::Free) {
            Some(at) => _ = waiting.swap_remove(at),
            None => kept.push(*record),
        }
    }
    kept.reverse();
    Some(kept)
}
