//! Splits the log into operator calls, by the rules in the [module documentation](super).

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU64;
use std::ops::Range;

use super::super::log::{Entry, entries};
use super::super::reserved::Reserved;
use super::sites::{Site, Sites};
use crate::recording::DeviceView;
use crate::snapshot::{ContextId, Mark, Record, RecordKind, StackId, ThreadId, Totals, Weight};

#[derive(Clone, Debug, Default)]
pub(crate) struct Call<'a> {
    pub(crate) operator: &'a str,
    pub(crate) is_backward: bool,
    pub(crate) number: u64,
    /// From its first record up to its last. Records in between may belong to other calls.
    pub(crate) records: Range<usize>,
    /// The stack of its first allocation.
    pub(crate) stack: StackId,
    pub(crate) context: ContextId,
    pub(crate) thread: ThreadId,
    pub(crate) begin_ns: u64,
    pub(crate) end_ns: u64,
    /// Weight of its allocations.
    pub(crate) allocations: Weight,
    pub(crate) added: i64,
    pub(crate) before: u64,
    pub(crate) peak: u64,
    /// Position of the record that made the peak.
    pub(crate) peak_at: usize,
    pub(crate) allocated: u64,
    pub(crate) reserved: u64,
}

/// The operator calls of a device, sorted by their last records.
pub(crate) fn calls<'a>(device: &'a DeviceView<'a>) -> Vec<Call<'a>> {
    let mut walk = Walk::of(device);
    let mut marks = device.marks.iter().peekable();
    for (at, entry) in entries(device).enumerate() {
        while let Some(mark) = marks.next_if(|mark| mark.time_ns <= entry.record.time_ns) {
            walk.mark(mark);
        }
        walk.entry(at, &entry);
    }
    let mut calls = walk.calls;
    calls.sort_by_key(|call| call.records.end);
    numbered(calls)
}

fn numbered(mut calls: Vec<Call<'_>>) -> Vec<Call<'_>> {
    let mut numbers: HashMap<(&str, bool), u64> = HashMap::new();
    for call in &mut calls {
        let next = numbers.entry((call.operator, call.is_backward)).or_default();
        call.number = *next;
        *next += 1;
    }
    calls
}

struct Open {
    call: usize,
    site: usize,
    /// The number (`seq`) of the call's first block.
    oldest: Option<NonZeroU64>,
    stacks: HashSet<StackId>,
    /// The alloc of its newest block, and the block's weight in bytes.
    newest: (Record, u64),
    /// Bytes freed since the call's newest block was freed, including that block. They count only if the call
    /// allocates again.
    dropped: Option<i64>,
}

impl Open {
    fn begins_again(&self, site: &Site<'_>, record: &Record) -> bool {
        site.is_once && self.stacks.contains(&record.stack) && !self.moves(record)
    }

    /// Whether this record is the second half of a reallocation that enlarges the newest block.
    fn moves(&self, record: &Record) -> bool {
        let freed = self.dropped.is_some_and(|freed| freed.unsigned_abs() == self.newest.1);
        freed && record.stack == self.newest.0.stack && record.size > self.newest.0.size
    }
}

struct Walk<'a> {
    sites: Sites<'a>,
    calls: Vec<Call<'a>>,
    open: HashMap<ThreadId, Open>,
    /// The call that allocated each live block, by the block's number.
    makers: HashMap<Option<NonZeroU64>, usize>,
    totals: Totals,
    reserved: Option<Reserved<'a>>,
}

impl<'a> Walk<'a> {
    fn of(device: &'a DeviceView<'a>) -> Self {
        let (calls, open, makers, totals) = Default::default();
        Self { sites: Sites::of(device.data()), calls, open, makers, totals, reserved: Reserved::of(device) }
    }

    fn mark(&mut self, mark: &Mark) {
        self.open.remove(&mark.thread);
    }

