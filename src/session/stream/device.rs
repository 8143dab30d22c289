//! Appending one device's records to a streamed capture.

use std::io;
use std::time::Instant;

use memtrace_core::capture::Counters;
use memtrace_core::snapshot::{Device, LoadedObject, MemoryStats, Peak};

use super::state::{CaptureStream, Flush, LogPosition, Lost};
use crate::record::recorder::Detail;
use crate::record::unwind::ObjectMap;
use crate::record::uses::{self, UseCopy, UseCursor};
use crate::record::{CONTEXTS, Checkpoint, Cursor, DeviceCopy, LogPart, recorder};
use crate::symbol;

/// The most records that are copied at once under the device's lock, which takes about a millisecond. Checkpoints
/// are 4,096 allocs apart, which is at most 8,192 records if each alloc has its free among them. So such a portion
/// contains a checkpoint, at which it ends, and has thousands of records.
const PORTION: usize = 12_288;

/// The end of a device's log, and the device's state there.
#[derive(Clone)]
pub(super) struct LogEnd {
    pub(super) cursor: Cursor,
    pub(super) state: DeviceCopy,
    detail: Detail,
}

impl LogEnd {
    pub(super) fn of(device: Device, detail: Detail, uses: UseCursor) -> Option<Self> {
        recorder::log_end(device, detail, uses).map(|(cursor, state)| Self { cursor, state, detail })
    }

    pub(super) fn counters(&self) -> Counters {
        let DeviceCopy { ledger, below_threshold, .. } = &self.state;
        let (not_recorded, below_threshold) = (ledger.not_recorded, *below_threshold);
        let peak = Peak { blocks: Vec::new(), ..ledger.peak };
        Counters { not_recorded, below_threshold, peak, stats: MemoryStats { below_threshold, ..ledger.stats } }
    }
}

impl CaptureStream {
    /// Appends and commits what one device has recorded up to now.
    pub(super) fn append(&mut self, device: Device, flush: &Flush) -> io::Result<()> {
        let at = self.devices.iter().position(|position| position.device == device);
        let known = at.and_then(|at| self.devices.get(at)).copied();
        let detail = match known {
            _ if flush.last => Detail::Whole,
            Some(position) if position.skipped => Detail::Scopes,
            _ => Detail::Counters,
        };
        let used = known.map_or(UseCursor::default(), |position| position.uses);
        let now_used = uses::end();
        let Some(mut end) = LogEnd::of(device, detail, used) else { return Ok(()) };
        let has_no_new_uses = used == now_used || device == Device::Cpu;
        if known.is_some_and(|position| position.cursor == end.cursor) && has_no_new_uses && !flush.last {
            return Ok(());
        }
        if known.unwrap_or_default().needs_lists(&end.state) {
            let Some(whole) = LogEnd::of(device, Detail::Whole, used) else { return Ok(()) };
            end = whole;
        }
        let at = self.place_of(device);
        self.append_uses(at, std::mem::take(&mut end.state.uses), now_used)?;
        let caught_up = self.append_log(at, &end, flush)?;
        if !caught_up {
            // Records are skipped, so the live blocks no longer follow from the records and must be written.
            if !flush.last {
                let later = uses::end();
                let Some(whole) = LogEnd::of(device, Detail::Whole, now_used) else { return Ok(()) };
                end = whole;
                self.append_uses(at, std::mem::take(&mut end.state.uses), later)?;
            }
            self.skip(at, &end)?;
        }
        self.append_state(at, end)?;
        self.commit(flush)
    }

    /// The device's index in the list, to which a new device is added.
    pub(super) fn place_of(&mut self, device: Device) -> usize {
        self.devices.iter().position(|position| position.device == device).unwrap_or_else(|| {
            self.devices.push(LogPosition { device, ..LogPosition::default() });
            self.devices.len() - 1
        })
    }

    /// Appends uses of blocks; called before the records are appended. So if a block's free is in the file, all of
    /// its uses are, too.
    pub(super) fn append_uses(&mut self, at: usize, mut uses: UseCopy, until: UseCursor) -> io::Result<()> {
        let Some(position) = self.devices.get_mut(at) else { return Ok(()) };
        let device = position.device;
        position.uses = until;
        let Some(mut work) = uses::work(self.kernels) else { return Ok(()) };
        self.numbers.renumber_uses(&mut uses.blocks);
        self.numbers.renumber_work(&mut work);
        self.append_tables()?;
        self.encoder.kernels(&work.kernels)?;
        self.kernels += work.kernels.len();
        self.encoder.gpu_work(&work)?;
        self.encoder.uses(device, &uses.blocks)?;
        self.encoder.idle(device, &uses.idle)
    }

