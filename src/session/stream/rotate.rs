//! Beginning the next part of a stream with a budget.
//!
//! A part begins with each device's state at one position of its log, as in a snapshot without a log: the live blocks,
//! the blocks of the peak, the counters. All of it comes from the ledgers, which know the whole run. Before the part
//! begins, the older part gets the records up to that position. If writing them fails, they count as skipped.

use std::collections::HashSet;
use std::io;
use std::num::NonZeroU64;

use memtrace_core::capture::Encoder;
use memtrace_core::snapshot::{Device, OlderTime};

use super::device::LogEnd;
use super::older::OlderTimes;
use super::parts::StreamParts;
use super::state::{CaptureStream, Committed, Flush};
use crate::record::recorder::{self, Detail};
use crate::record::uses::{self, UseCursor};
use crate::record::{Cursor, LogPart};

impl CaptureStream {
    /// Finishes the part that is being written, and begins the next one. After an error, the part that is being
    /// written continues.
    pub(super) fn rotate(&mut self, flush: &Flush) -> io::Result<()> {
        let used = uses::end();
        let end_of = |device| LogEnd::of(device, Detail::Whole, UseCursor::default()).map(|end| (device, end));
        let ends: Vec<(Device, LogEnd)> = recorder::devices().filter_map(end_of).collect();
        match self.finish_part(&ends, used, flush) {
            Ok(true) => {}
            Ok(false) => self.roll_back(),
            Err(error) => self.go_back(&error),
        }
        let begun = self.begin_part(ends, used, flush);
        if begun.is_err() {
            self.parts.iter_mut().for_each(StreamParts::wait);
        }
        begun
    }

    /// Appends the records up to the ends of the logs. False if some were overwritten, or writing them takes too long.
    fn finish_part(&mut self, ends: &[(Device, LogEnd)], used: UseCursor, flush: &Flush) -> io::Result<bool> {
        for (device, end) in ends {
            let at = self.place_of(*device);
            self.append_uses(at, end.state.uses.clone(), used)?;
            if !self.append_log(at, end, flush)? {
                return Ok(false);
            }
            match self.devices.get(at).is_some_and(|position| position.needs_lists(&end.state)) {
                true => self.append_state(at, end.clone())?,
                false => self.encoder.counters(*device, &end.counters())?,
            }
        }
        self.commit(flush)?;
        Ok(true)
    }

    fn begin_part(&mut self, ends: Vec<(Device, LogEnd)>, used: UseCursor, flush: &Flush) -> io::Result<()> {
        // The state of the part that is being written, which is restored if the next part cannot begin.
        let (numbers, devices) = (std::mem::take(&mut self.numbers), self.devices.clone());
        let (contexts, kernels) = (std::mem::replace(&mut self.contexts, 1), std::mem::take(&mut self.kernels));
        let objects = self.objects.len();
        let of_devices = ends.iter().map(|(device, end)| (*device, &end.cursor, &end.state));
        let times = self.parts.as_ref().map(|parts| parts.times.with_this_part(of_devices, &parts.settings));
        let mut times = times.unwrap_or_default();
        let begun = self.encode_beginning(ends, used, &times, flush).and_then(|()| self.write_beginning());
        if begun.is_ok() {
            self.parts.iter_mut().for_each(|parts| parts.times = std::mem::take(&mut times));
        } else {
            self.encoder.out().clear();
            (self.numbers, self.devices) = (numbers, devices);
            (self.contexts, self.kernels, self.threads) = (contexts, kernels, 0);
            self.objects.truncate(objects);
        }
        begun
    }

    fn encode_beginning(
        &mut self,
        ends: Vec<(Device, LogEnd)>,
        used: UseCursor,
        times: &OlderTimes,
        flush: &Flush,
    ) -> io::Result<()> {
        self.encode_head()?;
        for (device, mut end) in ends {
            let at = self.place_of(device);
            self.append_uses(at, std::mem::take(&mut end.state.uses), used)?;
            let (records, marks) = Cursor::default().behind(&end.cursor);
            self.encoder.gap(device, records)?;
            self.encoder.log_start(device, marks, end.state.ledger.duration_ns)?;
            self.append_older(device, times.of(device))?;
            let (mut part, mut cursor) = (LogPart::default(), Cursor::default());
            recorder::skip_log(device, &mut cursor, &end.cursor, &mut part);
            let ledger = &end.state.ledger;
            let blocks = ledger.live.iter().chain(&ledger.peak.blocks);
            let known: HashSet<NonZeroU64> = blocks.filter_map(|block| block.seq).collect();
            part.names.retain(|name| known.contains(&name.seq));
            self.append_part(device, &mut part)?;
            if let Some(position) = self.devices.get_mut(at) {
                (position.cursor, position.skipped, position.has_total) = (end.cursor, true, false);
            }
            self.append_state(at, end)?;
        }
        let mappings = self.parts.as_ref().and_then(|parts| parts.mappings.clone());
        mappings.into_iter().try_for_each(|mappings| self.encode_mappings(mappings))?;
        self.memory_read = false;
        self.encode_commit(flush)
    }

    fn append_older(&mut self, device: Device, times: &[OlderTime]) -> io::Result<()> {
        let mut times = times.to_vec();
        self.numbers.renumber_older(&mut times);
        self.append_tables()?;
        self.encoder.older(device, &times)
    }

    /// Encodes what does not depend on the log: the process, its settings and its loaded objects.
    pub(super) fn encode_head(&mut self) -> io::Result<()> {
        self.encoder.out().clear();
        self.threads = 0;
        let Some(parts) = &self.parts else { return Ok(()) };
        self.encoder = Encoder::begin(std::mem::take(self.encoder.out()))?;
        self.encoder.part(parts.next())?;
        self.encoder.process(&parts.process)?;
        self.encoder.settings(&parts.settings)?;
        self.encoder.objects(&self.objects)
    }

    fn write_beginning(&mut self) -> io::Result<()> {
        let Some(parts) = &mut self.parts else { return Ok(()) };
        let file = parts.begin(self.encoder.out(), self.file.length())?;
        parts.keep(std::mem::replace(&mut self.file, file));
        self.committed = Committed::default();
        self.note_commit();
        Ok(())
    }
}
