//! report.json: what is looked at of it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

use super::account::Account;

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Report {
    pub(super) devices: Vec<Device>,
    pub(super) health: Health,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Device {
    #[serde(rename = "device")]
    pub(super) name: String,
    pub(super) records_overwritten: u64,
    pub(super) peak: Peak,
    pub(super) stats: Stats,
    pub(super) peak_by_line: Table,
    pub(super) peak_by_function: Table,
    pub(super) peak_by_scope: Table,
    pub(super) peak_by_operator: Table,
    /// Where there are such allocators.
    #[serde(default)]
    pub(super) peak_by_allocator: Vec<Row>,
    pub(super) live_by_line: Table,
    pub(super) temporaries: Vec<Row>,
    pub(super) pool: Option<Pool>,
    pub(super) balance: Option<Balance>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Peak {
    pub(super) bytes: i64,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Stats {
    #[serde(rename = "allocation.all.allocated")]
    pub(super) allocations: u64,
    #[serde(rename = "allocation.all.current")]
    pub(super) live_blocks: i64,
    #[serde(rename = "allocated_bytes.all.allocated")]
    pub(super) bytes: u64,
    pub(super) num_ooms: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Table {
    pub(super) rows: Vec<Row>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Row {
    pub(super) label: String,
    pub(super) bytes: i64,
    /// What else the table has.
    #[serde(flatten)]
    pub(super) others: BTreeMap<String, Value>,
}

/// What the driver says of a device's default pool, and what was recorded of it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Pool {
    pub(super) used_bytes: i64,
    pub(super) recorded_bytes: i64,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Balance {
    pub(super) used_bytes: i64,
    pub(super) rows: Vec<Row>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Health {
    pub(super) lost_blocks: u64,
    pub(super) lost_stacks: u64,
    pub(super) missed_frees: u64,
    pub(super) unknown_frees: u64,
    pub(super) cut_off: bool,
    pub(super) refused_frees: u64,
    pub(super) cuda: Cuda,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Cuda {
    pub(super) hooks: String,
    pub(super) refused_imports: u64,
    pub(super) unseen_calls: BTreeMap<String, u64>,
}

impl Report {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("no report {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| path.display().to_string())
    }

    /// All but the CPU.
    pub(super) fn gpus(&self) -> impl Iterator<Item = &Device> {
        self.devices.iter().filter(|device| device.name != "cpu")
    }

    pub(super) fn only(&self, name: &str) -> Result<&Device> {
        let found: Vec<&Device> = self.devices.iter().filter(|device| device.name == name).collect();
        ensure!(found.len() == 1, "the report has {} devices {name}", found.len());
        Ok(found[0])
    }
}

impl Device {
    pub(super) fn account(&self) -> Account {
        let Stats { allocations, bytes, num_ooms, .. } = self.stats;
        Account { allocations, bytes, peak: self.peak.bytes, refused: num_ooms }
    }

    /// Rows whose labels are source lines.
    pub(super) fn lines(&self) -> impl Iterator<Item = &Row> {
        self.peak_by_line.rows.iter().chain(&self.live_by_line.rows).chain(&self.temporaries)
    }
}

impl Table {
    pub(super) fn sum(&self) -> i64 {
        self.rows.iter().map(|row| row.bytes).sum()
    }
}
