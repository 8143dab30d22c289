//! Growth over time: rows that hold more bytes in each interval, as in a service that leaks.
//!
//! Time is divided into intervals. The *floor* of a row in an interval is the least that it held there, so blocks that
//! come and go within an interval do not count. A row *grows* if its floor rises in every interval after the warm-up
//! and did not fall in the warm-up. A full cache, or one that is cleared, does not grow: in some interval, its floor
//! does not rise.
//!
//! [`accumulation`](super::accumulation) also finds memory that accumulates, by the repetitions of a line instead of
//! times.
//!
//! | file | holds |
//! |---|---|
//! | `intervals` | the 16 intervals: of the log, and of a stream's older times, whose records were deleted |
//! | `floors` | the fewest bytes of each row in each interval |
//! | `judge` | whether floors rise |

mod floors;
mod intervals;
mod judge;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;

use self::floors::{RowOverTime, floors};
use self::intervals::Intervals;
pub use self::judge::RowGrowth;
use self::judge::{INTERVALS, WARM_UP, judge, judged};
use super::Key;
use crate::recording::DeviceView;
use crate::snapshot::Device;

/// A row that grows or may grow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrowingRow {
    /// The row's label.
    pub label: String,
    /// Whether it grows.
    pub growth: RowGrowth,
    /// Bytes per minute, from the first floor after the warm-up to the last one.
    pub per_minute: u64,
    /// Bytes per minute by the smallest step from one interval to the next.
    pub least_per_minute: u64,
    /// Bytes per minute by the largest step.
    pub most_per_minute: u64,
    /// Bytes by which its floor rose since the warm-up.
    pub risen: u64,
    /// Bytes at the end.
    pub at_end: u64,
    /// The time since which its floor has risen without a pause, in nanoseconds since the recording began.
    pub since_ns: u64,
}

/// The growing rows of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Growth {
    /// The device.
    pub device: Device,
    /// The key of the rows.
    pub key: Key,
    /// Rows that grow, steepest first; then rows that may grow.
    pub rows: Vec<GrowingRow>,
    /// The length of an interval in nanoseconds; the mean if some are from before the log.
    pub interval_ns: u64,
    /// Number of intervals from before the log, in a stream with a budget.
    pub older: usize,
    /// Live bytes at the end.
    pub at_end: u64,
    /// The part of these bytes in blocks below the threshold, which have no rows.
    pub below_threshold: u64,
    /// Whether the rows' bytes are estimates from a sample.
    pub is_estimate: bool,
    /// Bytes of the device, if its driver reported them.
    pub capacity: Option<u64>,
    /// Why growth cannot be ruled out.
    pub undecided: Option<&'static str>,
}

impl Growth {
    /// The growth on a device, by this key.
    pub fn of(device: &DeviceView<'_>, key: Key) -> Self {
        let time = Intervals::of(device, key);
        let missing = what_is_missing(device, &time);
        let found = if missing.is_none() { floors(device, key, &time) } else { Vec::new() };
        let rows = found.iter().filter_map(|row| growing(row, &time));
        let mut rows: Vec<GrowingRow> = rows.map(|row| in_doubt(device, &time, row)).collect();
        rows.sort_by_cached_key(|row| (Reverse((row.growth == RowGrowth::Grows, row.per_minute)), row.label.clone()));
        Self {
            device: device.device,
            key,
            rows,
            interval_ns: time.mean_ns(),
            older: time.older.len(),
            at_end: device.live_by_sizes().saturating_add(device.below_threshold),
            below_threshold: device.below_threshold,
            is_estimate: device.is_sample(),
            capacity: device.capacity(),
            undecided: missing
                .or_else(|| lacks_its_beginning(device, &time))
                .or_else(|| device.is_sample().then_some(SAMPLED)),
        }
    }

    /// The rows that grow.
    pub fn growing(&self) -> &[GrowingRow] {
        let count = self.rows.partition_point(|row| row.growth == RowGrowth::Grows);
        self.rows.get(..count).unwrap_or_default()
    }

    /// Whether something grows; `None` if that is not certain.
    pub fn grows(&self) -> Option<bool> {
        match (self.growing().is_empty(), self.rows.is_empty() && self.undecided.is_none()) {
            (false, _) => Some(true),
            (true, true) => Some(false),
            (true, false) => None,
        }
    }

