//! A report is held against the simulator's own account: allocations and peak of every device, and that nothing was out
//! of sight.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::path::Path;

use anyhow::{Result, bail};

use super::account::{Account, Log};
use super::report::{Balance, Device, Health, Pool, Report};

/// What is not as it should be, a sentence each.
#[derive(Debug, Default)]
pub(super) struct Differences(Vec<String>);

impl Differences {
    pub(super) fn equal<T: PartialEq + Debug>(&mut self, what: &str, made: T, expected: T) {
        if made != expected {
            self.0.push(format!("{what}: {made:?}, not {expected:?}"));
        }
    }

    pub(super) fn end(self) -> Result<()> {
        if !self.0.is_empty() {
            bail!("\n      {}", self.0.join("\n      "));
        }
        Ok(())
    }
}

/// Says the numbers. With a source, each line of the tables must be one of that file.
pub(super) fn check(report: &Path, log: &Path, source: Option<&str>) -> Result<String> {
    let (report, log) = (Report::read(report)?, Log::read(log)?);
    differences(&report, &log, source).end()?;
    Ok(said(&report, &log.accounts()))
}

fn said(report: &Report, truth: &BTreeMap<String, Account>) -> String {
    let device = |(name, account): (&String, &Account)| {
        let Account { allocations, peak, .. } = account;
        format!("{name}: {allocations} allocations, peak {peak}")
    };
    let mut said: Vec<String> = truth.iter().map(device).collect();
    if report.health.refused_frees > 0 {
        said.push(format!("{} frees refused", report.health.refused_frees));
    }
    if said.is_empty() { "nothing allocated".to_owned() } else { said.join("; ") }
}

fn differences(report: &Report, log: &Log, source: Option<&str>) -> Differences {
    let mut differences = Differences::default();
    accounts(&mut differences, report, log);
    for device in report.gpus() {
        tables(&mut differences, device);
        device.pool.iter().for_each(|found| pool(&mut differences, device, found));
        device.balance.iter().for_each(|found| balance(&mut differences, device, found));
        source.iter().for_each(|source| files(&mut differences, device, source));
    }
    health(&mut differences, &report.health);
    differences
}

/// Threads that free and allocate at once may be recorded as one after the other: their peak is at most the simulator's.
fn accounts(differences: &mut Differences, report: &Report, log: &Log) {
    let (truth, many_threads) = (log.accounts(), log.threads() > 1);
    let ours: BTreeMap<&str, Account> = report.gpus().map(|device| (device.name.as_str(), device.account())).collect();
    let used: BTreeSet<&str> =
        ours.iter().filter(|(_, account)| **account != Account::default()).map(|(name, _)| *name).collect();
    differences.equal("devices", used, truth.keys().map(String::as_str).collect());
    for (name, should) in truth {
        let mut is = ours.get(name.as_str()).copied();
        if let Some(account) = is.as_mut().filter(|account| many_threads && account.peak < should.peak) {
            account.peak = should.peak;
        }
        differences.equal(&format!("{name}: the account"), is, Some(should));
    }
}

fn tables(differences: &mut Differences, device: &Device) {
    let tables =
        [("line", &device.peak_by_line), ("function", &device.peak_by_function), ("scope", &device.peak_by_scope)];
    for (by, table) in tables {
        differences.equal(&format!("{}: sum of peak_by_{by}", device.name), table.sum(), device.peak.bytes);
    }
    differences.equal(&format!("{}: records overwritten", device.name), device.records_overwritten, 0);
}

fn files(differences: &mut Differences, device: &Device, source: &str) {
    for row in device.lines() {
        let what = format!("{}: {} is a line of {source}", device.name, row.label);
        differences.equal(&what, row.label.contains(&format!("{source}:")), true);
    }
}

/// The pool cuts blocks in multiples of 512 bytes; whatever else it holds was not seen.
fn pool(differences: &mut Differences, device: &Device, pool: &Pool) {
    let (unseen, blocks) = (pool.used_bytes - pool.recorded_bytes, device.stats.live_blocks);
    let what = format!("{}: {unseen} bytes of the pool explained by {blocks} blocks", device.name);
    differences.equal(&what, (0..=511 * blocks).contains(&unseen), true);
}

/// What the driver says is in use, in rows that add up to it; none of them is what nobody has seen.
fn balance(differences: &mut Differences, device: &Device, balance: &Balance) {
    let sum: i64 = balance.rows.iter().map(|row| row.bytes).sum();
    differences.equal(&format!("{}: rows of the balance", device.name), sum, balance.used_bytes);
    let unseen = balance.rows.iter().any(|row| row.label == "in pools, not seen");
    differences.equal(&format!("{}: a row of what is in pools and was not seen", device.name), unseen, false);
}

