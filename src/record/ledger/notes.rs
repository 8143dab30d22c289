//! What a ledger notes beside allocs and frees: names, scopes, segments, refused requests.

use memtrace_core::snapshot::{ContextId, Mark, OutOfMemory, ThreadId};

use super::Ledger;
use super::names::BlockLabel;
use super::segments::{QueryTicket, SegmentAnswer, Segments};
use crate::record::event_site::EventSite;

impl Ledger {
    /// Counts and stores a refused allocation, at the current time.
    pub(crate) fn refused(&mut self, oom: OutOfMemory) {
        self.note_retry(oom.size, oom.thread);
        self.last_refused = Some((oom.thread, oom.size));
        self.num_ooms += 1;
        let time_ns = self.now();
        self.ooms.push(OutOfMemory { time_ns, ..oom });
    }

    /// If the thread's last request was refused and had the same size, counts the new request as a retry.
    pub(super) fn note_retry(&mut self, size: u64, thread: ThreadId) {
        if let Some((_, bytes)) = self.last_refused.take_if(|(refused, _)| *refused == thread) {
            self.num_alloc_retries += u64::from(bytes == size);
        }
    }

    /// Names a live block. False if there is no live block at the address, or no room for the name.
    pub(crate) fn name(&mut self, address: u64, label: BlockLabel<'_>) -> bool {
        let Some(seq) = self.live.get(address).map(|block| block.raw_seq()) else { return false };
        if self.names.is_full() && !self.names.has(seq) {
            let (live, at_peak) = (&self.live, self.peak.freed_since());
            let is_live = |seq, address| live.get(address).is_some_and(|block| block.raw_seq() == seq);
            // Blocks that are neither live nor in the peak can only be in the log: their names may be
            // forgotten.
            self.names.make_room(|seq, address| is_live(seq, address) || at_peak.binary_search(&seq).is_ok());
        }
        self.names.give(seq, address, label)
    }

    pub(crate) fn enter_scope(&mut self, instance: u64, context: ContextId, thread: ThreadId) {
        self.windows.enter(instance, context, self.total_for_scopes());
        self.mark(context, thread, true);
    }

    pub(crate) fn exit_scope(&mut self, instance: u64, context: ContextId, thread: ThreadId) {
        if self.windows.exit(instance, self.total_for_scopes()) {
            self.mark(context, thread, false);
        }
    }

    fn mark(&mut self, context: ContextId, thread: ThreadId, enter: bool) {
        let time_ns = self.now();
        self.marks.push(Mark { time_ns, context, thread, enter });
    }

    /// Adds the segment of a block that is about to be entered. Returns whether the reserved bytes grew.
    pub(crate) fn segment(&mut self, answer: SegmentAnswer, ticket: QueryTicket, site: EventSite) -> bool {
        let time_ns = self.now();
        let live = self.live.iter();
        self.segments.as_mut().is_some_and(|segments| segments.add(answer, ticket, live, time_ns, site))
    }

    /// Calls `change` with the segments and the current time, if the driver reports any segments.
    pub(crate) fn change_segments(&mut self, change: impl FnOnce(&mut Segments, u64)) {
        let time_ns = self.now();
        if let Some(segments) = &mut self.segments {
            change(segments, time_ns);
        }
    }
}
