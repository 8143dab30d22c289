//! Floors: the least bytes that each row holds in each interval.

use super::intervals::Intervals;
use super::judge::INTERVALS;
use crate::analysis::key_timeline::{add, at_start, numbers};
use crate::analysis::labels::{BEFORE_RECORDING, Labels};
use crate::analysis::{Key, log, older};
use crate::recording::DeviceView;
use crate::snapshot::OlderTime;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RowOverTime {
    pub(super) label: String,
    /// The least bytes in each interval.
    pub(super) floors: Vec<u64>,
    pub(super) at_end: u64,
    /// Whether the bytes are estimates from a sample.
    pub(super) is_estimate: bool,
    /// The least bytes since the current interval began.
    least: u64,
}

impl RowOverTime {
    /// Moves on to an interval, which begins with the bytes that the row has at the end of the one before.
    fn go_to(&mut self, interval: usize) {
        while self.floors.len() < interval {
            self.floors.push(self.least);
            self.least = self.at_end;
        }
    }

    fn change(&mut self, interval: usize, bytes: i64) {
        self.go_to(interval);
        self.at_end = self.at_end.saturating_add_signed(bytes);
        self.least = self.least.min(self.at_end);
    }
}

/// The rows of a device by this key, in the order in which their labels first occur. Reads the log once.
pub(super) fn floors(device: &DeviceView<'_>, key: Key, time: &Intervals<'_>) -> Vec<RowOverTime> {
    let mut labels = Labels::by(device, key, time.end_ns());
    let older: Vec<Vec<u64>> = time.older.iter().map(|times| least_of(times, &mut labels)).collect();
    let (mut start, rest) = at_start(device, |block| labels.number(block));
    if rest > 0 {
        add(&mut start, labels.number_of(BEFORE_RECORDING), rest);
    }
    let row = |number: usize| {
        let bytes = start.get(number).copied().unwrap_or(0);
        let floors = older.iter().map(|least| least.get(number).copied().unwrap_or(0)).collect();
        RowOverTime { floors, at_end: bytes, least: bytes, ..RowOverTime::default() }
    };
    let mut rows: Vec<RowOverTime> = (0..labels.names().count()).map(row).collect();
    for (number, entry) in numbers(device, |block| labels.number(block)).zip(log::entries(device)) {
        (rows.len()..=number).for_each(|number| rows.push(row(number)));
        let row = &mut rows[number];
        row.change(time.place(entry.record.time_ns), entry.change);
        row.is_estimate |= device.sampling.is_sampled(entry.record.size);
    }
    rows.iter_mut().for_each(|row| row.go_to(INTERVALS));
    for (row, label) in rows.iter_mut().zip(labels.names()) {
        label.clone_into(&mut row.label);
    }
    rows
}

/// For each label, a lower bound of the fewest bytes in these times: the smallest sum that the floors of its
/// stacks or scopes have in one of the times.
fn least_of(times: &[OlderTime], labels: &mut Labels<'_>) -> Vec<u64> {
    let mut of_time = |time: &OlderTime| older::sums(time, labels, |least, _| least);
    let both = |least: Vec<u64>, sums: Vec<u64>| least.into_iter().zip(sums).map(|(a, b)| a.min(b)).collect();
    times.iter().map(&mut of_time).reduce(both).unwrap_or_default()
}
