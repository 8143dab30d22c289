//! One training program on three versions of candle. In each version it allocates the same bytes by line, at the peak
//! and over time. Only the CUDA stream differs: 0.9 allocates on the legacy stream (0), 0.11 on the per-thread default
//! stream (2).
//!
//! Two other differences do not occur in this program. 0.11 copies strided ids before it adds gradients by index, and
//! keeps small uploads for CUDA graphs.

use std::path::PathBuf;

use anyhow::{Result, ensure};

use super::builds;
use super::command::GpuCommand;
use super::preloaded::{AllowedExit, Preloaded};
use crate::lanes::report::{JsonReport, ReportRow};

/// Source file of both programs, as reports show it.
pub(super) const SOURCE: &str = "candle-train/src/main.rs";

/// Source lines and the bytes that they hold at the peak, which is in an optimizer step of the perceptron. AdamW keeps
/// two copies of the 68,392 bytes of parameters, for its moments. A step briefly needs 14 times the largest parameter.
const HELD_AT_PEAK: [(&str, i64); 5] = [
    ("hidden: candle_nn::linear(256, 64", (256 * 64 + 64) * 4),
    ("head: candle_nn::linear(64, CLASSES", (64 * 10 + 10) * 4),
    ("AdamW::new_lr", 2 * (256 * 64 + 64 + 64 * 10 + 10) * 4),
    ("self.head.forward(&self.hidden", (3 * 64 + 2 * 10) * 8 * 4),
    ("let images = ", 8 * 16 * 16 * 4),
];

/// Runs candle-train on the supported version, and keeps the report for [`older`].
pub(super) fn newest(lane: &mut Preloaded<'_>, train: &GpuCommand<'_>) -> Result<()> {
    version(lane, "candle-train", train).map(drop)
}

/// Runs the program on candle 0.9 and 0.10, and compares their tables with those of the newest version.
pub(super) fn older(lane: &mut Preloaded<'_>) -> Result<()> {
    let newest = rows(&JsonReport::read(&kept_report(lane, "candle-train")?)?)?;
    for number in ["0.9", "0.10"] {
        let manifest = lane.run.root.join(format!("tests/simulated/candle-{number}/Cargo.toml"));
        let program = builds::with_toolkit(lane.run, &[&format!("--manifest-path={}", manifest.display())])?;
        let name = format!("candle-train-{}", number.replace('.', "-"));
        let older = version(lane, &name, &GpuCommand::of(lane.run, program.path(&name)?))?;
        let compared = same_rows(&newest, &rows(&older)?);
        lane.checks.result(&format!("candle-train and {name}: the same rows"), compared);
    }
    Ok(())
}

fn kept_report(lane: &Preloaded<'_>, name: &str) -> Result<PathBuf> {
    Ok(lane.run.scratch("versions")?.join(format!("{name}.json")))
}

fn version(lane: &mut Preloaded<'_>, name: &str, command: &GpuCommand<'_>) -> Result<JsonReport> {
    lane.both_recorded(name, command, AllowedExit::Success, Some(SOURCE))?;
    let report = lane.report("report.json")?;
    let source = lane.run.shell.read_file("tests/simulated/candle-train/src/main.rs")?;
    for (text, bytes) in HELD_AT_PEAK {
        lane.checks.equal(&format!("{name}: bytes that {text} holds"), held_at_peak(&report, &source, text)?, bytes);
    }
    lane.run.shell.copy_file(lane.path("report.json"), kept_report(lane, name)?)?;
    lane.no_notes(name, command)?;
    Ok(report)
}

/// Bytes that the only source line with this text holds at the peak.
fn held_at_peak(report: &JsonReport, source: &str, text: &str) -> Result<i64> {
    let lines: Vec<usize> =
        (1..).zip(source.lines()).filter(|(_, line)| line.contains(text)).map(|(at, _)| at).collect();
    ensure!(lines.len() == 1, "{text:?} is in {} lines of the source", lines.len());
    let site = format!("/main.rs:{} ", lines[0]);
    let rows = report.gpus().flat_map(|device| &device.peak_by_line.rows);
    Ok(rows.filter(|row| format!("{} ", row.label).contains(&site)).map(|row| row.bytes).sum())
}

/// Bytes by line and by scope as text, without the folders of files.
fn rows(report: &JsonReport) -> Result<Vec<String>> {
    let device = report.only("cuda:0")?;
    let mut rows: Vec<String> = device.lines().chain(&device.peak_by_scope.rows).map(row).collect();
    ensure!(!rows.is_empty(), "no rows");
    rows.sort_unstable();
    Ok(rows)
}

fn row(row: &ReportRow) -> String {
    format!("{:?} {} {:?}", main_file_line(&row.label), row.bytes, row.others)
}

/// The part `main.rs:7` of a label such as `src/main.rs:7 (main)`.
fn main_file_line(label: &str) -> Option<&str> {
    let at = label.find("main.rs:")?;
    let digits = label[at + "main.rs:".len()..].find(|c: char| !c.is_ascii_digit());
    Some(digits.map_or(&label[at..], |digits| &label[at..at + "main.rs:".len() + digits]))
}

fn same_rows(one: &[String], other: &[String]) -> Result<String> {
    let only = |of: &[String], not: &[String]| of.iter().find(|row| !not.contains(row)).cloned();
    let first = only(one, other).or_else(|| only(other, one));
    ensure!(one == other, "{} and {} rows; first row in only one of them: {first:?}", one.len(), other.len());
    Ok(format!("{} rows", one.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_main_file_are_found_in_labels() {
        assert_eq!(main_file_line("/a/candle-train/src/main.rs:71 (new)"), Some("main.rs:71"));
        assert_eq!(main_file_line("src/main.rs:71"), Some("main.rs:71"));
        assert_eq!(main_file_line("(no scope)"), None);
    }

    #[test]
    fn a_row_in_only_one_report_is_an_error() {
        let rows = ["a", "b"].map(str::to_owned);
        assert_eq!(same_rows(&rows, &rows).unwrap(), "2 rows");
        let error = same_rows(&rows, &rows[..1]).unwrap_err().to_string();
        assert_eq!(error, "2 and 1 rows; first row in only one of them: Some(\"b\")");
    }
}
