//! Moments: the live memory at any point of the recording.

use std::collections::BTreeSet;
use std::num::NonZeroU64;

use super::live::LiveSet;
use super::log;
use crate::error::Error;
use crate::recording::DeviceView;
use crate::snapshot::{
    Block, ContextId, ContextNode, Device, DeviceSnapshot, Lifetime, Peak, RecordKind, Replay, SnapshotData, Weight,
};
use crate::units::{Bytes, capitalized, seconds};

/// The moment that a report, a flamegraph or folded stacks show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Moment {
    /// The peak.
    #[default]
    Peak,
    /// The end of the recording.
    End,
    /// This number of nanoseconds after the recording began.
    Time(u64),
    /// The maximum within the scope whose name ends in this number, such as `step 3`.
    Step(u64),
    /// The maximum while a scope of this name or path was open, whichever thread allocated.
    Scope(String),
    /// Blocks allocated since an earlier snapshot that are live at the end.
    Growth(Since),
    /// All allocations in the log, live or not.
    Allocated,
}

/// An earlier snapshot of the recording, as the base of [`Moment::Growth`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Since {
    /// When it was taken, in nanoseconds since the recording began.
    pub time_ns: u64,
    /// For each device, the `seq` of its last block, and its live bytes.
    devices: Vec<(Device, Option<NonZeroU64>, u64)>,
}

impl Since {
    /// The base for growth since an earlier snapshot of the same recording.
    pub fn of(earlier: &SnapshotData) -> Self {
        let state = |device: &DeviceSnapshot| (device.device, last_block(device), live_bytes(device));
        Self { time_ns: earlier.process.duration_ns, devices: earlier.devices.iter().map(state).collect() }
    }

    /// The `seq` of the last block, and the live bytes of a device; `None` and 0 if the device was not used yet.
    fn state(&self, device: Device) -> (Option<NonZeroU64>, u64) {
        let found = self.devices.iter().find(|(of, ..)| *of == device);
        found.map_or((None, 0), |(_, block, bytes)| (*block, *bytes))
    }
}

fn last_block(device: &DeviceSnapshot) -> Option<NonZeroU64> {
    let records = device.records.iter().map(|record| record.alloc_seq);
    records.chain(device.live.iter().map(|block| block.seq)).max().flatten()
}

fn live_bytes(device: &DeviceSnapshot) -> u64 {
    device.stats.allocated_bytes.current + device.below_threshold
}

impl DeviceView<'_> {
    /// Live memory at the end of the recording.
    pub fn at_end(&self) -> LiveSet<'_> {
        LiveSet::of(self, at_end(self.data(), self))
    }

    /// Live memory at this moment.
    ///
    /// # Errors
    /// If the log does not reach back to the moment, or if there is no such scope.
    pub fn at(&self, moment: &Moment) -> Result<LiveSet<'_>, Error> {
        let data = self.data();
        let state = match moment {
            Moment::Peak => return Ok(self.at_peak()),
            Moment::End => return Ok(self.at_end()),
            Moment::Time(ns) => at_time(self, *ns)?,
            Moment::Step(number) => in_scopes(data, self, &step(data, *number)?)?,
            Moment::Scope(name) => in_scopes(data, self, &scopes(data, name)?)?,
            Moment::Growth(since) => growth(data, self, since),
            Moment::Allocated => allocated(data, self),
        };
        Ok(LiveSet::of(self, state))
    }
}

impl Moment {
    /// The moment as the end of a sentence: `at the peak`.
    pub fn words(&self) -> String {
        match self {
            Self::Peak => "at the peak".to_owned(),
            Self::End => "live at the end".to_owned(),
            Self::Time(ns) => format!("live after {:.3} s", seconds(*ns)),
            Self::Step(number) => format!("at the peak of step {number}"),
            Self::Scope(name) => format!("at the peak of scope {name}"),
            Self::Growth(since) => format!("allocated since {:.3} s and live at the end", seconds(since.time_ns)),
            Self::Allocated => "allocated in all".to_owned(),
        }
    }

    /// The moment as the beginning of a heading: `At the peak`.
    pub fn heading(&self) -> String {
        capitalized(&self.words())
    }

    /// Whether the live blocks are taken from the log, which has no small blocks.
    pub(super) fn is_from_log(&self) -> bool {
        !matches!(self, Self::Peak | Self::End)
    }

