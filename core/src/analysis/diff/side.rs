//! One side of a difference: its rows, with the data by which they are matched. A side needs no recording, and sides of
//! several recordings can be added up.

use std::collections::{BTreeMap, BTreeSet};

use super::DiffRow;
use crate::analysis::rows::Row;

/// The memory of a live set, or of several live sets together, by a key such as the line. It is compared with another
/// side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiffSide {
    /// By label.
    pub(super) rows: BTreeMap<String, SideRow>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SideRow {
    pub(super) bytes: u64,
    /// Blocks; `None` if only the bytes are known.
    pub(super) count: Option<u64>,
    /// The place of the row's line.
    pub(super) place: Option<Place>,
}

/// A line's place, which an edit can move.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// File and name.
    pub(super) function: (String, String),
    pub(super) number: u32,
    /// Bytes by the operator that allocated them.
    pub(super) operators: BTreeMap<String, u64>,
}

/// A matched pair of rows, or a row that only one side has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::analysis) struct MatchedRow {
    pub(super) label: String,
    pub(super) before: Option<(String, SideRow)>,
    pub(super) after: Option<(String, SideRow)>,
}

impl DiffSide {
    /// Merges rows with equal labels.
    pub(super) fn of_rows(rows: &[Row]) -> Self {
        let mut side = Self::default();
        for Row { label, bytes, count, .. } in rows {
            side.add_row(label, &SideRow { bytes: *bytes, count: *count, place: None });
        }
        side
    }

    /// Adds the rows of another side.
    pub fn add(&mut self, other: &Self) {
        other.rows.iter().for_each(|(label, row)| self.add_row(label, row));
    }

    /// Bytes of the row with this label, or 0.
    pub fn bytes(&self, label: &str) -> u64 {
        self.rows.get(label).map_or(0, |row| row.bytes)
    }

    fn add_row(&mut self, label: &str, row: &SideRow) {
        let Some(sum) = self.rows.get_mut(label) else {
            self.rows.insert(label.to_owned(), row.clone());
            return;
        };
        sum.bytes = sum.bytes.saturating_add(row.bytes);
        sum.count = sum.count.zip(row.count).map(|(sum, count)| sum.saturating_add(count));
        for (operator, bytes) in row.place.iter().flat_map(|place| &place.operators) {
            let Some(place) = &mut sum.place else { break };
            let of = place.operators.entry(operator.clone()).or_default();
            *of = of.saturating_add(*bytes);
        }
    }

    pub(super) fn has_places(&self) -> bool {
        self.rows.values().any(|row| row.place.is_some())
    }

    /// The rows of this side and of a later one, by label.
    pub(super) fn matched_by_label(&self, after: &Self) -> Vec<MatchedRow> {
        let labels: BTreeSet<&String> = self.rows.keys().chain(after.rows.keys()).collect();
        let of = |side: &Self, label: &String| side.rows.get(label).map(|row| (label.clone(), row.clone()));
        let matched =
            |label: &String| MatchedRow { label: label.clone(), before: of(self, label), after: of(after, label) };
        labels.into_iter().map(matched).collect()
    }
}

impl MatchedRow {
    /// The pair as one row of a difference.
    pub(in crate::analysis) fn row(&self) -> DiffRow {
        let (before, after) = (self.before.as_ref().map(|(_, row)| row), self.after.as_ref().map(|(_, row)| row));
        // A side that lacks the row has 0 blocks in it. If the side that has the row knows only its bytes, the number
        // of blocks is unknown on both sides.
        let none = before.or(after).and_then(|row| row.count).map(|_| 0);
        let blocks = |row: Option<&SideRow>| row.map_or(none, |row| none.and(row.count));
        DiffRow {
            label: self.label.clone(),
            before: before.map_or(0, |row| row.bytes),
            after: after.map_or(0, |row| row.bytes),
            blocks_before: blocks(before),
            blocks_after: blocks(after),
        }
    }

    /// The row's bytes in `before` and `after`, each of which is a part of a side, such as one rank.
    pub(in crate::analysis) fn bytes_in(&self, before: Option<&DiffSide>, after: Option<&DiffSide>) -> (u64, u64) {
        let of = |side: Option<&DiffSide>, row: &Option<(String, SideRow)>| {
            side.zip(row.as_ref()).map_or(0, |(side, (label, _))| side.bytes(label))
        };
        (of(before, &self.before), of(after, &self.after))
    }
}
