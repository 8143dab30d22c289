//! Live bytes over time, in columns of equal time, for charts of a given width.

use super::columns::Columns;
use crate::recording::DeviceView;

/// The lowest and the highest total within a column's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CurveColumn {
    /// Lowest total, in bytes.
    pub lowest: u64,
    /// Highest total, in bytes.
    pub highest: u64,
}

/// Live bytes over the time of the log. On the CPU, blocks below the threshold are missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Curve {
    /// Where the curve begins, in nanoseconds since the recording began.
    pub from_ns: u64,
    /// Where the curve ends.
    pub to_ns: u64,
    /// Columns of equal time.
    pub columns: Vec<CurveColumn>,
}

/// The curve of a device, in `columns` columns.
pub fn curve(device: &DeviceView<'_>, columns: usize) -> Curve {
    let time = Columns::of(device, columns);
    let mut found: Vec<Option<CurveColumn>> = vec![None; columns];
    time.totals(device, |column, _, bytes| {
        let CurveColumn { lowest, highest } = found[column].unwrap_or(CurveColumn { lowest: bytes, highest: bytes });
        found[column] = Some(CurveColumn { lowest: lowest.min(bytes), highest: highest.max(bytes) });
    });
    let columns = found.into_iter().map(Option::unwrap_or_default).collect();
    Curve { from_ns: time.from_ns, to_ns: time.to_ns, columns }
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
        let columns = curve(&DeviceView::of(&data, &data.devices[0]), 4).columns;
        let expected = [(0, 1000), (1000, 6000), (1000, 1000), (0, 1000)];
        assert_eq!(columns.iter().map(|column| (column.lowest, column.highest)).collect::<Vec<_>>(), expected);
    }
}
