//! `timeline`: live memory over time, as a picture in the terminal or as SVG.

use memtrace_core::Bytes;
use memtrace_core::analysis::{Curve, curve, device_or_main};
use memtrace_core::export::CategoriesSvg;
use memtrace_core::snapshot::DeviceSnapshot;
use serde_json::json;

use crate::cli::TimelineArgs;
use crate::failure::CommandFailure;
use crate::{input, output};

const ROWS: usize = 16;

pub(crate) fn timeline(args: &TimelineArgs) -> Result<(), CommandFailure> {
    let selection = &args.reading.selection;
    let recording = input::read_selected(args.reading.file.as_deref(), &args.reading.selection)?;
    if let Some(path) = &args.output {
        return output::export(&recording.data, &CategoriesSvg { device: selection.device }, path);
    }
    let device = device_or_main(&recording.data, selection.device)
        .ok_or_else(|| CommandFailure::usage("nothing was recorded"))?;
    output::print_text(&if selection.json {
        as_json(device, curve(&recording.data, device, 1000))
    } else {
        picture(device, &curve(&recording.data, device, output::columns().clamp(40, 160) - 12))
    })
}

fn as_json(device: &DeviceSnapshot, curve: Curve) -> String {
    let Curve { from_ns, to_ns, columns } = curve;
    let columns: Vec<_> = columns.iter().map(|column| json!([column.lowest, column.highest])).collect();
    let device = device.device.to_string();
    let value = json!({ "version": 1, "device": device, "from_ns": from_ns, "to_ns": to_ns, "lowest_and_highest_bytes": columns });
    format!("{value}\n")
}

/// Columns of eighths of a character; the highest of each column counts.
fn picture(device: &DeviceSnapshot, curve: &Curve) -> String {
    let Curve { from_ns, to_ns, columns } = curve;
    let peak = columns.iter().map(|column| column.highest).max().unwrap_or(0).max(1);
    let mut text = format!("Live on {} over time; the peak is {}\n", device.device, Bytes(device.peak.total()));
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
    text += &format!("{:>10} └{}\n", "0 B", "─".repeat(columns.len()));
    let (from, to) = (seconds(*from_ns), seconds(*to_ns));
    text += &format!("{:12}{from}{to:>width$}\n", "", width = columns.len().saturating_sub(from.chars().count()));
    text
}

fn cell(bytes: u64, peak: u64, row: usize) -> char {
    const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
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
