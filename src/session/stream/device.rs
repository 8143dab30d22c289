//! What a stream appends of one device.

use std::io;
use std::time::Instant;

use super::state::{Flush, Lost, Place, Stream};
use crate::capture::Counters;
use crate::record::recorder::Detail;
use crate::record::unwind::ObjectMap;
use crate::record::{CONTEXTS, Checkpoint, Cursor, DeviceCopy, LogPart, STACKS, recorder};
use crate::snapshot::{Device, LoadedObject, Peak, StackId};
use crate::symbol;

/// Records copied while the device's lock is held: under a millisecond. What is live is copied at once, if it has to be.
const PORTION: usize = 8192;

/// Where a device's log ends, and the device's state there.
struct End {
    cursor: Cursor,
    state: DeviceCopy,
    detail: Detail,
}

impl End {
    fn of(device: Device, detail: Detail) -> Option<Self> {
        recorder::log_end(device, detail).map(|(cursor, state)| Self { cursor, state, detail })
    }
}

impl Stream {
    /// Appends one device's news up to this moment, and commits them.
    pub(super) fn append(&mut self, device: Device, flush: &Flush) -> io::Result<()> {
        let at = self.devices.iter().position(|place| place.device == device);
        let known = at.and_then(|at| self.devices.get(at)).copied();
        let skipped = known.is_some_and(|place| place.skipped);
        let detail = if skipped { Detail::Scopes } else { Detail::Counters };
        let detail = if flush.last { Detail::Whole } else { detail };
        let Some(mut end) = End::of(device, detail) else { return Ok(()) };
        if known.is_some_and(|place| place.cursor == end.cursor) && !flush.last {
            return Ok(());
        }
        let new = Place { device, cursor: Cursor::default(), skipped: false, lost: Lost::default() };
        let at = at.unwrap_or(self.devices.len());
        if at == self.devices.len() {
            self.devices.push(new);
        }
        let caught_up = self.append_log(at, &end, flush)?;
        if !caught_up {
            // What is live does not follow from the records any more.
            if !flush.last {
                let Some(whole) = End::of(device, Detail::Whole) else { return Ok(()) };
                end = whole;
            }
            self.skip(at, &end)?;
        }
        self.append_state(at, end)?;
        self.commit(flush)
    }

    /// Appends records up to the end, a portion at a time; false if some are gone or time is up.
    fn append_log(&mut self, at: usize, end: &End, flush: &Flush) -> io::Result<bool> {
        let began = Instant::now();
        while let Some(place) = self.devices.get(at).copied()
            && !place.cursor.has_reached(&end.cursor)
        {
            let (mut part, mut cursor) = (LogPart::default(), place.cursor);
            let read = recorder::read_log(place.device, &mut cursor, &end.cursor, PORTION, &mut part);
            if read.is_err() || began.elapsed() > flush.most_time() {
                return Ok(false);
            }
            let counters = part.counters.take();
            self.append_part(place.device, &mut part)?;
            self.devices.iter_mut().skip(at).take(1).for_each(|place| place.cursor = cursor);
            if let Some(counters) = counters {
                self.encoder.counters(place.device, &counters_of(counters))?;
                self.commit(flush)?;
            }
        }
        Ok(true)
    }

    /// Passes over what was not read up to the end.
    fn skip(&mut self, at: usize, end: &End) -> io::Result<()> {
        let Some(place) = self.devices.get_mut(at) else { return Ok(()) };
        let (records, marks) = place.cursor.behind(&end.cursor);
        let mut part = LogPart::default();
        place.skipped = true;
        let device = place.device;
        recorder::skip_log(device, &mut place.cursor, &end.cursor, &mut part);
        self.encoder.skipped(device, records, marks, end.state.ledger.duration_ns)?;
        self.append_part(device, &mut part)
    }

