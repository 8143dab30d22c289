//! Live bytes over time, in columns of equal time: what a picture of so many pixels needs.

use super::log;
use crate::snapshot::{DeviceSnapshot, SnapshotData};

/// The lowest and the highest total within a column's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CurveColumn {
    /// Bytes.
    pub lowest: u64,
    /// Bytes.
    pub highest: u64,
}

/// Live bytes over time, as far as the log reaches back; on the CPU without blocks below the threshold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Curve {
    /// Where it begins: nanoseconds since the recording began.
    pub from_ns: u64,
    /// Where it ends.
    pub to_ns: u64,
    /// Columns of equal time.
    pub columns: Vec<CurveColumn>,
}

/// The curve of a device in `columns` columns.
pub fn curve(data: &SnapshotData, device: &DeviceSnapshot, columns: usize) -> Curve {
    let from_ns = log::start_ns(device);
    let last = device.records.last().map_or(0, |record| record.time_ns);
    let to_ns = data.process.duration_ns.max(last).max(from_ns + 1);
    let place = |ns: u64| {
        let part = u128::from(ns.saturating_sub(from_ns)) * columns as u128 / u128::from(to_ns - from_ns);
        (part as usize).min(columns.saturating_sub(1))
    };
    let mut found: Vec<Option<CurveColumn>> = vec![None; columns];
    let mut now = log::allocated_at_start(device);
    let mut at = 0;
    add(&mut found, at, now);
    for moment in log::entries(device) {
        let to = place(moment.record.time_ns);
        // What was live before lasts until here.
        (at..=to).for_each(|column| add(&mut found, column, now));
        now = moment.allocated;
        add(&mut found, to, now);
        at = to;
    }
    (at..columns).for_each(|column| add(&mut found, column, now));
    Curve { from_ns, to_ns, columns: found.into_iter().map(Option::unwrap_or_default).collect() }
}

fn add(columns: &mut [Option<CurveColumn>], at: usize, bytes: u64) {
    if let Some(column) = columns.get_mut(at) {
        let CurveColumn { lowest, highest } = column.unwrap_or(CurveColumn { lowest: bytes, highest: bytes });
        *column = Some(CurveColumn { lowest: lowest.min(bytes), highest: highest.max(bytes) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::testing::{LINE_7, Story};

    #[test]
    fn an_instant_of_a_column_is_in_it_and_the_rest_lasts() {
        let mut story = Story::cpu();
        story.lasting(4_000);
        story.at(100).alloc("a", 1000).on(LINE_7);
        story.at(1_100).alloc("b", 5000).on(LINE_7);
        story.at(1_200).free("b");
        story.at(3_500).free("a");
        let data = story.build();
        let columns = curve(&data, &data.devices[0], 4).columns;
        let expected = [(0, 1000), (1000, 6000), (1000, 1000), (0, 1000)];
        assert_eq!(columns.iter().map(|column| (column.lowest, column.highest)).collect::<Vec<_>>(), expected);
    }
}
