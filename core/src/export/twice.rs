//! What was live twice, in words and as JSON.

use serde_json::{Value, json};

use super::table::{Cut, Table};
use crate::analysis::{LiveTwice, live_twice};
use crate::snapshot::{DeviceSnapshot, SnapshotData};
use crate::units::{Bytes, grouped};

/// How many lines of a row are shown.
const LINES: usize = 4;

/// Heading and lines, where there is something to say; at most `rows` rows.
pub(super) fn section(
    data: &SnapshotData,
    device: &DeviceSnapshot,
    rows: usize,
    width: usize,
) -> Option<(&'static str, Vec<String>)> {
    let found = live_twice(data, device);
    let mut table = Table::new(&["Older", "Peak then", "Count", "Each", "Location"], Cut::Start);
    for row in found.iter().take(rows) {
        table.row(vec![
            Bytes(row.older).to_string(),
            row.peak_without
                .map_or("unknown".to_owned(), |bytes| Bytes(bytes + device.peak.below_threshold).to_string()),
            grouped(row.count),
            Bytes(row.size).to_string(),
            row.lines.first().cloned().unwrap_or_default(),
        ]);
        let (shown, more) = row.lines.split_at(row.lines.len().min(LINES));
        let more = (!more.is_empty()).then(|| format!("then {} more lines", more.len()));
        for line in shown.iter().skip(1).map(|line| format!("then {line}")).chain(more) {
            table.row([vec![String::new(); 4], vec![line]].concat());
        }
    }
    let mut lines = vec![
        "Of one size, held by one function and freed as variables are at its end. If nobody reads the older ones any"
            .into(),
        "more, as after `let x = f(&x)`, the peak could be lower: \"then\", if each went when the next one is there."
            .into(),
    ];
    lines.extend(table.lines(width));
    (!found.is_empty()).then_some(("Live twice", lines))
}

/// The same rows, where there are any.
pub(super) fn rows(data: &SnapshotData, device: &DeviceSnapshot) -> Option<Value> {
    let row = |row: &LiveTwice| {
        json!({
            "lines": row.lines,
            "size": row.size,
            "count": row.count,
            "older_bytes": row.older,
            "peak_without_bytes": row.peak_without,
        })
    };
    let found = live_twice(data, device);
    (!found.is_empty()).then(|| found.iter().map(row).collect())
}
