//! The intervals whose floors are compared: parts of the log, and *older times*. These are times before the log whose
//! records were deleted, in a stream with a budget.

use super::judge::INTERVALS;
use crate::analysis::Key;
use crate::analysis::columns::Columns;
use crate::analysis::labels::Labels;
use crate::analysis::older::are_known;
use crate::recording::DeviceView;
use crate::snapshot::OlderTime;

/// A recording's time, divided into [`INTERVALS`] intervals. If the recording has older times, each of the first
/// intervals is a group of neighbouring older times. The others are equal parts of the log's time.
pub(super) struct Intervals<'a> {
    /// The older times of each interval before the log.
    pub(super) older: Vec<&'a [OlderTime]>,
    log: Columns,
}

impl<'a> Intervals<'a> {
    /// Divides the recording's time. Older times have data only for stacks and scopes, so they are used only if the
    /// key's labels depend on one of these.
    pub(super) fn of(device: &'a DeviceView<'_>, key: Key) -> Self {
        let log = Columns::of(device, INTERVALS);
        let source = Labels::by(device, key, log.to_ns).source();
        let older = if are_known(&device.older, source) { groups(&device.older, log.to_ns) } else { Vec::new() };
        let log = Columns { count: INTERVALS - older.len(), ..log };
        Self { older, log }
    }

    /// The interval of a moment of the log.
    pub(super) fn place(&self, ns: u64) -> usize {
        self.older.len() + self.log.place(ns)
    }

    /// When an interval begins, in nanoseconds since the recording began.
    pub(super) fn begin_ns(&self, interval: usize) -> u64 {
        if let Some(time) = self.older.get(interval).and_then(|times| times.first()) {
            return time.from_ns;
        }
        let length = (self.log.to_ns - self.log.from_ns) / self.log.count as u64;
        self.log.from_ns + (interval - self.older.len()) as u64 * length
    }

    pub(super) fn end_ns(&self) -> u64 {
        self.log.to_ns
    }

    pub(super) fn mean_ns(&self) -> u64 {
        self.log.to_ns.saturating_sub(self.begin_ns(0)) / INTERVALS as u64
    }
}

/// Groups neighbouring older times. The recording is divided into [`INTERVALS`] equal parts, and older times whose
/// middles are in the same part are a group. The last two parts count as one, so at least one interval is left for the
/// log.
fn groups(times: &[OlderTime], to_ns: u64) -> Vec<&[OlderTime]> {
    let Some(from_ns) = times.first().map(|time| time.from_ns) else { return Vec::new() };
    let most = INTERVALS as u128 - 1;
    let group = |time: &OlderTime| {
        let middle = u128::from(time.from_ns.midpoint(time.to_ns) - from_ns);
        (middle * INTERVALS as u128 / u128::from(to_ns.saturating_sub(from_ns)).max(1)).min(most - 1)
    };
    times.chunk_by(|time, next| group(time) == group(next)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_times_of_the_same_part_of_the_recording_are_a_group() {
        let time = |from_ns, to_ns| OlderTime { from_ns, to_ns, ..OlderTime::default() };
        let part = 1000;
        let to_ns = 50 + part * INTERVALS as u64;
        let times = [(0, 400), (400, 1400), (1400, 2000), (3000, 3500)];
        let times = times.map(|(from, to)| time(50 + from, 50 + to));
        let found: Vec<usize> = groups(&times, to_ns).iter().map(|group| group.len()).collect();
        assert_eq!(found, [2, 1, 1], "the middle of the second is 900");
        // The last two parts count as one.
        let times = [time(50, 60), time(to_ns - 1900, to_ns - 1100), time(to_ns - 900, to_ns)];
        assert_eq!(groups(&times, to_ns).len(), 2);
    }
}
