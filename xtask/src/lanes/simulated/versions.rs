//! One training on two versions of candle in one program. It allocates the same in both, by line, at the peak and on the
//! way there. What differs is the stream: 0.9 allocates on the legacy one (0), 0.11 on the thread's own (2). Not in this
//! program, 0.11 copies strided ids before it adds gradients by index, and keeps small uploads for CUDA graphs.

use std::path::PathBuf;

use anyhow::{Result, ensure};

use super::builds;
use super::gpu::Call;
use super::preloaded::{End, Preloaded};
use super::report::{Device, Report, Row};

/// Of both, as reports name it.
pub(super) const SOURCE: &str = "candle-train/src/main.rs";

/// Lines that hold bytes at the peak. It is in the perceptron, whose 68,392 bytes of parameters AdamW has twice, for its
/// moments; one step of it takes 14 times the largest for a moment.
const HELD: [(&str, i64); 5] = [
    ("hidden: candle_nn::linear(256, 64", (256 * 64 + 64) * 4),
    ("head: candle_nn::linear(64, CLASSES", (64 * 10 + 10) * 4),
    ("AdamW::new_lr", 2 * (256 * 64 + 64 + 64 * 10 + 10) * 4),
    ("self.head.forward(&self.hidden", (3 * 64 + 2 * 10) * 8 * 4),
    ("let images = ", 8 * 16 * 16 * 4),
];

/// candle-train, on the version that memtrace is for. Its report is kept for the other one.
pub(super) fn newest(lane: &mut Preloaded<'_>, train: &Call<'_>) -> Result<()> {
    version(lane, "candle-train", train).map(drop)
}

/// The same on candle 0.9, and the tables of both.
pub(super) fn older(lane: &mut Preloaded<'_>) -> Result<()> {
    let manifest = lane.run.root.join("tests/simulated/candle-0.9/Cargo.toml");
    let option = format!("--manifest-path={}", manifest.display());
    let program = builds::with_toolkit(lane.run, &[&option])?;
    let name = "candle-train-0-9";
    let older = version(lane, name, &Call::of(lane.run, program.path(name)?))?;
    let newest = Report::read(&kept(lane, "candle-train")?)?;
    let compared = same(&rows(&newest)?, &rows(&older)?);
    lane.checks.result("candle-train and candle-train-0-9: the same rows", compared);
    Ok(())
}

fn kept(lane: &Preloaded<'_>, name: &str) -> Result<PathBuf> {
    Ok(lane.run.scratch("versions")?.join(format!("{name}.json")))
}

fn version(lane: &mut Preloaded<'_>, name: &str, call: &Call<'_>) -> Result<Report> {
    lane.both_recorded(name, call, End::Well, Some(SOURCE))?;
    let report = lane.report("report.json")?;
    let source = lane.run.shell.read_file("tests/simulated/candle-train/src/main.rs")?;
    for (text, bytes) in HELD {
        lane.checks.equal(&format!("{name}: bytes that {text} holds"), held(&report, &source, text)?, bytes);
    }
    lane.run.shell.copy_file(lane.path("report.json"), kept(lane, name)?)?;
    lane.no_notes(name, call)?;
    Ok(report)
}

/// At the peak, by the one line of the source with that text.
fn held(report: &Report, source: &str, text: &str) -> Result<i64> {
    let lines: Vec<usize> =
        (1..).zip(source.lines()).filter(|(_, line)| line.contains(text)).map(|(at, _)| at).collect();
    ensure!(lines.len() == 1, "{text:?} is in {} lines of the source", lines.len());
    let place = format!("/main.rs:{} ", lines[0]);
    let rows = report.gpus().flat_map(|device| &device.peak_by_line.rows);
    Ok(rows.filter(|row| format!("{} ", row.label).contains(&place)).map(|row| row.bytes).sum())
}

/// Bytes by line and by scope as text, wherever the line's file is.
fn rows(report: &Report) -> Result<Vec<String>> {
    let device = report.only("cuda:0")?;
    let mut rows: Vec<String> = lines_and_scopes(device).map(row).collect();
    ensure!(!rows.is_empty(), "no rows");
    rows.sort_unstable();
    Ok(rows)
}

fn lines_and_scopes(device: &Device) -> impl Iterator<Item = &Row> {
    device.lines().chain(&device.peak_by_scope.rows)
}

fn row(row: &Row) -> String {
    format!("{:?} {} {:?}", place(&row.label), row.bytes, row.others)
}

/// `main.rs:7` of `src/main.rs:7 (main)`.
fn place(label: &str) -> Option<&str> {
    let at = label.find("main.rs:")?;
    let digits = label[at + "main.rs:".len()..].find(|c: char| !c.is_ascii_digit());
    Some(digits.map_or(&label[at..], |digits| &label[at..at + "main.rs:".len() + digits]))
}

fn same(one: &[String], other: &[String]) -> Result<String> {
    let only = |of: &[String], not: &[String]| of.iter().find(|row| !not.contains(row)).cloned();
    let first = only(one, other).or_else(|| only(other, one));
    ensure!(one == other, "{} and {} rows; first one that only one has: {first:?}", one.len(), other.len());
    Ok(format!("{} rows", one.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_lines_of_the_main_file() {
        assert_eq!(place("/a/candle-train/src/main.rs:71 (new)"), Some("main.rs:71"));
        assert_eq!(place("src/main.rs:71"), Some("main.rs:71"));
        assert_eq!(place("(no scope)"), None);
    }

    #[test]
    fn rows_of_two_reports_are_the_same_or_not() {
        let rows = ["a", "b"].map(str::to_owned);
        assert_eq!(same(&rows, &rows).unwrap(), "2 rows");
        let error = same(&rows, &rows[..1]).unwrap_err().to_string();
        assert_eq!(error, "2 and 1 rows; first one that only one has: Some(\"b\")");
    }
}
