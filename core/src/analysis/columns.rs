//! Columns of equal time, for charts of a given width.

use super::log;
use crate::recording::DeviceView;

/// The time that a device's log covers, divided into columns of equal time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Columns {
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
    pub(super) count: usize,
}

impl Columns {
    pub(super) fn of(device: &DeviceView<'_>, count: usize) -> Self {
        let from_ns = log::start_ns(device);
        let last = device.records.last().map_or(0, |record| record.time_ns);
        let to_ns = device.data().process.duration_ns.max(last).max(from_ns.saturating_add(1));
        Self { from_ns, to_ns, count }
    }

    pub(super) fn place(&self, ns: u64) -> usize {
        let part = u128::from(ns.saturating_sub(self.from_ns)) * self.count as u128;
        let place = part / u128::from(self.to_ns - self.from_ns).max(1);
        (place as usize).min(self.count.saturating_sub(1))
    }

    /// Calls `see` with each total of live bytes, in the order of time. If a total lasts for several columns, `see`
    /// is called for each of them. Its arguments are the column, the number of records up to then, and the bytes.
    pub(super) fn totals(&self, device: &DeviceView<'_>, mut see: impl FnMut(usize, usize, u64)) {
        if self.count == 0 {
            return;
        }
        let (mut at, mut now) = (0, log::allocated_at_start(device));
        see(0, 0, now);
        for (after, entry) in (1..).zip(log::entries(device)) {
            let to = self.place(entry.record.time_ns);
            (at + 1..=to).for_each(|column| see(column, after - 1, now));
            (at, now) = (to, entry.allocated);
            see(to, after, now);
        }
        (at + 1..self.count).for_each(|column| see(column, device.records.len(), now));
    }
}