fn health(differences: &mut Differences, health: &Health) {
    let Health { lost_blocks, lost_stacks, missed_frees, unknown_frees, cut_off, cuda, .. } = health;
    differences.equal("health.cuda.hooks", cuda.hooks.as_str(), "simulated");
    differences.equal("health.cuda.refused_imports", cuda.refused_imports, 0);
    differences.equal("health.cuda.unseen_calls", &cuda.unseen_calls, &BTreeMap::new());
    let counts = [("lost_blocks", lost_blocks), ("lost_stacks", lost_stacks), ("missed_frees", missed_frees)];
    for (name, count) in counts.into_iter().chain([("unknown_frees", unknown_frees)]) {
        differences.equal(&format!("health.{name}"), *count, 0);
    }
    differences.equal("health.cut_off", *cut_off, false);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const LOG: &str = "\
op\tkind\tdevice\tresult\tthread\tsize\treserved
Alloc\tPool\t0\t0\t7\t1000\t2048
Alloc\tPool\t0\t0\t7\t500\t2048
Alloc\tPool\t0\t2\t7\t9000\t2048
Free\tPool\t0\t0\t7\t500\t2048
";

    /// The right report of that log, in which 24 bytes of the pool are from rounding.
    fn report() -> Value {
        let line = |bytes| json!({ "label": "src/main.rs:7 (main)", "bytes": bytes, "count": 1 });
        let peak = json!({ "rows": [line(1000), line(500)] });
        json!({
            "devices": [{
                "device": "cuda:0",
                "records_overwritten": 0,
                "peak": { "bytes": 1500 },
                "peak_by_line": peak, "peak_by_function": peak, "peak_by_scope": peak, "peak_by_operator": peak,
                "live_by_line": { "rows": [line(1000)] },
                "temporaries": [line(500)],
                "stats": {
                    "allocation.all.allocated": 2, "allocation.all.current": 1,
                    "allocated_bytes.all.allocated": 1500, "num_ooms": 1,
                },
                "pool": { "used_bytes": 1024, "recorded_bytes": 1000 },
                "balance": {
                    "used_bytes": 2048,
                    "rows": [line(1000), { "label": "reserved by pools, unused", "bytes": 1048 }],
                },
            }],
            "health": {
                "lost_blocks": 0, "lost_stacks": 0, "missed_frees": 0, "unknown_frees": 0, "refused_frees": 0,
                "cut_off": false,
                "cuda": { "hooks": "simulated", "refused_imports": 0, "unseen_calls": {} },
            },
        })
    }

    fn compared(report: Value, log: &str) -> Vec<String> {
        let report: Report = serde_json::from_value(report).unwrap();
        differences(&report, &Log::parse(log).unwrap(), Some("src/main.rs")).0
    }

    #[test]
    fn a_right_report_is_right() {
        assert_eq!(compared(report(), LOG), [""; 0]);
        let read: Report = serde_json::from_value(report()).unwrap();
        let accounts = Log::parse(LOG).unwrap().accounts();
        assert_eq!(said(&read, &accounts), "cuda:0: 2 allocations, peak 1500");
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
            ("/devices/0/balance/rows/1/label", json!("in pools, not seen"), "cuda:0: a row of what is in pools"),
            ("/health/lost_blocks", json!(1), "health.lost_blocks: 1, not 0"),
            ("/health/lost_stacks", json!(1), "health.lost_stacks"),
            ("/health/missed_frees", json!(1), "health.missed_frees"),
            ("/health/unknown_frees", json!(1), "health.unknown_frees"),
            ("/health/cut_off", json!(true), "health.cut_off: true, not false"),
            ("/health/cuda/hooks", json!("absent"), "health.cuda.hooks: \"absent\", not \"simulated\""),
            ("/health/cuda/refused_imports", json!(1), "health.cuda.refused_imports"),
            ("/health/cuda/unseen_calls", json!({ "cuMemMap": 1 }), "health.cuda.unseen_calls: {\"cuMemMap\": 1}"),
        ];
        for (place, value, says) in wrong {
            let mut report = report();
            *report.pointer_mut(place).unwrap() = value.clone();
            let found = compared(report, LOG);
            assert!(found.iter().any(|line| line.starts_with(says)), "{place}: {found:?}");
        }
    }

    #[test]
    fn a_lower_peak_is_right_for_threads_alone() {
        let mut lower = report();
        let peak = json!({ "rows": [{ "label": "src/main.rs:7", "bytes": 1000 }] });
        for (place, value) in [("peak_by_line", &peak), ("peak_by_function", &peak), ("peak_by_scope", &peak)] {
            lower["devices"][0][place] = value.clone();
        }
        lower["devices"][0]["peak"]["bytes"] = json!(1000);
        assert_eq!(compared(lower.clone(), LOG).len(), 1);
        assert_eq!(compared(lower, &LOG.replacen("\t7\t", "\t8\t", 1)), [""; 0]);
        let mut higher = report();
        higher["devices"][0]["peak"]["bytes"] = json!(1501);
        assert!(!compared(higher, &LOG.replacen("\t7\t", "\t8\t", 1)).is_empty());
    }
}