    fn entry(&mut self, at: usize, entry: &Entry<'_>) {
        self.totals.push(i64::try_from(entry.allocated).unwrap_or(i64::MAX));
        if let Some(reserved) = &mut self.reserved {
            reserved.before(entry.record.time_ns, |_, _| {});
            reserved.after(entry.record);
        }
        match entry.record.kind {
            RecordKind::Alloc => self.alloc(at, entry),
            RecordKind::Free => self.free(at, entry),
        }
    }

    fn alloc(&mut self, at: usize, entry: &Entry<'_>) {
        let record = entry.record;
        let open = self.open.remove(&record.thread);
        let Some(site) = self.sites.at(record.stack) else { return };
        let same = open.filter(|open| open.site == site.number && !open.begins_again(&site, record));
        let (call, oldest, mut stacks) = match same {
            Some(Open { call, oldest, stacks, dropped, .. }) => {
                self.add(call, dropped.unwrap_or(0));
                (call, oldest, stacks)
            }
            None => (self.begin(at, entry, site), record.alloc_seq, HashSet::new()),
        };
        stacks.insert(record.stack);
        self.makers.insert(record.alloc_seq, call);
        let newest = (*record, entry.weight.bytes);
        self.open.insert(record.thread, Open { call, site: site.number, oldest, stacks, newest, dropped: None });
        if let Some(call) = self.calls.get_mut(call) {
            call.allocations += entry.weight;
        }
        self.belongs(call, at, entry);
    }

    fn begin(&mut self, at: usize, entry: &Entry<'_>, site: Site<'a>) -> usize {
        let record = entry.record;
        self.calls.push(Call {
            operator: site.operator,
            is_backward: site.is_backward,
            records: at..at,
            stack: record.stack,
            context: record.context,
            thread: record.thread,
            begin_ns: record.time_ns,
            end_ns: record.time_ns,
            before: entry.allocated.saturating_add_signed(-entry.change),
            peak_at: at,
            ..Call::default()
        });
        self.calls.len() - 1
    }

    fn free(&mut self, at: usize, entry: &Entry<'_>) {
        let record = entry.record;
        let maker = self.makers.remove(&record.alloc_seq);
        let Some(mut open) = self.open.remove(&record.thread) else { return };
        let goes_on = if record.stack != StackId::NONE {
            let goes_on = self.sites.at(record.stack).is_some_and(|site| site.number == open.site);
            if goes_on {
                self.belongs(open.call, at, entry);
            }
            goes_on
        } else if maker != Some(open.call) {
            // The free has no stack. If the block is older than the call, the call has ended. If another call
            // allocated the block in the meantime, the free tells nothing.
            record.alloc_seq >= open.oldest
        } else {
            // The free of the newest block, and each free after it, is probably the program's, not the
            // operator's.
            if open.dropped.is_some() || record.alloc_seq == open.newest.0.alloc_seq {
                open.dropped = Some(open.dropped.unwrap_or(0).saturating_add(entry.change));
            } else {
                self.belongs(open.call, at, entry);
            }
            true
        };
        if goes_on {
            self.open.insert(record.thread, open);
        }
    }

    /// Extends a call up to this record.
    fn belongs(&mut self, call: usize, at: usize, entry: &Entry<'_>) {
        self.add(call, entry.change);
        let reserved = self.reserved.as_ref().map_or(entry.allocated, Reserved::bytes);
        let Some(call) = self.calls.get_mut(call) else { return };
        (call.records.end, call.end_ns) = (at + 1, entry.record.time_ns);
        (call.allocated, call.reserved) = (entry.allocated, reserved);
        if let Some((at, peak)) = self.totals.highest_since(call.records.start) {
            (call.peak_at, call.peak) = (at, u64::try_from(peak).unwrap_or(0));
        }
    }

    fn add(&mut self, call: usize, bytes: i64) {
        if let Some(call) = self.calls.get_mut(call) {
            call.added = call.added.saturating_add(bytes);
        }
    }
}
