//! Tables of stacks: each with its line, and the first with their callers.

use super::measure::Measured;
use super::origins::{Origin, in_snapshot};
use crate::analysis::line_and_callers;
use crate::attribute::operator;
use crate::export::table::{Cut, Table};
use crate::snapshot::{SnapshotData, StackId};

const ROWS: usize = 10;
/// Rows that show their callers.
const WITH_CALLERS: usize = 3;
const CALLERS: usize = 4;

/// A stack and what is to be said of it.
#[derive(Clone, Debug)]
pub(super) struct Labelled {
    pub(super) origin: Origin,
    pub(super) cells: Vec<String>,
}

/// With what the snapshot knows of each.
pub(super) fn labelled(
    rows: impl Iterator<Item = Labelled>,
    measured: &Measured,
    data: &SnapshotData,
) -> Vec<(Vec<String>, Vec<String>)> {
    let numbers = in_snapshot(measured, data);
    let several = measured.devices().len() > 1;
    rows.map(|Labelled { origin, mut cells }| {
        let stack = numbers.get(&origin).copied().unwrap_or(StackId::NONE);
        cells.push(operator(data, stack).map_or("-".to_owned(), |operator| operator.to_string()));
        let mut lines = line_and_callers(data, stack, CALLERS);
        if let Some(first) = lines.first_mut().filter(|_| several) {
            first.insert_str(0, &format!("{}: ", origin.device));
        }
        (cells, lines)
    })
    .collect()
}

/// As text. The first rows show their callers, where they are others than the row before has.
pub(super) fn table(header: &[&'static str], rows: &[(Vec<String>, Vec<String>)]) -> String {
    let header: Vec<&'static str> = header.iter().copied().chain(["Operator", "Location"]).collect();
    let mut table = Table::new(&header, Cut::Start);
    let mut before: &[String] = &[];
    for (at, (cells, lines)) in rows.iter().take(ROWS).enumerate() {
        let Some((line, callers)) = lines.split_first() else { continue };
        table.row(cells.iter().chain([line]).cloned().collect());
        if at < WITH_CALLERS && callers != before {
            callers.iter().for_each(|caller| table.row(below(cells.len(), caller)));
        }
        before = callers;
    }
    let mut text = table.lines(110).join("\n") + "\n";
    if rows.len() > ROWS {
        text.push_str(&format!("({} more stacks)\n", rows.len() - ROWS));
    }
    text
}

fn below(cells: usize, caller: &str) -> Vec<String> {
    let mut row = vec![String::new(); cells];
    row.push(format!("  called at {caller}"));
    row
}
