//! What a stream with a budget keeps of the parts that it deletes: of each its highest moment, and what each stack and each scope
//! held then and at least.
//!
//! The stream's thread counts it from the records as it writes them, so recorded threads do nothing for it. A part begins with the
//! live blocks of the ledger, so no error is carried on to the next one.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;

use foldhash::fast::RandomState;
use memtrace_core::snapshot::{
    ContextId, Device, OlderRow, OlderTime, Record, RecordKind, Sampling, Settings, StackId,
};

use crate::record::{Cursor, DeviceCopy};

/// Times that are kept of a device. Those of parts that may still be there are never joined.
const MOST_TIMES: usize = 48;

/// Bytes of the budget for one stack and one scope of a time.
const BYTES_FOR_A_STACK: u64 = 64 << 10;
const MOST_STACKS: u64 = 256;

/// The older times of all devices, and the one of the part that is written.
#[derive(Debug, Default)]
pub(super) struct OlderTimes {
    most_stacks: usize,
    /// So many of the newest times may be of parts that are still there.
    most_parts: usize,
    devices: Vec<TimesOfDevice>,
}

#[derive(Debug)]
struct TimesOfDevice {
    device: Device,
    older: Vec<OlderTime>,
    now: PartTime,
}

impl OlderTimes {
    pub(super) fn new(budget: u64, most_parts: usize) -> Self {
        let most_stacks = (budget / BYTES_FOR_A_STACK).clamp(1, MOST_STACKS) as usize;
        Self { most_stacks, most_parts, devices: Vec::new() }
    }

    /// Counts records, of which the first has this number. Those that were counted before are left out.
    pub(super) fn count(&mut self, device: Device, settings: &Settings, first: u64, records: &[Record]) {
        let at = self.devices.iter().position(|times| times.device == device).unwrap_or_else(|| {
            let now = PartTime { sampling: settings.sampling(device), ..PartTime::default() };
            self.devices.push(TimesOfDevice { device, older: Vec::new(), now });
            self.devices.len() - 1
        });
        self.devices.iter_mut().skip(at).take(1).for_each(|times| times.now.count(first, records));
    }

    /// The times when the next part begins, of each device at this end of its log.
    pub(super) fn with_this_part<'a>(
        &self,
        ends: impl Iterator<Item = (Device, &'a Cursor, &'a DeviceCopy)>,
        settings: &Settings,
    ) -> Self {
        let of_device = |(device, cursor, copy): (Device, &Cursor, &DeviceCopy)| {
            let known = self.devices.iter().find(|times| times.device == device);
            let mut older = known.map_or(Vec::new(), |times| times.older.clone());
            let now = PartTime::at(cursor.records(), copy, settings.sampling(device));
            older.extend(known.map(|times| times.now.ended(&now, self.most_stacks)));
            TimesOfDevice { device, older: self.thinned(older), now }
        };
        Self { devices: ends.map(of_device).collect(), ..*self }
    }

    /// Joins the two neighbours that are shortest together if there are too many times, so that all get about equally long.
    fn thinned(&self, mut times: Vec<OlderTime>) -> Vec<OlderTime> {
        let joinable = times.len().saturating_sub(self.most_parts);
        let length = |at: &usize| times.get(at + 1).zip(times.get(*at)).map(|(next, time)| next.to_ns - time.from_ns);
        let shortest = (0..joinable.saturating_sub(1)).min_by_key(length);
        if let Some(at) = shortest.filter(|_| times.len() > MOST_TIMES)
            && let [first, next] = &times[at..at + 2]
        {
            times[at] = first.joined(next, self.most_stacks);
            times.remove(at + 1);
        }
        times
    }

    pub(super) fn of(&self, device: Device) -> &[OlderTime] {
        self.devices.iter().find(|times| times.device == device).map_or(&[], |times| &times.older)
    }
}

/// What happened of a device since the part began.
#[derive(Debug, Default)]
struct PartTime {
    sampling: Sampling,
    from_ns: u64,
    /// The number of the first record, and of the one that comes next.
    first: u64,
    next: u64,
    lacks_records: bool,
    /// What was live at its begin; unknown, and 0, for the first part.
    at_begin: u64,
    /// Bytes more than at its begin, and the most of them.
    more: i64,
    most: i64,
    highest_ns: u64,
    /// How many moments were higher than all before.
    maxima: u64,
    stacks: RowTimes<StackId>,
    scopes: RowTimes<ContextId>,
}

