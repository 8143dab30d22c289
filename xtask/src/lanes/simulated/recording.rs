//! Comparison of a report with the simulator's log: allocations and peak of every device, and no loss in the recording.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::path::Path;

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::log::{DeviceTotals, SimulatorLog};
use crate::lanes::report::{DeviceReport, DriverBalance, JsonReport, PoolReport};

/// Descriptions of all figures that differ.
#[derive(Debug, Default)]
pub(super) struct Differences(Vec<String>);

impl Differences {
    pub(super) fn equal<T: PartialEq + Debug>(&mut self, what: &str, actual: T, expected: T) {
        if actual != expected {
            self.0.push(format!("{what}: {actual:?}, not {expected:?}"));
        }
    }

    pub(super) fn end(self) -> Result<()> {
        if !self.0.is_empty() {
            bail!("\n      {}", self.0.join("\n      "));
        }
        Ok(())
    }
}

/// Returns a summary. With a source, every line in the tables must be a line of that file.
pub(super) fn check(report: &Path, log: &Path, source: Option<&str>) -> Result<String> {
    let (report, log) = (JsonReport::read(report)?, SimulatorLog::read(log)?);
    differences(&report, &log, source).end()?;
    Ok(summary(&report, &log.devices()))
}

fn summary(report: &JsonReport, logged: &BTreeMap<String, DeviceTotals>) -> String {
    let device = |(name, totals): (&String, &DeviceTotals)| {
        let DeviceTotals { allocations, peak, .. } = totals;
        format!("{name}: {allocations} allocations, peak {peak}")
    };
    let mut parts: Vec<String> = logged.iter().map(device).collect();
    let refused_frees = &report.health["refused_frees"];
    if *refused_frees != 0 {
        parts.push(format!("{refused_frees} frees refused"));
    }
    if parts.is_empty() { "nothing allocated".to_owned() } else { parts.join("; ") }
}

fn differences(report: &JsonReport, log: &SimulatorLog, source: Option<&str>) -> Differences {
    let mut differences = Differences::default();
    totals(&mut differences, report, log);
    for device in report.gpus() {
        tables(&mut differences, device);
        if let Some(found) = &device.pool {
            pool(&mut differences, device, found);
        }
        if let Some(found) = &device.balance {
            balance(&mut differences, device, found);
        }
        if let Some(source) = source {
            files(&mut differences, device, source);
        }
    }
    health(&mut differences, &report.health);
    differences
}

/// With several threads, the recording may order a free and an allocation differently, so its peak may be lower.
fn totals(differences: &mut Differences, report: &JsonReport, log: &SimulatorLog) {
    let recorded: BTreeMap<&str, DeviceTotals> =
        report.gpus().map(|device| (device.name.as_str(), recorded_totals(device))).collect();
    let used: BTreeSet<&str> =
        recorded.iter().filter(|(_, totals)| **totals != DeviceTotals::default()).map(|(name, _)| *name).collect();
    let logged = log.devices();
    differences.equal("devices", used, logged.keys().map(String::as_str).collect());
    for (name, expected) in logged {
        let mut actual = recorded.get(name.as_str()).copied();
        if let Some(totals) = actual.as_mut().filter(|totals| log.threads() > 1 && totals.peak < expected.peak) {
            totals.peak = expected.peak;
        }
        differences.equal(&format!("{name}: the account"), actual, Some(expected));
    }
}

fn recorded_totals(device: &DeviceReport) -> DeviceTotals {
    let stats = &device.stats;
    let (peak, refused) = (device.peak.bytes, stats.num_ooms);
    DeviceTotals { allocations: stats.allocations, bytes: stats.bytes, peak, refused }
}

fn tables(differences: &mut Differences, device: &DeviceReport) {
    for (by, table) in device.peak_tables() {
        differences.equal(&format!("{}: sum of peak_by_{by}", device.name), table.sum(), device.peak.bytes);
    }
    differences.equal(&format!("{}: records overwritten", device.name), device.records_overwritten, 0);
}

fn files(differences: &mut Differences, device: &DeviceReport, source: &str) {
    for row in device.lines() {
        let what = format!("{}: {} is a line of {source}", device.name, row.label);
        differences.equal(&what, row.label.contains(&format!("{source}:")), true);
    }
}

/// The pool rounds blocks up to multiples of 512 bytes. A larger difference was not recorded.
fn pool(differences: &mut Differences, device: &DeviceReport, pool: &PoolReport) {
    let (unseen, blocks) = (pool.used_bytes - pool.recorded_bytes, device.stats.live_blocks);
    let what = format!("{}: {unseen} bytes of the pool explained by {blocks} blocks", device.name);
    differences.equal(&what, (0..=511 * blocks).contains(&unseen), true);
}

/// Checks that the rows add up to the driver's figure, and that no row is memory that was not seen.
fn balance(differences: &mut Differences, device: &DeviceReport, balance: &DriverBalance) {
    let sum: i64 = balance.rows.iter().map(|row| row.bytes).sum();
    differences.equal(&format!("{}: rows of the balance", device.name), sum, balance.used_bytes);
    let unseen = balance.rows.iter().any(|row| row.label == "in pools, not seen");
    differences.equal(&format!("{}: a row of memory in pools that was not seen", device.name), unseen, false);
}