    fn append_part(&mut self, device: Device, part: &mut LogPart) -> io::Result<()> {
        for record in &mut part.records {
            record.stack = self.stack(record.stack);
            record.alloc_stack = self.stack(record.alloc_stack);
        }
        part.segments.iter_mut().for_each(|record| record.stack = self.stack(record.stack));
        self.append_names()?;
        self.encoder.segment_records(device, &part.segments)?;
        self.encoder.records(device, &part.records)?;
        if !part.marks.is_empty() {
            self.encoder.marks(device, &part.marks)?;
        }
        self.encoder.names(device, &part.names, part.lost_names)
    }

    fn append_state(&mut self, at: usize, end: End) -> io::Result<()> {
        let End { state: DeviceCopy { mut ledger, below_threshold }, detail, .. } = end;
        let Some(place) = self.devices.get_mut(at) else { return Ok(()) };
        let device = place.device;
        place.lost = Lost { blocks: ledger.lost_blocks, frees: ledger.missed_frees, scopes: ledger.lost_scopes };
        let blocks = ledger.live.iter_mut().chain(&mut ledger.peak.blocks);
        blocks.for_each(|block| block.stack = self.stack(block.stack));
        ledger.ooms.iter_mut().for_each(|oom| oom.stack = self.stack(oom.stack));
        ledger.calls.iter_mut().for_each(|time| time.stack = self.stack(time.stack));
        self.append_names()?;
        if detail == Detail::Whole {
            self.encoder.live(device, &ledger.live)?;
            self.encoder.peak(device, &ledger.peak.blocks)?;
        }
        let peak = Peak { blocks: Vec::new(), ..ledger.peak };
        let (mut stats, not_recorded) = (ledger.stats, ledger.not_recorded);
        stats.below_threshold = below_threshold;
        self.encoder.counters(device, &Counters { not_recorded, below_threshold, peak, stats })?;
        self.encoder.ooms(device, &ledger.ooms)?;
        self.encoder.calls(device, &ledger.calls)?;
        if detail >= Detail::Scopes {
            self.encoder.scopes(device, &ledger.scopes)?;
        }
        Ok(())
    }

    /// The file's number of a stack: 0 is no stack.
    fn stack(&mut self, stack: StackId) -> StackId {
        if stack == StackId::NONE { stack } else { StackId(self.stacks.of(stack) + 1) }
    }

    /// What the records to come refer to.
    fn append_names(&mut self) -> io::Result<()> {
        let contexts = CONTEXTS.nodes_from(self.contexts);
        if !contexts.is_empty() {
            self.encoder.contexts(&contexts)?;
            self.contexts += contexts.len();
        }
        let new = self.stacks.take_new();
        if new.is_empty() {
            return Ok(());
        }
        let known = ObjectMap::now();
        let stacks: Vec<Vec<u32>> = new.into_iter().map(|stack| self.calls(stack, &known)).collect();
        let addresses = self.addresses.take_new();
        self.append_modules(&addresses, &known)?;
        if !addresses.is_empty() {
            self.encoder.addresses(addresses.into_iter())?;
        }
        self.encoder.stacks(stacks.iter().map(Vec::as_slice))
    }

    fn calls(&mut self, stack: StackId, known: &ObjectMap) -> Vec<u32> {
        let mut addresses = Vec::new();
        let mark = STACKS.copy_to(stack, &mut addresses);
        addresses.into_iter().map(|address| self.addresses.of(known.address(address, mark))).collect()
    }

    /// Libraries may have been loaded meanwhile.
    fn append_modules(&mut self, addresses: &[u64], known: &ObjectMap) -> io::Result<()> {
        let is_known = |address: &u64| self.modules.iter().any(|module| module.range.contains(address));
        if addresses.iter().all(is_known) {
            return Ok(());
        }
        let (all, _) = known.all(symbol::loaded_modules);
        let new: Vec<LoadedObject> = all.into_iter().filter(|module| !self.modules.contains(module)).collect();
        if new.is_empty() {
            return Ok(());
        }
        self.modules.extend(new);
        self.encoder.modules(&self.modules)
    }
}

fn counters_of(kept: Checkpoint) -> Counters {
    let Checkpoint { stats, below_threshold, not_recorded, .. } = kept;
    let mut stats = stats;
    stats.below_threshold = below_threshold;
    Counters { not_recorded, below_threshold, peak: kept.peak(), stats }
}