    /// Appends records up to the end, one portion at a time. False if some were overwritten or the time is up.
    pub(super) fn append_log(&mut self, at: usize, end: &LogEnd, flush: &Flush) -> io::Result<bool> {
        let began = Instant::now();
        while let Some(position) = self.devices.get(at).copied()
            && !position.cursor.has_reached(&end.cursor)
        {
            let mut part = LogPart::default();
            let mut cursor = position.cursor;
            let read = recorder::read_log(position.device, &mut cursor, &end.cursor, PORTION, &mut part);
            if read.is_err() || began.elapsed() > flush.most_time() {
                return Ok(false);
            }
            if let Some(parts) = &mut self.parts {
                parts.times.count(position.device, &parts.settings, position.cursor.records(), &part.records);
            }
            let counters = part.counters.take().map(|kept| counters_of(&kept));
            self.append_part(position.device, &mut part)?;
            if let Some(position) = self.devices.get_mut(at) {
                position.cursor = cursor;
            }
            if let Some(counters) = counters.filter(|_| !position.needs_lists(&end.state)) {
                self.encoder.counters(position.device, &counters)?;
                self.commit(flush)?;
            }
        }
        Ok(true)
    }

    /// Skips the remaining records up to `end`, and writes how many they are.
    fn skip(&mut self, at: usize, end: &LogEnd) -> io::Result<()> {
        let Some(position) = self.devices.get_mut(at) else { return Ok(()) };
        let device = position.device;
        let (records, marks) = position.cursor.behind(&end.cursor);
        let mut part = LogPart::default();
        position.skipped = true;
        recorder::skip_log(device, &mut position.cursor, &end.cursor, &mut part);
        self.encoder.skipped(device, records, marks, end.state.ledger.duration_ns)?;
        self.append_part(device, &mut part)
    }

    pub(super) fn append_part(&mut self, device: Device, part: &mut LogPart) -> io::Result<()> {
        self.numbers.renumber_records(&mut part.records);
        self.numbers.renumber_segments(&mut part.segments);
        self.append_tables()?;
        self.encoder.segment_records(device, &part.segments)?;
        self.encoder.records(device, &part.records)?;
        if !part.marks.is_empty() {
            self.encoder.marks(device, &part.marks)?;
        }
        self.encoder.graph_nodes(device, &part.graph_nodes)?;
        self.encoder.names(device, &part.names, part.lost_names)
    }

    pub(super) fn append_state(&mut self, at: usize, mut end: LogEnd) -> io::Result<()> {
        self.numbers.renumber_device(&mut end.state);
        let counters = end.counters();
        let LogEnd { state: DeviceCopy { ledger, .. }, detail, .. } = end;
        let Some(position) = self.devices.get_mut(at) else { return Ok(()) };
        let device = position.device;
        position.lost = Lost { blocks: ledger.lost_blocks, frees: ledger.missed_frees, scopes: ledger.lost_scopes };
        let total = recorder::total_at_first(device).filter(|_| !position.has_total);
        position.has_total |= total.is_some();
        if detail == Detail::Whole {
            position.corrections = ledger.peak_corrections;
        }
        self.append_tables()?;
        if detail == Detail::Whole {
            self.encoder.live(device, &ledger.live)?;
            self.encoder.peak(device, &ledger.peak.blocks)?;
        }
        self.encoder.counters(device, &counters)?;
        self.encoder.total_at_first(device, total)?;
        self.encoder.ooms(device, &ledger.ooms)?;
        self.encoder.calls(device, &ledger.calls)?;
        if detail >= Detail::Scopes {
            self.encoder.scopes(device, &ledger.scopes)?;
        }
        Ok(())
    }

    /// Appends the new contexts, loaded objects, addresses and stacks, which the next records refer to.
    pub(super) fn append_tables(&mut self) -> io::Result<()> {
        let contexts = CONTEXTS.nodes_from(self.contexts);
        if !contexts.is_empty() {
            self.encoder.contexts(&contexts)?;
            self.contexts += contexts.len();
        }
        if !self.numbers.has_new() {
            return Ok(());
        }
        let known = ObjectMap::now();
        let stacks = self.numbers.take_new(&known);
        let addresses = self.numbers.addresses.take_new();
        self.append_objects(&addresses, &known)?;
        if !addresses.is_empty() {
            self.encoder.addresses(addresses.into_iter())?;
        }
        self.encoder.stacks(stacks.iter().map(Vec::as_slice))
    }

    /// Appends the list of loaded objects again if libraries were loaded since.
    fn append_objects(&mut self, addresses: &[u64], known: &ObjectMap) -> io::Result<()> {
        let is_known = |address: &u64| self.objects.iter().any(|object| object.range.contains(address));
        if addresses.iter().all(is_known) {
            return Ok(());
        }
        let (all, _) = known.all(symbol::loaded_objects);
        let new: Vec<LoadedObject> = all.into_iter().filter(|object| !self.objects.contains(object)).collect();
        if new.is_empty() {
            return Ok(());
        }
        self.objects.extend(new);
        self.encoder.objects(&self.objects)
    }
}

fn counters_of(kept: &Checkpoint) -> Counters {
    let Checkpoint { stats, not_recorded, .. } = *kept;
    Counters { not_recorded, below_threshold: stats.below_threshold, peak: kept.peak(), stats }
}