    /// Bytes per minute of all growing rows together.
    pub fn per_minute(&self) -> u64 {
        self.growing().iter().map(|row| row.per_minute).fold(0, u64::saturating_add)
    }

    /// The row that began to grow first; among equal ones the steepest.
    pub fn first(&self) -> Option<&GrowingRow> {
        self.growing().iter().min_by_key(|row| row.since_ns)
    }

    /// The nanoseconds until the device is full if the growing rows go on at their rate.
    pub fn full_in_ns(&self) -> Option<u64> {
        let left = self.capacity?.saturating_sub(self.at_end);
        let ns = (u128::from(left) * MINUTE).checked_div(self.per_minute().into())?;
        u64::try_from(ns).ok()
    }
}

/// In nanoseconds.
const MINUTE: u128 = 60_000_000_000;

const SAMPLED: &str = "small blocks were sampled";

/// Why no row can be judged; `None` if rows can be.
fn what_is_missing(device: &DeviceView<'_>, time: &Intervals<'_>) -> Option<&'static str> {
    match () {
        () if device.records.is_empty() => Some("the recording has no log"),
        () if time.mean_ns() == 0 => Some("the recording has no times"),
        () if !device.gaps.is_empty() => Some("the log has gaps"),
        () if device.data().health.lost_blocks > 0 => Some("blocks were lost"),
        () if is_idle(device, time) => Some("in some of the 16 intervals nothing was allocated or freed"),
        () => None,
    }
}

/// Whether nothing happened in some interval after the warm-up. The last interval does not count.
fn is_idle(device: &DeviceView<'_>, time: &Intervals<'_>) -> bool {
    let mut is_busy: Vec<bool> = time.older.iter().map(|times| times.iter().any(|older| older.records > 0)).collect();
    is_busy.resize(INTERVALS, false);
    device.records.iter().for_each(|record| is_busy[time.place(record.time_ns)] = true);
    is_busy[WARM_UP..INTERVALS - 1].contains(&false)
}

/// Why the recording lacks its beginning. A row that rises in the part that is left may be a cache, cleared before.
fn lacks_its_beginning(device: &DeviceView<'_>, time: &Intervals<'_>) -> Option<&'static str> {
    match () {
        () if !time.older.is_empty() => {
            Some("of the time before the log, only the least of each stack or scope is known")
        }
        () if device.overwritten > 0 => Some("the log lacks its beginning"),
        () => None,
    }
}

fn in_doubt(device: &DeviceView<'_>, time: &Intervals<'_>, row: GrowingRow) -> GrowingRow {
    match (row.growth, lacks_its_beginning(device, time)) {
        (RowGrowth::Grows, Some(why)) => GrowingRow { growth: RowGrowth::MayGrow(why), ..row },
        _ => row,
    }
}

fn growing(row: &RowOverTime, time: &Intervals<'_>) -> Option<GrowingRow> {
    let growth = match judge(&row.floors)? {
        RowGrowth::Grows if row.is_estimate => RowGrowth::MayGrow(SAMPLED),
        growth => growth,
    };
    let floors = judged(&row.floors);
    let rate = |from: usize, to: usize| {
        let bytes = floors.get(to)?.saturating_sub(*floors.get(from)?);
        let ns = time.begin_ns(WARM_UP + to).saturating_sub(time.begin_ns(WARM_UP + from));
        Some(u64::try_from(u128::from(bytes) * MINUTE / u128::from(ns).max(1)).unwrap_or(u64::MAX))
    };
    let steps = || (1..floors.len()).filter_map(|to| rate(to - 1, to));
    let until = row.floors.get(..WARM_UP + floors.len())?;
    let pause = until.windows(2).rposition(|pair| pair[1] <= pair[0]);
    Some(GrowingRow {
        label: row.label.clone(),
        growth,
        per_minute: rate(0, floors.len() - 1)?,
        least_per_minute: steps().min()?,
        most_per_minute: steps().max()?,
        risen: floors.last()?.saturating_sub(*floors.first()?),
        at_end: row.at_end,
        since_ns: time.begin_ns(pause.map_or(0, |at| at + 1)),
    })
}
