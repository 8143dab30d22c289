//! A time window of a recording, as a recording of its own: every analysis, report and format then works on the window.

use super::log;
use super::moment::{Moment, after};
use crate::error::Error;
use crate::snapshot::{Device, DeviceSnapshot, MemoryStats, Peak, RecordKind, SnapshotData, Stat, scopes_of_log};
use crate::units::seconds;

/// The part of a recording from `from_ns` to `to_ns`, in nanoseconds since it began, both included. Its peak is the
/// highest moment within the window, and its end is the window's end. The result is exact for blocks of at least the
/// threshold.
///
/// Blocks below the threshold, time in the driver, and what the driver reported of its pools and of the device at the
/// end of the recording are not known within a window and are left out. A scope's figures count what was allocated in
/// the window.
///
/// # Errors
/// If the window ends before it begins, or the log of a device does not reach back to its beginning.
pub fn window(data: &SnapshotData, from_ns: u64, to_ns: u64) -> Result<SnapshotData, Error> {
    if from_ns > to_ns {
        return Err(Error::moment(format!("{:.3} s is after {:.3} s", seconds(from_ns), seconds(to_ns))));
    }
    let devices = data.devices.iter().map(|device| of_device(data, device, from_ns, to_ns));
    let mut part = SnapshotData { devices: devices.collect::<Result<_, _>>()?, ..data.clone() };
    part.process.duration_ns = data.process.duration_ns.min(to_ns);
    Ok(part)
}

/// Notes for a report on what a window lacks.
pub fn window_notes(data: &SnapshotData, from_ns: u64, to_ns: u64) -> Vec<String> {
    let mut notes = vec![format!("from {:.3} s to {:.3} s of the recording", seconds(from_ns), seconds(to_ns))];
    if data.device(Device::Cpu).is_some() && data.settings.min_size > 1 {
        let threshold = crate::units::round(data.settings.min_size);
        notes.push(format!("blocks smaller than {threshold} are not in it: they have no records"));
    }
    notes
}

fn of_device(data: &SnapshotData, device: &DeviceSnapshot, from_ns: u64, to_ns: u64) -> Result<DeviceSnapshot, Error> {
    log::reaches_back_to(device, from_ns)?;
    let first = device.records.partition_point(|record| record.time_ns < from_ns);
    let end = device.records.partition_point(|record| record.time_ns <= to_ns).max(first);
    let is_within = |time_ns: u64| (from_ns..=to_ns).contains(&time_ns);
    let (peak, last) = (peak(device, first, end, from_ns), after(device, end));
    let mut part = DeviceSnapshot {
        records: device.records.get(first..end).unwrap_or_default().to_vec(),
        overwritten: device.overwritten + first as u64,
        older: Vec::new(),
        gaps: device.gaps.iter().filter(|gap| (first..end).contains(&gap.at)).copied().collect(),
        stats: stats(device, first, end, (&peak, &last)),
        peak,
        not_recorded: last.not_recorded,
        live: last.blocks,
        below_threshold: 0,
        marks: device.marks.iter().filter(|mark| is_within(mark.time_ns)).copied().collect(),
        ooms: device.ooms.iter().filter(|oom| is_within(oom.time_ns)).cloned().collect(),
        segment_records: device.segment_records.iter().filter(|record| is_within(record.time_ns)).copied().collect(),
        pool: None,
        memory: None,
        calls: Vec::new(),
        scopes: Vec::new(),
        ..device.clone()
    };
    part.gaps.iter_mut().for_each(|gap| gap.at -= first);
    part.stats.num_ooms = part.ooms.len() as u64;
    part.scopes = scopes_of_log(&part.records, &part.marks, &data.contexts, part.sampling, part.live_by_sizes());
    Ok(part)
}

/// The highest moment after at least `first` and at most `end` records.
fn peak(device: &DeviceSnapshot, first: usize, end: usize, from_ns: u64) -> Peak {
    let totals =
        std::iter::once(log::allocated_at_start(device)).chain(log::entries(device).map(|entry| entry.allocated));
    let within = totals.enumerate().skip(first).take(end - first + 1);
    let highest = within.max_by_key(|(at, total)| (*total, std::cmp::Reverse(*at)));
    let mut peak = after(device, highest.map_or(first, |(at, _)| at));
    // If the highest total was reached before the window, its time is the window's beginning.
    peak.time_ns = peak.time_ns.max(from_ns);
    peak.below_threshold = 0;
    peak
}

