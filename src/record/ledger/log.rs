//! A device's log: a ring buffer of packed records, and a second one for records that cannot be packed.
//!
//! The address space of a recording's log is reserved at once, with huge pages where the system has them. So the
//! growing log is not copied, and one page fault covers 65,536 records instead of 128. Nothing is reserved for the
//! logs of measurements, which grow as they fill.

use memtrace_core::snapshot::{Block, Record, RecordKind, StackId};

use super::super::event_site::EventSite;
use super::live::LiveBlock;
use super::options::LedgerOptions;
use super::packed::{Packed, alloc_again, free_of, pack, reference, unpack};
use super::ring::Ring;

#[derive(Debug)]
#[repr(C)]
pub(crate) struct RecordLog {
    records: Records,
    /// Records that cannot be packed; `records` refers to them by number.
    whole: Ring<Record>,
}

#[derive(Debug)]
enum Records {
    Short(Ring<Packed<4>>),
    Long(Ring<Packed<5>>),
}

impl RecordLog {
    pub(super) fn new(options: &LedgerOptions) -> Self {
        let capacity = options.max_entries;
        let records = match (options.long_records, options.reserved) {
            (false, false) => Records::Short(Ring::new(capacity)),
            (false, true) => Records::Short(Ring::reserved(capacity)),
            (true, false) => Records::Long(Ring::new(capacity)),
            (true, true) => Records::Long(Ring::reserved(capacity)),
        };
        Self { records, whole: Ring::new(capacity) }
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn alloc(&mut self, held: &LiveBlock, with_stacks: bool) {
        match (&mut self.records, held) {
            (Records::Short(ring), LiveBlock::Packed(words)) => ring.push(alloc_again(words, with_stacks)),
            (Records::Long(ring), LiveBlock::Packed(words)) => ring.push(alloc_again(words, with_stacks)),
            _ => self.push(&without(with_stacks, Record::alloc_of(&held.block()))),
        }
    }

    /// Logs that the free of a block failed.
    #[cold]
    pub(crate) fn again(&mut self, block: &Block, with_stacks: bool) {
        self.push(&without(with_stacks, Record::again(block)));
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn free(&mut self, held: &LiveBlock, time_ns: u64, site: &EventSite, with_stacks: bool) {
        let done = match (&mut self.records, held) {
            (Records::Short(ring), LiveBlock::Packed(words)) => {
                free_of(words, time_ns, site, with_stacks).map(|words| ring.push(words))
            }
            (Records::Long(ring), LiveBlock::Packed(words)) => {
                free_of(words, time_ns, site, with_stacks).map(|words| ring.push(words))
            }
            _ => None,
        };
        if done.is_none() {
            let EventSite { stack, thread, .. } = *site;
            let record = Record { kind: RecordKind::Free, time_ns, stack, thread, ..Record::alloc_of(&held.block()) };
            self.push(&without(with_stacks, record));
        }
    }

    #[cold]
    fn push(&mut self, record: &Record) {
        match &mut self.records {
            Records::Short(ring) => push(ring, &mut self.whole, record),
            Records::Long(ring) => push(ring, &mut self.whole, record),
        }
    }

    pub(crate) fn overwritten(&self) -> u64 {
        match &self.records {
            Records::Short(ring) => ring.overwritten(),
            Records::Long(ring) => ring.overwritten(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match &self.records {
            Records::Short(ring) => ring.len(),
            Records::Long(ring) => ring.len(),
        }
    }

    /// The number of the next record.
    pub(crate) fn end(&self) -> u64 {
        self.overwritten() + self.len() as u64
    }

    /// The records from number `from` on. Returns how many of them are gone, and the rest, oldest first. `None` stands
    /// for a record that was lost for lack of memory.
    pub(crate) fn since(&self, from: u64) -> (u64, impl Iterator<Item = Option<Record>>) {
        let (short, long) = match &self.records {
            Records::Short(ring) => (Some(ring), None),
            Records::Long(ring) => (None, Some(ring)),
        };
        let short = short.into_iter().flat_map(move |ring| ring.since(from).1.map(|words| self.record(unpack(words))));
        let long = long.into_iter().flat_map(move |ring| ring.since(from).1.map(|words| self.record(unpack(words))));
        (self.overwritten().saturating_sub(from), short.chain(long))
    }

    fn record(&self, unpacked: Result<Record, u64>) -> Option<Record> {
        unpacked.map_or_else(|number| self.whole.get(number).copied(), Some)
    }
}

fn without(with_stacks: bool, record: Record) -> Record {
    if with_stacks { record } else { Record { stack: StackId::NONE, alloc_stack: StackId::NONE, ..record } }
}

fn push<const WORDS: usize>(ring: &mut Ring<Packed<WORDS>>, whole: &mut Ring<Record>, record: &Record) {
    match pack(record) {
        Some(words) => ring.push(words),
        None => push_whole(ring, whole, record),
    }
}

#[cold]
fn push_whole<const WORDS: usize>(ring: &mut Ring<Packed<WORDS>>, whole: &mut Ring<Record>, record: &Record) {
    ring.push(reference(whole.pushed()));
    whole.push(*record);
}

#[cfg(test)]
mod tests {
    use memtrace_core::snapshot::{MemoryKind, RecordKind};

    use super::*;

    fn record(n: u64) -> Record {
        Record {
            // Every third record's time is too late to be packed; every fifth record has a stream.
            time_ns: if n.is_multiple_of(3) { 1 << 60 | n } else { n },
            address: n * 64,
            size: n,
            stack: memtrace_core::snapshot::StackId(n as u32),
            alloc_stack: memtrace_core::snapshot::StackId(n as u32),
            context: memtrace_core::snapshot::ContextId::ROOT,
            thread: memtrace_core::snapshot::ThreadId(1),
            alloc_seq: std::num::NonZeroU64::new(n),
            stream: u32::from(n.is_multiple_of(5)) * 7,
            kind: RecordKind::Alloc,
            memory: MemoryKind::Heap,
        }
    }

    #[test]
    fn records_come_out_as_they_went_in_whatever_their_shape() {
        for (capacity, long, reserved) in [(7, false, true), (7, true, false), (100, true, true), (0, false, true)] {
            let mut log = RecordLog::new(&LedgerOptions {
                max_entries: capacity,
                long_records: long,
                reserved,
                ..LedgerOptions::default()
            });
            for n in 0..50u64 {
                log.push(&record(n));
                let first = (n + 1).saturating_sub(capacity as u64);
                for from in [0, first, first + 2, n + 1] {
                    let (lost, held) = log.since(from);
                    assert_eq!(lost, first.saturating_sub(from));
                    let expected: Vec<Option<Record>> = (first.max(from)..=n).map(|n| Some(record(n))).collect();
                    assert_eq!(held.collect::<Vec<_>>(), expected);
                }
                assert_eq!((log.overwritten(), log.len()), (first, (n + 1 - first) as usize));
            }
        }
    }

    #[test]
    fn a_record_takes_32_bytes_and_40_with_a_stream() {
        assert_eq!((size_of::<Packed<4>>(), size_of::<Packed<5>>()), (32, 40));
    }
}
