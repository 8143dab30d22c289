//! The fields of report.json that checks read.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

#[derive(Clone, Debug, Deserialize)]
pub(super) struct JsonReport {
    pub(super) devices: Vec<DeviceReport>,
    pub(super) health: Value,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct DeviceReport {
    #[serde(rename = "device")]
    pub(super) name: String,
    pub(super) records: i64,
    pub(super) records_overwritten: i64,
    pub(super) peak: PeakReport,
    pub(super) stats: ReportStats,
    pub(super) peak_by_line: ReportTable,
    pub(super) peak_by_function: ReportTable,
    pub(super) peak_by_scope: ReportTable,
    pub(super) peak_by_operator: ReportTable,
    /// Empty unless the program has an allocator that divides its blocks itself.
    #[serde(default)]
    pub(super) peak_by_allocator: Vec<ReportRow>,
    pub(super) live_by_line: ReportTable,
    pub(super) temporaries: Vec<ReportRow>,
    pub(super) scopes: Vec<ScopeReport>,
    pub(super) pool: Option<PoolReport>,
    pub(super) balance: Option<DriverBalance>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct PeakReport {
    pub(super) bytes: i64,
    /// Includes blocks below the threshold.
    pub(super) total_bytes: i64,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct ReportStats {
    #[serde(rename = "allocation.all.allocated")]
    pub(super) allocations: u64,
    #[serde(rename = "allocation.all.freed")]
    pub(super) frees: i64,
    #[serde(rename = "allocation.all.current")]
    pub(super) live_blocks: i64,
    #[serde(rename = "allocated_bytes.all.allocated")]
    pub(super) bytes: u64,
    #[serde(rename = "allocated_bytes.all.current")]
    pub(super) live_bytes: i64,
    pub(super) below_threshold_bytes: i64,
    pub(super) num_ooms: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct ReportTable {
    pub(super) rows: Vec<ReportRow>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct ReportRow {
    pub(super) label: String,
    pub(super) bytes: i64,
    /// The other columns.
    #[serde(flatten)]
    pub(super) others: BTreeMap<String, Value>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct ScopeReport {
    pub(super) path: String,
    pub(super) calls: u64,
    pub(super) own_peak_bytes: i64,
    pub(super) total_peak_bytes: Option<i64>,
}

/// The driver's figures for a device's default pool, and the recorded part of it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct PoolReport {
    pub(super) used_bytes: i64,
    pub(super) recorded_bytes: i64,
}

/// The memory in use according to the driver, in rows that add up to it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct DriverBalance {
    pub(super) used_bytes: i64,
    pub(super) rows: Vec<ReportRow>,
}

impl JsonReport {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("no report {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| path.display().to_string())
    }

    /// All devices except the CPU.
    pub(super) fn gpus(&self) -> impl Iterator<Item = &DeviceReport> {
        self.devices.iter().filter(|device| device.name != "cpu")
    }

    pub(super) fn only(&self, name: &str) -> Result<&DeviceReport> {
        let found: Vec<&DeviceReport> = self.devices.iter().filter(|device| device.name == name).collect();
        ensure!(found.len() == 1, "the report has {} devices {name}", found.len());
        Ok(found[0])
    }
}

impl DeviceReport {
    /// Rows whose labels are source lines.
    pub(super) fn lines(&self) -> impl Iterator<Item = &ReportRow> {
        self.peak_by_line.rows.iter().chain(&self.live_by_line.rows).chain(&self.temporaries)
    }

    /// The tables whose rows add up to the peak, with what they group by.
    pub(super) fn peak_tables(&self) -> [(&'static str, &ReportTable); 3] {
        [("line", &self.peak_by_line), ("function", &self.peak_by_function), ("scope", &self.peak_by_scope)]
    }
}

impl ReportTable {
    pub(super) fn sum(&self) -> i64 {
        self.rows.iter().map(|row| row.bytes).sum()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};

    /// A report of cuda:0 with two blocks of 1,000 and 500 bytes, of which the first is live. Rounding accounts for 24
    /// bytes of the pool.
    pub(crate) fn sample() -> Value {
        let line = |bytes| json!({ "label": "src/main.rs:7 (main)", "bytes": bytes, "count": 1 });
        let peak = json!({ "rows": [line(1000), line(500)] });
        json!({
            "devices": [{
                "device": "cuda:0",
                "records": 3,
                "records_overwritten": 0,
                "peak": { "bytes": 1500, "total_bytes": 1500 },
                "peak_by_line": peak, "peak_by_function": peak, "peak_by_scope": peak, "peak_by_operator": peak,
                "live_by_line": { "rows": [line(1000)] },
                "temporaries": [line(500)],
                "scopes": [],
                "stats": {
                    "allocation.all.allocated": 2, "allocation.all.freed": 1, "allocation.all.current": 1,
                    "allocated_bytes.all.allocated": 1500, "allocated_bytes.all.current": 1000,
                    "below_threshold_bytes": 0, "num_ooms": 1,
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
}
