//! Tables of stacks for failures. Each row has its line, and the first few have their callers.

use memtrace_core::analysis::line_and_callers;
use memtrace_core::analysis::runs::BlockOrigin;
use memtrace_core::attribute::{Attribution, operator};
use memtrace_core::export::table::{Cut, TextTable};
use memtrace_core::snapshot::{SnapshotData, StackId};

use super::measure::Measured;
use super::origins::in_snapshot;

const ROWS: usize = 10;
/// How many rows show their callers.
const WITH_CALLERS: usize = 3;
const CALLERS: usize = 4;

/// A stack and the leading cells of its row.
#[derive(Clone, Debug)]
pub(super) struct Labelled {
    pub(super) origin: BlockOrigin,
    pub(super) cells: Vec<String>,
}

/// Renders the table. The first rows show their callers, unless the row before has the same callers.
pub(super) fn table(
    header: &[&'static str],
    rows: impl IntoIterator<Item = Labelled>,
    measured: &Measured,
    data: &SnapshotData,
) -> String {
    let (numbers, data) = (in_snapshot(measured, data), &Attribution::new(data));
    let several = measured.devices().len() > 1;
    let header: Vec<&'static str> = header.iter().copied().chain(["Operator", "Location"]).collect();
    let mut table = TextTable::new(&header, Cut::Start);
    let mut before = Vec::new();
    let mut rows = rows.into_iter();
    for (at, Labelled { origin, mut cells }) in rows.by_ref().take(ROWS).enumerate() {
        let stack = numbers.get(&origin).copied().unwrap_or(StackId::NONE);
        let mut callers = line_and_callers(data, stack, CALLERS);
        if callers.is_empty() {
            continue;
        }
        let line = callers.remove(0);
        cells.push(operator(data, stack).map_or("-".to_owned(), |operator| operator.to_string()));
        cells.push(if several { format!("{}: {line}", origin.device) } else { line });
        let empty = cells.len() - 1;
        table.row(cells);
        if at < WITH_CALLERS && callers != before {
            for caller in &callers {
                table.row(below(empty, caller));
            }
        }
        before = callers;
    }
    let more = rows.count();
    let mut text = table.lines(110).join("\n") + "\n";
    if more > 0 {
        text.push_str(&format!("({more} more stacks)\n"));
    }
    text
}

fn below(cells: usize, caller: &str) -> Vec<String> {
    let mut row = vec![String::new(); cells];
    row.push(format!("  called at {caller}"));
    row
}
