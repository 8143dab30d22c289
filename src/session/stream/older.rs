//! Summaries of the parts that a stream with a budget deletes. A summary is called an *older time*. It has the part's
//! highest total. For each of the largest stacks and scopes, it has the bytes at the moment of that total, and the
//! fewest bytes during the part.
//!
//! The stream's thread computes a summary from the records as it writes them, so recorded threads do no work for it. A
//! later part's summary begins with the ledger's live blocks, so an error in one summary does not carry over to the
//! next.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;

use foldhash::fast::RandomState;
use memtrace_core::snapshot::{
    ContextId, Device, OlderRow, OlderTime, Record, RecordKind, Sampling, Settings, StackId,
};

use crate::record::{Cursor, DeviceCopy};

/// The most older times that are kept for a device. If there are more, neighbours are joined, but never those of parts
/// that may still exist.
const MOST_TIMES: usize = 48;

/// An older time keeps at most one stack and one scope for this many bytes of the budget.
const BYTES_FOR_A_STACK: u64 = 64 << 10;
const MOST_STACKS: u64 = 256;

/// The older times of all devices, and the current part's summary so far.
#[derive(Debug, Default)]
pub(super) struct OlderTimes {
    most_stacks: usize,
    /// The most parts that may still exist, so this many of the newest times are never joined.
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

    /// Counts records. `first` is the number of the first one. Records that were counted before are left out.
    pub(super) fn count(&mut self, device: Device, settings: &Settings, first: u64, records: &[Record]) {
        let at = self.devices.iter().position(|times| times.device == device).unwrap_or_else(|| {
            let now = PartTime { sampling: settings.sampling(device), ..PartTime::default() };
            self.devices.push(TimesOfDevice { device, older: Vec::new(), now });
            self.devices.len() - 1
        });
        self.devices.iter_mut().skip(at).take(1).for_each(|times| times.now.count(first, records));
    }

    /// The older times with which the next part begins: those so far, and the current part's summary. `ends` has the
    /// end of each device's log.
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

    /// If there are too many times, joins the two neighbours that together last for the shortest time. So all older
    /// times get about equally long.
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

/// What happened on a device since the part began.
#[derive(Debug, Default)]
struct PartTime {
    sampling: Sampling,
    from_ns: u64,
    /// The number of the part's first record; `next` is that of the record to be counted next.
    first: u64,
    next: u64,
    lacks_records: bool,
    /// The bytes that were live at the part's begin. For the first part this is unknown, and 0.
    at_begin: u64,
    /// How many more bytes are live than at the part's begin: now, and in `most` at most.
    more: i64,
    most: i64,
    highest_ns: u64,
    /// How often the total reached a new maximum.
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
    /// `at_highest` is what the row held at the total's maximum with this number. At each later maximum it held `now`,
    /// because it has not changed since.
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

/// The row, which is created if the part had none for this key.
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

    /// The summary of this part, when the next part begins.
    fn ended(&self, next: &Self, most_stacks: usize) -> OlderTime {
        let lacks_records = self.lacks_records || self.next < next.first;
        // The bytes at the begin may be unknown. Those at the end are known, so if no record is missing, the former
        // follow from them.
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