fn health(differences: &mut Differences, health: &Value) {
    let expected = [
        ("/cuda/hooks", json!("simulated")),
        ("/cuda/refused_imports", json!(0)),
        ("/cuda/unseen_calls", json!({})),
        ("/lost_blocks", json!(0)),
        ("/lost_stacks", json!(0)),
        ("/missed_frees", json!(0)),
        ("/unknown_frees", json!(0)),
        ("/cut_off", json!(false)),
    ];
    for (pointer, expected) in expected {
        differences.equal(&format!("health{pointer}"), health.pointer(pointer), Some(&expected));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::report::tests::sample;

    const LOG: &str = "\
op\tkind\tdevice\tresult\tthread\tsize\treserved
Alloc\tPool\t0\t0\t7\t1000\t2048
Alloc\tPool\t0\t0\t7\t500\t2048
Alloc\tPool\t0\t2\t7\t9000\t2048
Free\tPool\t0\t0\t7\t500\t2048
";

    fn compared(report: Value, log: &str) -> Vec<String> {
        let report: JsonReport = serde_json::from_value(report).unwrap();
        differences(&report, &SimulatorLog::parse(log).unwrap(), Some("src/main.rs")).0
    }

    #[test]
    fn a_correct_report_has_no_difference() {
        assert_eq!(compared(sample(), LOG), [""; 0]);
        let report: JsonReport = serde_json::from_value(sample()).unwrap();
        let logged = SimulatorLog::parse(LOG).unwrap().devices();
        assert_eq!(summary(&report, &logged), "cuda:0: 2 allocations, peak 1500");
    }

    #[test]
    fn each_wrong_figure_is_found() {
        let wrong: &[(&str, Value, &str)] = &[
            ("/devices/0/device", json!("cuda:1"), "devices: {\"cuda:1\"}, not {\"cuda:0\"}"),
            ("/devices/0/records_overwritten", json!(1), "cuda:0: records overwritten: 1, not 0"),
            ("/devices/0/peak/bytes", json!(1499), "cuda:0: the account"),
            ("/devices/0/stats/allocation.all.allocated", json!(3), "cuda:0: the account"),
            ("/devices/0/stats/allocated_bytes.all.allocated", json!(1501), "cuda:0: the account"),
            ("/devices/0/stats/num_ooms", json!(0), "cuda:0: the account"),
            ("/devices/0/peak_by_line/rows/0/bytes", json!(999), "cuda:0: sum of peak_by_line: 1499, not 1500"),
            ("/devices/0/peak_by_function/rows/0/bytes", json!(999), "cuda:0: sum of peak_by_function"),
            ("/devices/0/peak_by_scope/rows/0/bytes", json!(999), "cuda:0: sum of peak_by_scope"),
            ("/devices/0/peak_by_line/rows/0/label", json!("lib.rs:1"), "cuda:0: lib.rs:1 is a line of src/main.rs"),
            ("/devices/0/live_by_line/rows/0/label", json!("?"), "cuda:0: ? is a line of src/main.rs"),
            ("/devices/0/temporaries/0/label", json!("?"), "cuda:0: ? is a line of src/main.rs"),
            ("/devices/0/pool/recorded_bytes", json!(512), "cuda:0: 512 bytes of the pool explained by 1 blocks"),
            ("/devices/0/pool/used_bytes", json!(999), "cuda:0: -1 bytes of the pool explained by 1 blocks"),
            ("/devices/0/balance/used_bytes", json!(2047), "cuda:0: rows of the balance: 2048, not 2047"),
            ("/devices/0/balance/rows/1/label", json!("in pools, not seen"), "cuda:0: a row of memory in pools"),
            ("/health/lost_blocks", json!(1), "health/lost_blocks: Some(Number(1)), not Some(Number(0))"),
            ("/health/lost_stacks", json!(1), "health/lost_stacks"),
            ("/health/missed_frees", json!(1), "health/missed_frees"),
            ("/health/unknown_frees", json!(1), "health/unknown_frees"),
            ("/health/cut_off", json!(true), "health/cut_off: Some(Bool(true))"),
            ("/health/cuda/hooks", json!("absent"), "health/cuda/hooks: Some(String(\"absent\"))"),
            ("/health/cuda/refused_imports", json!(1), "health/cuda/refused_imports"),
            (
                "/health/cuda/unseen_calls",
                json!({ "cuMemMap": 1 }),
                "health/cuda/unseen_calls: Some(Object {\"cuMemMap\": Number(1)})",
            ),
        ];
        for (place, value, says) in wrong {
            let mut report = sample();
            *report.pointer_mut(place).unwrap() = value.clone();
            let found = compared(report, LOG);
            assert!(found.iter().any(|line| line.starts_with(says)), "{place}: {found:?}");
        }
    }

    #[test]
    fn a_lower_peak_is_correct_only_with_several_threads() {
        let mut lower = sample();
        let peak = json!({ "rows": [{ "label": "src/main.rs:7", "bytes": 1000 }] });
        for (place, value) in [("peak_by_line", &peak), ("peak_by_function", &peak), ("peak_by_scope", &peak)] {
            lower["devices"][0][place] = value.clone();
        }
        lower["devices"][0]["peak"]["bytes"] = json!(1000);
        assert_eq!(compared(lower.clone(), LOG).len(), 1);
        assert_eq!(compared(lower, &LOG.replacen("\t7\t", "\t8\t", 1)), [""; 0]);
        let mut higher = sample();
        higher["devices"][0]["peak"]["bytes"] = json!(1501);
        assert!(!compared(higher, &LOG.replacen("\t7\t", "\t8\t", 1)).is_empty());
    }
}