fn stats(device: &DeviceSnapshot, first: usize, end: usize, (peak, last): (&Peak, &Peak)) -> MemoryStats {
    let (mut bytes, mut blocks) = (Stat::default(), Stat::default());
    let totals = log::entries(device).take(end).skip(first);
    for entry in totals {
        let [bytes, blocks] = match entry.record.kind {
            RecordKind::Alloc => [&mut bytes.allocated, &mut blocks.allocated],
            RecordKind::Free => [&mut bytes.freed, &mut blocks.freed],
        };
        *bytes += entry.weight.bytes;
        *blocks += 1;
    }
    bytes.current = last.bytes;
    bytes.peak = peak.bytes;
    blocks.current = last.blocks.len() as u64;
    let (reserved_bytes, allocations) = (device.stats.reserved_bytes, blocks);
    MemoryStats { allocated_bytes: bytes, active_bytes: bytes, reserved_bytes, allocations, ..MemoryStats::default() }
}

impl Moment {
    /// When this moment begins and ends, in nanoseconds since the recording began. A step or scope lasts from its first
    /// entry to its last exit.
    ///
    /// # Errors
    /// If there is no such scope, or if this is not a moment in time.
    pub fn span(&self, data: &SnapshotData, device: &DeviceSnapshot) -> Result<(u64, u64), Error> {
        let scopes = match self {
            Self::Peak => return Ok((device.peak.time_ns, device.peak.time_ns)),
            Self::End => return Ok((data.process.duration_ns, data.process.duration_ns)),
            Self::Time(ns) => return Ok((*ns, *ns)),
            Self::Step(number) => super::moment::step(data, *number)?,
            Self::Scope(name) => super::moment::scopes(data, name)?,
            Self::Growth(_) | Self::Allocated => {
                return Err(Error::moment(format!("{} is no moment in time", self.words())));
            }
        };
        let marks = device.marks.iter().filter(|mark| scopes.contains(&mark.context));
        let (mut from, mut to, mut open) = (None, None, 0usize);
        for mark in marks {
            from = from.or(Some(mark.time_ns));
            open = if mark.enter { open + 1 } else { open.saturating_sub(1) };
            to = (open == 0).then_some(mark.time_ns);
        }
        let from =
            from.ok_or_else(|| Error::moment(format!("{} was not entered on {}", self.words(), device.device)))?;
        Ok((from, to.unwrap_or(data.process.duration_ns)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Key;
    use crate::recording::DeviceView;
    use crate::snapshot::testing::{LINE_7, LINE_9, Story};
    use crate::snapshot::{DeviceMemory, Pool};

    fn recording() -> SnapshotData {
        let mut story = Story::cpu();
        story.before(1000);
        story.at(1).alloc("a", 500).on(LINE_7);
        story.at(2).alloc("big", 9000).on(LINE_9);
        story.at(3).free("big");
        story.at(4).enter("step 2").alloc("b", 70).on(LINE_9);
        story.at(5).alloc("c", 40).on(LINE_7);
        story.at(6).free("b");
        story.at(7).leave("step 2");
        story.at(8).free("c");
        story.lasting(10);
        story.build()
    }

    #[test]
    fn a_window_has_its_own_peak_and_end() {
        let part = window(&recording(), 4, 6).unwrap();
        let device = &part.devices[0];
        assert_eq!((device.peak.bytes, device.peak.time_ns, device.records.len()), (1610, 5, 3));
        assert_eq!(device.live.iter().map(|block| block.size).collect::<Vec<_>>(), [500, 40]);
        let Stat { current, peak, allocated, freed } = device.stats.allocated_bytes;
        assert_eq!((current, peak, allocated, freed), (1540, 1610, 110, 70));
        assert_eq!(DeviceView::of(&part, device).by(Key::Line).total, 1610);
        assert_eq!(log::allocated_at_start(device), 1500);
    }

    /// What the driver says is of the end.
    #[test]
    fn a_window_knows_nothing_of_the_driver() {
        let mut data = recording();
        data.devices[0].pool = Some(Pool::default());
        data.devices[0].memory = Some(DeviceMemory::default());
        let device = &window(&data, 4, 6).unwrap().devices[0];
        assert!(device.pool.is_none() && device.memory.is_none());
    }

    #[test]
    fn every_window_agrees_with_the_moments_within_it() {
        let data = recording();
        for from in 0..10 {
            for to in from..=10 {
                let part = window(&data, from, to).unwrap();
                let at = |ns| DeviceView::of(&data, &data.devices[0]).at(&Moment::Time(ns)).unwrap().bytes;
                // The window begins with the state just before it.
                let highest = (from.saturating_sub(1)..=to).map(at).max().unwrap();
                assert_eq!(part.devices[0].peak.bytes, highest, "{from} to {to}");
                assert_eq!(part.devices[0].stats.allocated_bytes.current, at(to), "{from} to {to}");
            }
        }
        assert!(window(&data, 5, 4).is_err());
    }

    #[test]
    fn moments_span_the_time_of_their_scopes() {
        let data = recording();
        let span = |moment: Moment| moment.span(&data, &data.devices[0]).unwrap();
        assert_eq!([span(Moment::Step(2)), span(Moment::Peak), span(Moment::End)], [(4, 7), (2, 2), (10, 10)]);
    }
}