type RowTimes<K> = HashMap<K, RowTime, RandomState>;

/// What a stack or a scope held since the part began.
#[derive(Clone, Copy, Debug, Default)]
struct RowTime {
    now: u64,
    least: u64,
    at_highest: u64,
    /// The maximum to which `at_highest` belongs; after a later one, it is what the row holds now.
    maximum: u64,
}

impl RowTime {
    fn begin(&mut self, bytes: u64) {
        self.now += bytes;
        (self.least, self.at_highest) = (self.now, self.now);
    }

    fn apply(&mut self, kind: RecordKind, bytes: u64, maxima: u64) {
        (self.at_highest, self.maximum) = (self.at_highest(maxima), maxima);
        match kind {
            RecordKind::Alloc => self.now = self.now.saturating_add(bytes),
            RecordKind::Free => {
                self.now = self.now.saturating_sub(bytes);
                self.least = self.least.min(self.now);
            }
        }
    }

    fn at_highest(&self, maximum: u64) -> u64 {
        if self.maximum == maximum { self.at_highest } else { self.now }
    }
}

/// The row, which is new if nothing of it was seen since the part began.
fn row_of<K: Eq + Hash>(rows: &mut RowTimes<K>, key: K, maxima: u64) -> &mut RowTime {
    match rows.entry(key) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(new) => new.insert(RowTime { maximum: maxima, ..RowTime::default() }),
    }
}

fn ended_rows<K: Copy>(rows: &RowTimes<K>, maxima: u64) -> Vec<OlderRow<K>> {
    let row = |(of, row): (&K, &RowTime)| OlderRow { of: *of, least: row.least, at_highest: row.at_highest(maxima) };
    rows.iter().map(row).collect()
}

impl PartTime {
    fn at(first: u64, copy: &DeviceCopy, sampling: Sampling) -> Self {
        let ledger = &copy.ledger;
        let from_ns = ledger.duration_ns;
        let at_begin = ledger.not_recorded;
        let mut part = Self { sampling, from_ns, first, next: first, at_begin, highest_ns: from_ns, ..Self::default() };
        for block in &ledger.live {
            let bytes = sampling.weight(block.size).bytes;
            part.at_begin += bytes;
            part.stacks.entry(block.stack).or_default().begin(bytes);
            part.scopes.entry(block.context).or_default().begin(bytes);
        }
        part
    }

    fn count(&mut self, first: u64, records: &[Record]) {
        self.lacks_records |= first > self.next;
        if self.lacks_records {
            return;
        }
        let known = self.next.saturating_sub(first);
        for record in records.iter().skip(known.try_into().unwrap_or(usize::MAX)) {
            self.apply(record);
            self.next += 1;
        }
    }

    fn apply(&mut self, record: &Record) {
        let bytes = self.sampling.weight(record.size).bytes;
        row_of(&mut self.stacks, record.alloc_stack, self.maxima).apply(record.kind, bytes, self.maxima);
        row_of(&mut self.scopes, record.context, self.maxima).apply(record.kind, bytes, self.maxima);
        self.more = match record.kind {
            RecordKind::Alloc => self.more.saturating_add_unsigned(bytes),
            RecordKind::Free => self.more.saturating_sub_unsigned(bytes),
        };
        if self.more > self.most {
            (self.most, self.highest_ns) = (self.more, record.time_ns);
            self.maxima += 1;
        }
    }

    /// This time, when the next part begins.
    fn ended(&self, next: &Self, most_stacks: usize) -> OlderTime {
        let lacks_records = self.lacks_records || self.next < next.first;
        // Whatever was live at the begin, it is known what is at the end.
        let at_begin = if lacks_records { self.at_begin } else { next.at_begin.saturating_sub_signed(self.more) };
        let to_ns = next.from_ns.max(self.from_ns);
        let mut time = OlderTime {
            from_ns: self.from_ns,
            to_ns,
            records: next.first.saturating_sub(self.first),
            lacks_records,
            highest: at_begin.saturating_add_signed(self.most),
            highest_ns: self.highest_ns.clamp(self.from_ns, to_ns),
            stacks: ended_rows(&self.stacks, self.maxima),
            scopes: ended_rows(&self.scopes, self.maxima),
        };
        time.keep(most_stacks);
        time
    }
}
