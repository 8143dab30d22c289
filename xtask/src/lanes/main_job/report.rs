//! report.json of the example resnet, held against theory.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::checks::Checks;

#[derive(Debug, Deserialize)]
pub(super) struct Report {
    devices: Vec<Device>,
}

#[derive(Clone, Debug, Deserialize)]
struct Device {
    peak: Peak,
    peak_by_line: Table,
    peak_by_function: Table,
    peak_by_scope: Table,
    live_by_line: Table,
    stats: Stats,
    scopes: Vec<Scope>,
    records: u64,
    records_overwritten: u64,
}

#[derive(Clone, Debug, Deserialize)]
struct Peak {
    bytes: u64,
    total_bytes: u64,
}

#[derive(Clone, Debug, Deserialize)]
struct Table {
    rows: Vec<Row>,
}

#[derive(Clone, Debug, Deserialize)]
struct Row {
    bytes: u64,
}

#[derive(Clone, Debug, Deserialize)]
struct Stats {
    #[serde(rename = "allocated_bytes.all.current")]
    live: u64,
    #[serde(rename = "allocation.all.freed")]
    frees: u64,
    below_threshold_bytes: u64,
}

#[derive(Clone, Debug, Deserialize)]
struct Scope {
    path: String,
    own_peak_bytes: u64,
    total_peak_bytes: Option<u64>,
}

/// Trainable parameters of ResNet-50, and running statistics of its norms, in numbers of four bytes.
const PARAMETER_BYTES: u64 = (25_557_032 + 53_120) * 4;

pub(super) fn read(path: &Path) -> Result<Report> {
    let text = std::fs::read(path).with_context(|| path.display().to_string())?;
    serde_json::from_slice(&text).with_context(|| path.display().to_string())
}

pub(super) fn check(checks: &mut Checks, report: &Report, pickle_bytes: u64) {
    let Some(device) = report.devices.first() else { return checks.fail("the report has no device") };
    sums(checks, device);
    iterations(checks, device);
    parameters(checks, device);
    if device.records_overwritten == 0 {
        let entries = device.records + device.stats.frees;
        let each = pickle_bytes as f64 / entries as f64;
        checks.that(&format!("snapshot.pickle: {each:.1} bytes an entry, {entries} entries"), each <= 70.0);
    }
}

/// To the byte.
fn sums(checks: &mut Checks, device: &Device) {
    let tables =
        [("line", &device.peak_by_line), ("function", &device.peak_by_function), ("scope", &device.peak_by_scope)];
    for (name, table) in tables {
        checks.equal(&format!("sum of the rows at the peak by {name}"), table.sum(), device.peak.total_bytes);
    }
    let live = device.stats.live + device.stats.below_threshold_bytes;
    checks.equal("sum of the rows of live blocks by line", device.live_by_line.sum(), live);
}

/// From the second on, all have the same peak but for a thousandth, by how many threads work; with one, to the byte.
fn iterations(checks: &mut Checks, device: &Device) {
    let is_iteration = |scope: &&Scope| scope.path.strip_prefix("iteration ").is_some_and(|n| n.parse::<u32>().is_ok());
    let peaks: Vec<u64> =
        device.scopes.iter().filter(is_iteration).filter_map(|scope| scope.total_peak_bytes).collect();
    let later = peaks.get(1..).unwrap_or_default();
    let (Some(least), Some(most)) = (later.iter().min(), later.iter().max()) else {
        return checks.fail("the report has no second iteration");
    };
    let one_thread = std::env::var("RAYON_NUM_THREADS").is_ok_and(|threads| threads == "1");
    let apart = most - least;
    checks.that(&format!("peaks of later iterations: {later:?}"), apart == 0 || !one_thread && apart * 1000 <= *most);
    checks.equal("the largest of all iterations", peaks.iter().max(), Some(&device.peak.bytes));
}

/// Those of 64 KiB or more, which are recorded.
fn parameters(checks: &mut Checks, device: &Device) {
    let load = device.scopes.iter().find(|scope| scope.path == "load").map_or(0, |scope| scope.own_peak_bytes);
    let holds = load <= PARAMETER_BYTES && load * 100 > PARAMETER_BYTES * 99;
    checks.that(&format!("parameters: {load} bytes of {PARAMETER_BYTES} in theory"), holds);
}

impl Table {
    fn sum(&self) -> u64 {
        self.rows.iter().map(|row| row.bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A report of two iterations that is right.
    fn right() -> Device {
        let table = |bytes: &[u64]| Table { rows: bytes.iter().map(|&bytes| Row { bytes }).collect() };
        let scope = |path: &str, own_peak_bytes, total| Scope {
            path: path.into(),
            own_peak_bytes,
            total_peak_bytes: Some(total),
        };
        Device {
            peak: Peak { bytes: 900, total_bytes: 1000 },
            peak_by_line: table(&[600, 400]),
            peak_by_function: table(&[1000]),
            peak_by_scope: table(&[999, 1]),
            live_by_line: table(&[70, 30]),
            stats: Stats { live: 90, frees: 10, below_threshold_bytes: 10 },
            scopes: vec![scope("load", PARAMETER_BYTES, 0), scope("iteration 1", 0, 800), scope("iteration 2", 0, 900)],
            records: 20,
            records_overwritten: 0,
        }
    }

    fn failed(device: Device, pickle_bytes: u64) -> Option<String> {
        let mut checks = Checks::default();
        check(&mut checks, &Report { devices: vec![device] }, pickle_bytes);
        checks.end().err().map(|error| error.to_string())
    }

    #[test]
    fn a_right_report_passes_and_each_wrong_figure_fails() {
        assert_eq!(failed(right(), 2000), None);
        assert_eq!(failed(right(), 2101).unwrap(), "1 of 8 checks failed");
        let wrong: [fn(&mut Device); 6] = [
            |device| device.peak_by_line.rows[0].bytes += 1,
            |device| device.peak_by_function.rows.clear(),
            |device| device.peak_by_scope.rows[1].bytes = 0,
            |device| device.stats.live += 1,
            |device| device.scopes[2].total_peak_bytes = Some(901),
            |device| device.scopes[0].own_peak_bytes = PARAMETER_BYTES * 98 / 100,
        ];
        for change in wrong {
            let mut device = right();
            change(&mut device);
            assert_eq!(failed(device, 2000).unwrap(), "1 of 8 checks failed");
        }
    }

    #[test]
    fn later_iterations_that_are_apart_fail() {
        let mut device = right();
        device.scopes.push(Scope { path: "iteration 3".into(), own_peak_bytes: 0, total_peak_bytes: Some(898) });
        assert!(failed(device, 2000).is_some());
    }
}
