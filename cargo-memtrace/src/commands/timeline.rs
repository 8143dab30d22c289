//! `timeline`: live memory over time, as a picture in the terminal or as SVG.

use std::path::PathBuf;

use clap::Args;
use memtrace_core::analysis::{Curve, Key, KeyTimeline, TimelineRow, curve, key_timeline};
use memtrace_core::export::TimelineSvg;
use memtrace_core::snapshot::DeviceSnapshot;
use memtrace_core::{Bytes, Recording, visible};
use serde_json::json;

use crate::arguments::{self, ReadingArgs};
use crate::failure::CommandFailure;
use crate::{input, output};

/// Draw live memory over time
#[derive(Args)]
#[command(after_help = "Examples:
  cargo memtrace timeline                        the total, in the terminal
  cargo memtrace timeline --by operator          a row for each of the largest operators
  cargo memtrace timeline --by line -o lines.svg")]
pub(crate) struct TimelineArgs {
    #[command(flatten)]
    reading: ReadingArgs,
    /// Show each of the largest as a row (terminal) or an area (SVG) [default: the total; in SVG, categories]
    #[arg(long, value_name = "KEY", value_parser = arguments::key_over_time())]
    by: Option<Key>,
    /// Write an SVG file, or - for the standard output, in place of a picture in the terminal
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

const ROWS: usize = 16;

pub(crate) fn run(args: &TimelineArgs) -> Result<(), CommandFailure> {
    let selection = &args.reading.selection;
    let recording = input::read_selected(args.reading.file.as_deref(), &args.reading.selection)?;
    if let Some(path) = &args.output {
        let by = args.by.unwrap_or(Key::Category);
        let path = output::named(Some(path), &recording.path, "svg")?;
        return output::export(&recording.data, &TimelineSvg { device: selection.device, by }, &path);
    }
    let views = Recording::new(&recording.data);
    let device = input::device_of(&views, selection)?;
    let columns = output::columns().clamp(40, 160) - 12;
    match (args.by, selection.json) {
        (None, true) => output::print_json(as_json(device, curve(device, 1000))),
        (None, false) => output::print_lines(picture(&title(device), &curve(device, columns)).lines()),
        (Some(by), true) => {
            let timeline = key_timeline(device, by, 1000, selection.top);
            output::print_json(rows_as_json(device, &timeline))
        }
        (Some(by), false) => {
            let timeline = key_timeline(device, by, columns, selection.top.min(ROWS));
            output::print_lines(rows_of(device, &timeline))
        }
    }
}

fn rows_as_json(device: &DeviceSnapshot, timeline: &KeyTimeline) -> String {
    let row = |row: &TimelineRow| json!({ "label": row.label, "highest": row.highest, "bytes": row.columns });
    let value = json!({
        "version": 1,
        "device": device.device.to_string(),
        "from_ns": timeline.from_ns,
        "to_ns": timeline.to_ns,
        "rows": timeline.rows.iter().map(row).collect::<Vec<_>>(),
        "highest_bytes": timeline.totals,
    });
    format!("{value:#}\n")
}

/// Two lines for each key: its name with its maximum, and its bytes over time. All keys have one scale.
fn rows_of(device: &DeviceSnapshot, timeline: &KeyTimeline) -> Vec<String> {
    let largest = timeline.rows.iter().map(|row| row.highest).max().unwrap_or(0).max(1);
    let mut lines = vec![format!(
        "Live on {} over time; the peak is {}, and a full block is {}",
        device.device,
        Bytes(device.peak.total()),
        Bytes(largest)
    )];
    for TimelineRow { label, highest, columns } in &timeline.rows {
        let cells: String = columns.iter().map(|bytes| level(*bytes, largest)).collect();
        let label: String = visible::line(label).chars().take(columns.len()).collect();
        lines.push(format!("{:>10}  {label}", Bytes(*highest).to_string()));
        lines.push(format!("{:10} │{}", "", cells.trim_end()));
    }
    lines.extend(axis(timeline.from_ns, timeline.to_ns, timeline.totals.len()).lines().map(str::to_owned));
    lines
}

fn level(bytes: u64, largest: u64) -> char {
    let eighths = (u128::from(bytes) * 8).div_ceil(u128::from(largest.max(1))) as usize;
    EIGHTHS[eighths.min(8)]
}

fn as_json(device: &DeviceSnapshot, curve: Curve) -> String {
    let Curve { from_ns, to_ns, columns } = curve;
    let columns: Vec<_> = columns.iter().map(|column| json!([column.lowest, column.highest])).collect();
    let device = device.device.to_string();
    let value = json!({ "version": 1, "device": device, "from_ns": from_ns, "to_ns": to_ns, "lowest_and_highest_bytes": columns });
    format!("{value}\n")
}

fn title(device: &DeviceSnapshot) -> String {
    format!("Live on {} over time; the peak is {}", device.device, Bytes(device.peak.total()))
}

/// Draws columns in eighths of a character. The highest value of each column counts.
pub(super) fn picture(title: &str, curve: &Curve) -> String {
    let Curve { from_ns, to_ns, columns } = curve;
    let peak = columns.iter().map(|column| column.highest).max().unwrap_or(0).max(1);
    let mut text = format!("{title}\n");
    for row in (0..ROWS).rev() {
        let label = if row == ROWS - 1 || row == ROWS / 2 - 1 {
            Bytes(peak * (row as u64 + 1) / ROWS as u64).to_string()
        } else {
            String::new()
        };
        let cells: String = columns.iter().map(|column| cell(column.highest, peak, row)).collect();
        text += format!("{label:>10} │{cells}").trim_end();
        text.push('\n');
    }
    text + &axis(*from_ns, *to_ns, columns.len())
}

fn axis(from_ns: u64, to_ns: u64, columns: usize) -> String {
    let (from, to) = (seconds(from_ns), seconds(to_ns));
    let width = columns.saturating_sub(from.chars().count());
    format!("{:>10} └{}\n{:12}{from}{to:>width$}\n", "0 B", "─".repeat(columns), "")
}

const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

fn cell(bytes: u64, peak: u64, row: usize) -> char {
    let filled = (u128::from(bytes) * 8 * ROWS as u128).div_ceil(u128::from(peak)) as usize;
    EIGHTHS[filled.saturating_sub(8 * row).min(8)]
}

fn seconds(ns: u64) -> String {
    format!("{:.3} s", ns as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_filled_from_below_to_its_height() {
        assert_eq!(
            [cell(0, 100, 0), cell(100, 100, ROWS - 1), cell(50, 100, ROWS / 2 - 1), cell(50, 100, ROWS / 2)],
            [' ', '█', '█', ' ']
        );
        assert_eq!(cell(1, 1 << 40, 0), '▁', "what is live is seen");
    }
}
