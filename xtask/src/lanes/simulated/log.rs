//! The simulated driver's log of allocations and frees, and totals of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

const OUT_OF_MEMORY: u32 = 2;

/// One line of the log: the columns that checks read.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(super) struct LogRow {
    pub(super) op: LogOperation,
    /// The kind of memory, such as `Pool`.
    pub(super) kind: String,
    device: i32,
    /// The CUresult, 0 for success.
    result: u32,
    thread: u64,
    pub(super) size: u64,
    /// The pool's reserved bytes after this operation.
    pub(super) reserved: u64,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub(super) enum LogOperation {
    Alloc,
    Free,
    /// A free because the block's context ended.
    Bulk,
    /// A pool returned memory to the device.
    Release,
}

/// Totals of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DeviceTotals {
    pub(super) allocations: u64,
    /// The sum of all allocations.
    pub(super) bytes: u64,
    pub(super) peak: i64,
    /// Refused allocations.
    pub(super) refused: u64,
}

/// Totals of all devices when the program ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ProgramTotals {
    pub(super) allocations: usize,
    pub(super) frees: usize,
    pub(super) refused: usize,
    /// Bytes not freed.
    pub(super) leaked: i64,
}

#[derive(Debug)]
pub(super) struct SimulatorLog {
    pub(super) rows: Vec<LogRow>,
}

impl LogRow {
    /// The device's name in reports.
    fn device(&self) -> String {
        match self.kind.as_str() {
            "Pinned" | "Registered" => "pinned".to_owned(),
            "Managed" => "managed".to_owned(),
            _ => format!("cuda:{}", self.device),
        }
    }

    /// Whether the request was refused for lack of memory. An allocation may also fail for other reasons.
    pub(super) fn is_refused(&self) -> bool {
        self.op == LogOperation::Alloc && self.result == OUT_OF_MEMORY
    }

    /// The change in live bytes.
    pub(super) fn change(&self) -> i64 {
        match self.op {
            LogOperation::Alloc => self.size.cast_signed(),
            LogOperation::Free | LogOperation::Bulk => -self.size.cast_signed(),
            LogOperation::Release => 0,
        }
    }
}

impl SimulatorLog {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("no log {}", path.display()))?;
        Self::parse(&text).with_context(|| path.display().to_string())
    }

    /// Reads tab-separated values, whose first line names the columns.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let mut lines = text.lines();
        let names: Vec<&str> = lines.next().context("the log is empty")?.split('\t').collect();
        let row = |line: &str| {
            let value = |text: &str| text.parse::<i64>().map_or_else(|_| Value::from(text), Value::from);
            let row = names.iter().map(|&name| name.to_owned()).zip(line.split('\t').map(value)).collect();
            serde_json::from_value(row).with_context(|| format!("the line {line:?}"))
        };
        Ok(Self { rows: lines.map(row).collect::<Result<_>>()? })
    }

    pub(super) fn threads(&self) -> usize {
        self.rows.iter().map(|row| row.thread).collect::<BTreeSet<_>>().len()
    }

    /// Totals of each device with a request for memory.
    pub(super) fn devices(&self) -> BTreeMap<String, DeviceTotals> {
        let (mut devices, mut live) = (BTreeMap::<_, DeviceTotals>::new(), BTreeMap::<_, i64>::new());
        for row in &self.rows {
            let device = row.device();
            if row.is_refused() {
                devices.entry(device).or_default().refused += 1;
            } else if row.result == 0 {
                let live = live.entry(device.clone()).or_default();
                *live += row.change();
                if row.op == LogOperation::Alloc {
                    let totals = devices.entry(device).or_default();
                    totals.allocations += 1;
                    totals.bytes += row.size;
                    totals.peak = totals.peak.max(*live);
                }
            }
        }
        devices
    }

    /// Bytes of all requests to pools, including refused ones.
    pub(super) fn requested_of_pools(&self) -> u64 {
        self.rows.iter().filter(|row| row.op == LogOperation::Alloc && row.kind == "Pool").map(|row| row.size).sum()
    }

    pub(super) fn totals(&self) -> ProgramTotals {
        let count = |is: fn(&LogRow) -> bool| self.rows.iter().filter(|row| is(row)).count();
        ProgramTotals {
            allocations: count(|row| row.op == LogOperation::Alloc),
            frees: count(|row| matches!(row.op, LogOperation::Free | LogOperation::Bulk)),
            refused: count(|row| row.result != 0),
            leaked: self.rows.iter().map(LogRow::change).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three blocks on two devices, a refused allocation, a refused free, and pinned memory; one block is leaked.
    const LOG: &str = "\
number\top\tkind\tdevice\tresult\tcontext\tstream\tthread\taddress\tsize\tused\treserved
1\tAlloc\tPool\t0\t0\t1\t0\t7\t4096\t1000\t1024\t2048
2\tAlloc\tPool\t0\t0\t1\t0\t7\t8192\t500\t1536\t2048
3\tFree\tPool\t0\t0\t1\t0\t7\t4096\t1000\t512\t2048
4\tAlloc\tPool\t0\t2\t1\t0\t7\t0\t9000\t512\t2048
5\tAlloc\tPinned\t-1\t0\t1\t0\t7\t77\t64\t0\t0
6\tFree\tUnknown\t0\t1\t1\t0\t7\t5\t0\t0\t0
7\tBulk\tPinned\t-1\t0\t1\t0\t7\t77\t64\t0\t0
8\tAlloc\tClassic\t1\t0\t1\t0\t7\t99\t10\t10\t10
9\tFree\tClassic\t1\t0\t1\t0\t7\t99\t10\t0\t0
10\tRelease\tPool\t0\t0\t1\t0\t7\t0\t512\t512\t1536
";

    #[test]
    fn totals_are_kept_per_device() {
        let devices = SimulatorLog::parse(LOG).unwrap().devices();
        let totals = |allocations, bytes, peak, refused| DeviceTotals { allocations, bytes, peak, refused };
        let expected =
            [("cuda:0", totals(2, 1500, 1500, 1)), ("cuda:1", totals(1, 10, 10, 0)), ("pinned", totals(1, 64, 64, 0))];
        assert_eq!(devices, expected.map(|(name, totals)| (name.to_owned(), totals)).into());
    }

    #[test]
    fn leaks_and_refusals_are_counted() {
        // The size of a refused allocation counts as leaked, so a log with a refusal never balances.
        let totals = ProgramTotals { allocations: 5, frees: 4, refused: 2, leaked: 9500 };
        assert_eq!(SimulatorLog::parse(LOG).unwrap().totals(), totals);
    }

    #[test]
    fn a_malformed_log_is_an_error() {
        let error = |text: &str| format!("{:#}", SimulatorLog::parse(text).unwrap_err());
        assert_eq!(error(""), "the log is empty");
        assert!(error("number\top\n1\tAlloc\n").ends_with("missing field `kind`"));
        assert!(error(&LOG.replace("Bulk", "Bunk")).contains("unknown variant `Bunk`"));
        assert!(error(&LOG.replace("\t9000\t", "\t-\t")).contains("invalid type: string \"-\""));
    }
}