    /// Notes on what is missing from this live set, which must be of this moment.
    pub fn notes(&self, live: &LiveSet<'_>) -> Vec<String> {
        let device = live.device;
        let (data, mut notes) = (device.data(), Vec::new());
        let has_small = live.below_threshold > 0 || !self.is_from_log();
        if !has_small && device.device == Device::Cpu && data.settings.min_size > 1 {
            let threshold = crate::units::round(data.settings.min_size);
            notes.push(format!("blocks smaller than {threshold} are not included: they have no records"));
        }
        let duration = data.process.duration_ns;
        if matches!(self, Self::Time(ns) if *ns > duration && duration > 0) {
            notes.push(format!("the recording ends after {:.3} s", seconds(duration)));
        }
        if matches!(self, Self::Allocated) && device.overwritten > 0 {
            notes.push(format!("{} older records were overwritten and are not included", device.overwritten));
        }
        if let Self::Scope(name) = self {
            let early = scopes(data, name).map_or(0, |scopes| began_before_log(device, &scopes));
            if early > 0 {
                notes.push(format!("the log no longer holds {early} of the times that it was entered"));
            }
        }
        if let Self::Growth(since) = self {
            notes.push(net_growth(device, since));
        }
        notes
    }
}

fn net_growth(device: &DeviceSnapshot, since: &Since) -> String {
    let (last, before) = since.state(device.device);
    let new: u64 = device.live_weights().filter(|(block, _)| block.seq > last).map(|(_, weight)| weight.bytes).sum();
    let now = live_bytes(device);
    let freed = (before + new).saturating_sub(now);
    let sign = if now < before { "-" } else { "+" };
    format!(
        "{} were live then and {} now: {sign}{}; {} of what was live then has been freed",
        Bytes(before),
        Bytes(now),
        Bytes(now.abs_diff(before)),
        Bytes(freed)
    )
}

fn at_end(data: &SnapshotData, device: &DeviceSnapshot) -> Peak {
    Peak {
        bytes: device.stats.allocated_bytes.current,
        time_ns: data.process.duration_ns,
        seq: last_block(device),
        blocks: device.live.clone(),
        not_recorded: device.not_recorded,
        below_threshold: device.below_threshold,
    }
}

fn at_time(device: &DeviceView<'_>, ns: u64) -> Result<Peak, Error> {
    log::reaches_back_to(device, ns)?;
    let records = device.records.partition_point(|record| record.time_ns <= ns);
    // In a log with gaps, frees are missing. Then only the addresses in the log show which blocks are gone.
    let state = match device.gaps.is_empty() {
        true => state(device, records, || live_after(device, records)),
        false => after(device, records),
    };
    Ok(Peak { time_ns: ns, ..state })
}

/// Live blocks after this many records, in the order of allocation. Needs no replay.
fn live_after(device: &DeviceView<'_>, records: usize) -> Vec<Block> {
    let is_live = |life: &&Lifetime| !life.is_gone && life.from as usize <= records && life.to as usize > records;
    let without_number = device.live.iter().filter(|block| block.seq.is_none()).copied();
    without_number.chain(device.lifetimes().iter().filter(is_live).map(|life| life.block)).collect()
}

/// The state after this many records of the log.
pub(super) fn after(device: &DeviceSnapshot, records: usize) -> Peak {
    state(device, records, || Replay::after(device, records).blocks())
}

fn state(device: &DeviceSnapshot, records: usize, blocks: impl FnOnce() -> Vec<Block>) -> Peak {
    let last = records.checked_sub(1).and_then(|last| log::entries(device).nth(last));
    let start = (log::allocated_at_start(device), None, log::start_ns(device));
    let (bytes, seq, time_ns) = last.map_or(start, |last| (last.allocated, last.record.alloc_seq, last.record.time_ns));
    let is_peak = (seq, time_ns) == (device.peak.seq, device.peak.time_ns) && bytes == device.peak.bytes;
    if is_peak {
        return device.peak.clone();
    }
    let blocks = blocks();
    let recorded = blocks.iter().map(|block| device.sampling.bytes(block.size)).sum();
    Peak { bytes, time_ns, seq, not_recorded: bytes.saturating_sub(recorded), blocks, below_threshold: 0 }
}

/// The contexts whose scope has this name or path.
pub(super) fn scopes(data: &SnapshotData, name: &str) -> Result<BTreeSet<ContextId>, Error> {
    let is_meant = |(id, node): &(ContextId, &ContextNode)| node.name == name || data.context_path(*id) == name;
    let found: BTreeSet<ContextId> = contexts(data).filter(is_meant).map(|(id, _)| id).collect();
    if found.is_empty() {
        return Err(Error::moment(format!("there is no scope `{name}`; there are {}", names(data, |_| true))));
    }
    Ok(found)
}

