//! The simulator's log, and the account of each device that it comes to.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, bail};

/// What the simulator writes for a call: the fields that are looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) op: Op,
    /// Which memory.
    pub(super) kind: String,
    device: i32,
    /// The call's result, 0 if it was granted.
    result: u32,
    thread: u64,
    pub(super) size: u64,
    /// What the pool has of the device after this.
    pub(super) reserved: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Alloc,
    Free,
    /// A free because its context came to an end.
    Bulk,
    /// A pool gave memory back.
    Release,
}

/// Of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) allocations: u64,
    /// Of all allocations.
    pub(super) bytes: u64,
    pub(super) peak: i64,
    /// Allocations that were not granted.
    pub(super) refused: u64,
}

/// Of all devices, to the program's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Balance {
    pub(super) allocations: usize,
    pub(super) frees: usize,
    pub(super) refused: usize,
    /// Bytes that were not freed.
    pub(super) left: i64,
}

#[derive(Debug)]
pub(super) struct Log {
    pub(super) rows: Vec<Row>,
}

impl Row {
    /// As memtrace calls it.
    fn device(&self) -> String {
        match self.kind.as_str() {
            "Pinned" | "Registered" => "pinned".to_owned(),
            "Managed" => "managed".to_owned(),
            _ => format!("cuda:{}", self.device),
        }
    }

    pub(super) fn is_refused(&self) -> bool {
        self.op == Op::Alloc && self.result != 0
    }

    /// What it adds to what is live.
    pub(super) fn change(&self) -> i64 {
        match self.op {
            Op::Alloc => self.size.cast_signed(),
            Op::Free | Op::Bulk => -self.size.cast_signed(),
            Op::Release => 0,
        }
    }
}

impl Log {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("no log {}", path.display()))?;
        Self::parse(&text).with_context(|| path.display().to_string())
    }

    /// Lines of values between tabs; the first has their names.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let mut lines = text.lines();
        let names: Vec<&str> = lines.next().context("the log is empty")?.split('\t').collect();
        let row = |line: &str| {
            let values: BTreeMap<_, _> = names.iter().copied().zip(line.split('\t')).collect();
            parse_row(&values).with_context(|| format!("the line {line:?}"))
        };
        Ok(Self { rows: lines.map(row).collect::<Result<_>>()? })
    }

    pub(super) fn threads(&self) -> usize {
        self.rows.iter().map(|row| row.thread).collect::<BTreeSet<_>>().len()
    }

    /// Of each device that was asked for memory.
    pub(super) fn accounts(&self) -> BTreeMap<String, Account> {
        let (mut accounts, mut live) = (BTreeMap::<_, Account>::new(), BTreeMap::<_, i64>::new());
        for row in &self.rows {
            let device = row.device();
            if row.is_refused() {
                accounts.entry(device).or_default().refused += 1;
            } else if row.result == 0 {
                let live = live.entry(device.clone()).or_default();
                *live += row.change();
                if row.op == Op::Alloc {
                    accounts.entry(device).or_default().add(row.size, *live);
                }
            }
        }
        accounts
    }

    /// Bytes of all allocations of pools, refused ones included.
    pub(super) fn asked_of_pools(&self) -> Option<u64> {
        let asked = self.rows.iter().filter(|row| row.op == Op::Alloc && row.kind == "Pool").map(|row| row.size);
        asked.reduce(|sum, size| sum + size)
    }

    pub(super) fn balance(&self) -> Balance {
        let count = |is: fn(&Row) -> bool| self.rows.iter().filter(|row| is(row)).count();
        Balance {
            allocations: count(|row| row.op == Op::Alloc),
            frees: count(|row| matches!(row.op, Op::Free | Op::Bulk)),
            refused: count(|row| row.result != 0),
            left: self.rows.iter().map(Row::change).sum(),
        }
    }
}

impl Account {
    fn add(&mut self, size: u64, live: i64) {
        self.allocations += 1;
        self.bytes += size;
        self.peak = self.peak.max(live);
    }
}

fn parse_row(values: &BTreeMap<&str, &str>) -> Result<Row> {
    let value = |name: &str| values.get(name).copied().with_context(|| format!("has no {name}"));
    let op = match value("op")? {
        "Alloc" => Op::Alloc,
        "Free" => Op::Free,
        "Bulk" => Op::Bulk,
        "Release" => Op::Release,
        other => bail!("has an operation {other}"),
    };
    Ok(Row {
        op,
        kind: value("kind")?.to_owned(),
        device: value("device")?.parse()?,
        result: value("result")?.parse()?,
        thread: value("thread")?.parse()?,
        size: value("size")?.parse()?,
        reserved: value("reserved")?.parse()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three blocks of two devices, a refusal, a refused free, pinned memory; one block is left.
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
    fn each_device_has_its_account() {
        let accounts = Log::parse(LOG).unwrap().accounts();
        let account = |allocations, bytes, peak, refused| Account { allocations, bytes, peak, refused };
        let expected = [
            ("cuda:0", account(2, 1500, 1500, 1)),
            ("cuda:1", account(1, 10, 10, 0)),
            ("pinned", account(1, 64, 64, 0)),
        ];
        assert_eq!(accounts, expected.map(|(name, account)| (name.to_owned(), account)).into());
    }

    #[test]
    fn what_is_left_and_what_was_refused_is_counted() {
        // What was refused is no smaller for it: a log with a refusal never balances.
        let balance = Balance { allocations: 5, frees: 4, refused: 2, left: 9500 };
        assert_eq!(Log::parse(LOG).unwrap().balance(), balance);
    }

    #[test]
    fn a_log_that_is_not_one_is_an_error() {
        let error = |text: &str| format!("{:#}", Log::parse(text).unwrap_err());
        assert_eq!(error(""), "the log is empty");
        assert!(error("number\top\n1\tAlloc\n").ends_with("has no kind"));
        assert!(error(&LOG.replace("Bulk", "Bunk")).ends_with("has an operation Bunk"));
        assert!(error(&LOG.replace("\t9000\t", "\t-\t")).contains("invalid digit"));
    }
}
