//! JSON serializer of any report: the cells of its text as values. ([`Json`](super::Json) exports a whole recording.)

use serde_json::{Map, Value, json};

use crate::report::{Cell, Cost, Finding, Report, Section};

/// Grows when a key is gone or has another meaning.
const VERSION: u32 = 1;

/// A report as JSON: bytes are integers, times are nanoseconds, unknown figures are `null`. A row is an object by the
/// titles of its columns, in lower case.
pub fn report_json(report: &Report) -> Value {
    json!({
        "version": VERSION,
        "title": report.title,
        "answer": report.answer,
        "findings": report.findings.iter().map(finding).collect::<Vec<_>>(),
        "notes": report.notes,
        "sections": report.sections.iter().map(section).collect::<Vec<_>>(),
    })
}

fn finding(finding: &Finding) -> Value {
    let (unit, cost) = match finding.cost {
        Cost::OfPeak(bytes) => ("bytes_of_peak", bytes),
        Cost::AtEnd(bytes) => ("bytes_at_end", bytes),
        Cost::Unusable(bytes) => ("bytes_unusable", bytes),
        Cost::Time(ns) => ("ns", ns),
        Cost::Written(bytes) => ("bytes_written", bytes),
    };
    json!({
        "kind": finding.kind.word(),
        "what": finding.what,
        "line": finding.line,
        "unit": unit,
        "cost": cost,
        "certainty": finding.certainty(),
        "confidence": finding.confidence.word(),
        "why": finding.why,
        "advice": finding.advice,
    })
}

fn section(section: &Section) -> Value {
    let row = |row: &Vec<Cell>| {
        let titles = section.columns.iter().map(|title| key(title));
        Value::Object(titles.zip(row).map(|(title, cell)| (title, value(cell))).collect::<Map<_, _>>())
    };
    json!({
        "key": section.key,
        "title": section.title,
        "estimate": section.is_estimate,
        "about": section.about,
        "rows": section.rows.iter().map(row).collect::<Vec<_>>(),
        "notes": section.notes,
    })
}

/// `Own peak` is `own_peak`, `%` is `share`.
fn key(title: &str) -> String {
    if title == "%" { "share".to_owned() } else { title.to_lowercase().replace(' ', "_") }
}

fn value(cell: &Cell) -> Value {
    match cell {
        Cell::Nothing | Cell::Unknown | Cell::Share { whole: 0, .. } => Value::Null,
        Cell::Bytes(number) | Cell::Sum(number) | Cell::Count(number) | Cell::Time(number) => (*number).into(),
        Cell::Signed(number) | Cell::Change(number) | Cell::Exactly(number) => (*number).into(),
        Cell::Share { part, whole } => (*part as f64 / *whole as f64).into(),
        Cell::Text(text) => text.as_str().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::ReportOptions;
    use crate::snapshot::testing::two_lines_and_a_temporary;

    #[test]
    fn rows_are_objects_of_exact_numbers() {
        let data = two_lines_and_a_temporary();
        let options = ReportOptions { sections: vec!["peak_by_line".into()], ..ReportOptions::default() };
        let value = report_json(&Report::of(&data, &options).unwrap());
        let row = &value["sections"][0]["rows"][0];
        assert_eq!(
            (&row["mem"], &row["blocks"], &row["location"]),
            (&json!(3000), &json!(2), &json!("src/model.rs:7 (Net::forward)"))
        );
    }
}
