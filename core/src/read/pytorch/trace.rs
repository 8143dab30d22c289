//! The log of a device, which is built while the entries of its trace arrive.

use std::num::NonZeroU64;

use super::entry::{TraceAction, TraceEntry};
use super::fields::LARGEST;
use crate::hashed::HashMap;
use crate::read::pickle::Refusal;
use crate::snapshot::{ContextId, MemoryKind, OutOfMemory, Record, RecordKind, SegmentRecord, StackId, ThreadId};

/// Later times are refused, because they would overflow in nanoseconds.
pub(super) const LATEST_US: u64 = 1 << 52;
/// A bit of [`Record::alloc_seq`]: the block existed before the log began. The other bits are its number among such
/// blocks.
pub(super) const BEFORE: u64 = 1 << 63;
/// The most refused allocations that are kept, as in memtrace's own recordings.
const MOST_OOMS: usize = 256;

/// The last event of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AtAddress {
    /// The position of the alloc.
    Live(u32),
    Freed,
}

/// A device's log so far. Until it is complete, times are the file's microseconds, `context` is one more than the
/// index of the metadata's text (0 for none), and `alloc_seq` is one more than the position of the alloc, or has
/// the bit [`BEFORE`].
#[derive(Default)]
pub(super) struct DeviceTrace {
    pub(super) records: Vec<Record>,
    pub(super) addresses: HashMap<u64, AtAddress>,
    /// Number of blocks from before the log that the log frees.
    pub(super) before: u64,
    pub(super) segment_records: Vec<SegmentRecord>,
    pub(super) ooms: Vec<OutOfMemory>,
    pub(super) num_ooms: u64,
    /// Entries that contradict others: a block allocated at the address of a live one, or freed twice.
    pub(super) misfits: u64,
    pub(super) has_times: bool,
    pub(super) last_us: u64,
    /// True after the first entry.
    has_begun: bool,
    streams: HashMap<u64, u32>,
    /// The sum of all sizes.
    total: u64,
}

impl DeviceTrace {
    /// The time of the first entry that is kept.
    pub(super) fn first_us(&self) -> Option<u64> {
        let record = self.records.first().map(|record| record.time_ns);
        let segment = self.segment_records.first().map(|segment| segment.time_ns);
        let oom = self.ooms.first().map(|oom| oom.time_ns);
        [record, segment, oom].into_iter().flatten().min()
    }

    pub(super) fn push(&mut self, entry: &TraceEntry, frees_are_requests: bool) -> Result<(), Refusal> {
        self.time(entry.time_us)?;
        self.total = self.total.checked_add(entry.size).filter(|total| *total < LARGEST).ok_or_else(too_much)?;
        let is_free = |is_request: bool| is_request == frees_are_requests;
        match entry.action {
            TraceAction::Alloc => self.alloc(entry),
            TraceAction::FreeRequested if is_free(true) => self.free(entry),
            TraceAction::FreeCompleted if is_free(false) => self.free(entry),
            TraceAction::Segment { kind, is_range } => self.segment(entry, kind, is_range),
            TraceAction::OutOfMemory => self.oom(entry),
            TraceAction::FreeRequested | TraceAction::FreeCompleted | TraceAction::Other => {}
        }
        Ok(())
    }

    /// Sets the current time, which never goes back. Without times, entries are a microsecond apart.
    fn time(&mut self, time_us: Option<u64>) -> Result<(), Refusal> {
        match time_us {
            Some(time_us) if time_us >= LATEST_US => return Err(Refusal::new("a time that is far too late")),
            Some(time_us) => {
                self.has_times = true;
                self.last_us = self.last_us.max(time_us);
            }
            None if self.has_times => {}
            None => self.last_us += u64::from(self.has_begun),
        }
        self.has_begun = true;
        Ok(())
    }

    fn alloc(&mut self, entry: &TraceEntry) {
        if let Some(AtAddress::Live(position)) = self.addresses.get(&entry.address).copied() {
            self.misfits += 1;
            self.free_of(position, StackId::NONE);
        }
        let position = self.records.len();
        let record = self.record(entry);
        self.records.push(Record { alloc_seq: NonZeroU64::new(position as u64 + 1), ..record });
        self.addresses.insert(entry.address, AtAddress::Live(position as u32));
    }

    fn free(&mut self, entry: &TraceEntry) {
        match self.addresses.insert(entry.address, AtAddress::Freed) {
            Some(AtAddress::Live(position)) => self.free_of(position, StackId(entry.stack)),
            Some(AtAddress::Freed) => self.misfits += 1,
            None => {
                let (alloc_seq, record) = (NonZeroU64::new(BEFORE | self.before), self.record(entry));
                let (alloc_stack, context, kind) = (StackId::NONE, ContextId::ROOT, RecordKind::Free);
                self.records.push(Record { alloc_stack, context, alloc_seq, kind, ..record });
                self.before += 1;
            }
        }
    }

    /// Adds the free of the block whose alloc is at this position.
    pub(super) fn free_of(&mut self, position: u32, stack: StackId) {
        let Some(alloc) = self.records.get(position as usize).copied() else { return };
        self.records.push(Record { time_ns: self.last_us, stack, kind: RecordKind::Free, ..alloc });
    }

    fn segment(&mut self, entry: &TraceEntry, kind: RecordKind, estimated: bool) {
        self.segment_records.push(SegmentRecord {
            time_ns: self.last_us,
            address: entry.address,
            size: entry.size,
            kind,
            estimated,
            stack: StackId(entry.stack),
            context: context(entry),
            thread: ThreadId::default(),
        });
    }

    fn oom(&mut self, entry: &TraceEntry) {
        self.num_ooms += 1;
        if self.ooms.len() == MOST_OOMS {
            self.ooms.remove(0);
        }
        self.ooms.push(OutOfMemory {
            time_ns: self.last_us,
            size: entry.size,
            device_free: entry.device_free,
            stack: StackId(entry.stack),
            context: context(entry),
            ..OutOfMemory::default()
        });
    }

    /// The record of an alloc, without its number.
    fn record(&mut self, entry: &TraceEntry) -> Record {
        Record {
            time_ns: self.last_us,
            address: entry.address,
            size: entry.size,
            stack: StackId(entry.stack),
            alloc_stack: StackId(entry.stack),
            context: context(entry),
            thread: ThreadId::default(),
            alloc_seq: None,
            stream: self.stream(entry.stream),
            kind: RecordKind::Alloc,
            memory: MemoryKind::Pool,
        }
    }

    /// Numbers CUDA's handles in the order of their appearance; the default stream is 0.
    fn stream(&mut self, handle: u64) -> u32 {
        if handle == 0 {
            return 0;
        }
        let next = self.streams.len() as u32 + 1;
        *self.streams.entry(handle).or_insert(next)
    }
}

/// The metadata of an entry, stored as a context until contexts have numbers.
fn context(entry: &TraceEntry) -> ContextId {
    ContextId(entry.metadata.map_or(0, |text| text + 1))
}

pub(super) fn too_much() -> Refusal {
    Refusal::new("sizes that add up to more than any device has")
}