/// The contexts whose scope's name ends in this number.
pub(super) fn step(data: &SnapshotData, number: u64) -> Result<BTreeSet<ContextId>, Error> {
    let is_meant = |name: &str| number_of(name) == Some(number);
    let steps = || contexts(data).filter(|(_, node)| !node.module && is_meant(&node.name));
    let mut known: Vec<&str> = steps().map(|(_, node)| &*node.name).collect();
    known.sort_unstable();
    known.dedup();
    match *known {
        [_] => Ok(steps().map(|(id, _)| id).collect()),
        [] => Err(Error::moment(format!("no scope has the number {number}; there are {}", names(data, |_| true)))),
        _ => {
            Err(Error::moment(format!("several scopes have the number {number}, name one: {}", names(data, is_meant))))
        }
    }
}

/// The number at the end of a name that does not consist of digits alone.
fn number_of(name: &str) -> Option<u64> {
    let start = name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    name.get(start..).filter(|_| start > 0).and_then(|digits| digits.parse().ok())
}

fn contexts(data: &SnapshotData) -> impl Iterator<Item = (ContextId, &ContextNode)> {
    (0..).map(ContextId).zip(&data.contexts).skip(1)
}

fn names(data: &SnapshotData, is_meant: impl Fn(&str) -> bool) -> String {
    const SOME: usize = 8;
    let mut names: Vec<String> = Vec::new();
    for (_, node) in contexts(data).filter(|(_, node)| is_meant(&node.name)) {
        let name = format!("`{}`", node.name);
        if names.len() < SOME && !names.contains(&name) {
            names.push(name);
        }
    }
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// The state at the maximum while one of these scopes was open.
fn in_scopes(data: &SnapshotData, device: &DeviceSnapshot, scopes: &BTreeSet<ContextId>) -> Result<Peak, Error> {
    // How many open scopes were entered before the log begins (`lost`), and how many since (`known`).
    let (mut lost, mut known) = (began_before_log(device, scopes), 0usize);
    let mut marks = device.marks.iter().filter(|mark| scopes.contains(&mark.context)).peekable();
    let (start_ns, mut now) = (log::start_ns(device), (0, log::allocated_at_start(device)));
    let mut highest: Option<(usize, u64)> = None;
    let mut look = |known: usize, now: (usize, u64)| {
        if known > 0 && highest.is_none_or(|(_, most)| now.1 > most) {
            highest = Some(now);
        }
    };
    for moment in log::entries(device).map(Some).chain([None]) {
        let until = moment.map_or(u64::MAX, |moment| moment.record.time_ns);
        while let Some(mark) = marks.next_if(|mark| mark.time_ns <= until) {
            match (mark.enter, lost) {
                (true, _) if mark.time_ns < start_ns => {}
                (true, _) => known += 1,
                (false, 0) => known = known.saturating_sub(1),
                (false, _) => lost -= 1,
            }
            look(known, now);
        }
        if let Some(moment) = moment {
            now = (now.0 + 1, moment.allocated);
            look(known, now);
        }
    }
    let (records, _) = highest.ok_or_else(|| {
        let name = scopes.first().map_or_else(String::new, |scope| data.context_path(*scope));
        Error::moment(format!(
            "`{name}` was not entered on {} in what the log still holds; a larger MEMTRACE_MAX_ENTRIES keeps more",
            device.device
        ))
    })?;
    Ok(after(device, records))
}

/// How often these scopes were entered before the log begins. The highest moments of these times may have been
/// overwritten.
fn began_before_log(device: &DeviceSnapshot, scopes: &BTreeSet<ContextId>) -> usize {
    let start_ns = log::start_ns(device);
    let early = device.marks.iter().filter(|mark| mark.enter && mark.time_ns < start_ns);
    early.filter(|mark| scopes.contains(&mark.context)).count()
}

fn growth(data: &SnapshotData, device: &DeviceSnapshot, since: &Since) -> Peak {
    let (last, _) = since.state(device.device);
    let new = device.live_weights().filter(|(block, _)| block.seq > last);
    of_blocks(data, new.map(|(block, weight)| (*block, weight)))
}

fn allocated(data: &SnapshotData, device: &DeviceSnapshot) -> Peak {
    let allocs = device.records.iter().filter(|record| record.kind == RecordKind::Alloc);
    of_blocks(data, allocs.map(|record| (record.block(), device.weight(record.size))))
}

/// A set of blocks that need not have been live at the same time.
fn of_blocks(data: &SnapshotData, blocks: impl Iterator<Item = (Block, Weight)>) -> Peak {
    let (blocks, weights): (Vec<Block>, Vec<Weight>) = blocks.unzip();
    let bytes = weights.into_iter().sum::<Weight>().bytes;
    Peak { bytes, time_ns: data.process.duration_ns, blocks, ..Peak::default() }
}

#[cfg(test)]
#[path = "moment_tests.rs"]
mod tests;
