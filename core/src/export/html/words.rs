//! The page's texts: the report, with each table cell as text and as the number to sort by.

use serde_json::{Value, json};

use crate::export::json::FindingFigures;
use crate::export::text::cell_text;
use crate::report::{Cell, Report, Section, sampled};

pub(super) fn report(report: &Report) -> Value {
    json!({
        "title": report.title,
        "answer": report.answer,
        "findings": report.findings.iter().map(FindingFigures::of).collect::<Vec<_>>(),
        "notes": report.notes,
        "totals": report.totals,
        "sections": report.sections.iter().map(section).collect::<Vec<_>>(),
    })
}

fn section(section: &Section) -> Value {
    let about = if section.is_estimate { sampled::ABOUT } else { "" };
    let row =
        |row: &Vec<Cell>| row.iter().map(|cell| json!([number(cell), cell_text(cell, about)])).collect::<Vec<_>>();
    json!({
        "key": section.key,
        "title": section.title,
        "estimate": section.is_estimate,
        "about": section.about,
        "columns": section.columns,
        "rows": section.rows.iter().map(row).collect::<Vec<_>>(),
        "notes": section.notes,
    })
}

/// The number by which a column is sorted; `null` for texts.
fn number(cell: &Cell) -> Value {
    match cell {
        Cell::Nothing | Cell::Unknown | Cell::Text(_) | Cell::Share { whole: 0, .. } => Value::Null,
        Cell::Bytes(number) | Cell::Sum(number) | Cell::Count(number) | Cell::Time(number) => (*number).into(),
        Cell::Signed(number) | Cell::Change(number) | Cell::Exactly(number) => (*number).into(),
        Cell::Share { part, whole } => (*part as f64 / *whole as f64).into(),
    }
}
