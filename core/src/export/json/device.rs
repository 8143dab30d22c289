//! The part of the document about a device.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;

use super::parts::{AllocatorRow, DriverTime, FindingFigures, MemoryBalance, Peak, Pool, Sample, Segments, stats};
use crate::analysis::{self, BreakdownTable, Churn, Key, LiveTwice, OlderPeak, ScopeRow, TABLES, TemporaryRow};
use crate::recording::DeviceView;
use crate::report::{Finding, NamedRows, Report, Row, Section, coverage, findings, shown_scopes};
use crate::snapshot::{Device, Gap, OutOfMemory};

/// A device with its peak, counters and tables. A report has only the tables that it shows.
#[derive(Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct DeviceFigures {
    /// The heap (`cpu`), a GPU such as `cuda:0`, or memory of the kind `pinned`, `managed` or `imported`.
    #[cfg_attr(test, schemars(regex(pattern = "^(cpu|pinned|managed|imported|cuda:[0-9]+)$")))]
    device: String,
    /// Number of records in the log. Each allocation and each free is a record.
    records: usize,
    /// Number of older records that the log no longer has.
    records_overwritten: u64,
    peak: Peak,
    /// Findings (what could be better), the most expensive first.
    findings: Vec<FindingFigures>,
    #[serde(flatten)]
    tables: Tables,
    /// Scopes in the order of their first use, parents before children. A report merges scopes whose names differ only
    /// in a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    scopes: Option<Vec<ScopeRow>>,
    /// Source lines whose blocks are temporary: freed before 10 more blocks are allocated on the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    temporaries: Option<Vec<TemporaryRow>>,
    /// Blocks that replace each other and are live at the same time. Absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    live_twice: Option<Vec<LiveTwice>>,
    /// The memory in use, split into parts. Absent if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    balance: Option<MemoryBalance>,
    /// Segments and their holes. Only for GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    segments: Option<Segments>,
    /// Time in the driver's allocator. Only for GPUs; absent if no calls were recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    driver_time: Option<DriverTime>,
    /// Memory that the driver's pool released and reserved again. Absent if there is none, or if the release threshold
    /// now prevents it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pool_churn: Option<Churn>,
    /// The driver's default memory pool. Only for GPUs; absent if the query failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<Pool>,
    /// Memory at the peak that frameworks hand out in parts with allocators of their own. Absent if there is none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    peak_by_allocator: Vec<AllocatorRow>,
    /// Gaps in the log of a streamed capture. Absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    gaps: Vec<Gap>,
    /// Older times: time spans before the log, whose records a stream with a budget deleted. Absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    older_times: Vec<OlderPeak>,
    /// Allocations that were refused for lack of memory. Absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ooms: Vec<OutOfMemory>,
    /// Counters, with the keys of `torch.cuda.memory_stats`.
    stats: BTreeMap<String, u64>,
    /// True if small blocks are sampled, so that sums are estimates; otherwise absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    estimated: Option<bool>,
    /// Details of the sample. Absent if blocks are not sampled.
    #[serde(skip_serializing_if = "Option::is_none")]
    sampled: Option<Sample>,
}

impl DeviceFigures {
    /// All that is known of a device.
    pub(super) fn of(device: &DeviceView<'_>) -> Self {
        let (at_peak, end) = (device.at_peak(), device.at_end());
        // The table of names exists only if there are names. The other tables may be empty.
        let is_there = |table: &&BreakdownTable| table.key != "peak_by_name" || !device.names.is_empty();
        let live = LIVE.iter().map(|(name, key)| (Cow::Borrowed(*name), Table::of(Row::all(&end.by(*key)))));
        let tables = TABLES
            .iter()
            .filter(is_there)
            .map(|table| (Cow::Borrowed(table.key), Table::of(Row::all(&table.of(&at_peak)))));
        Self {
            tables: Tables(tables.chain(live).collect()),
            scopes: Some(analysis::scopes(device)),
            ..Self::with(device, &findings(device), |_| true)
        }
    }

    /// The parts of a device that a report shows, with at most `rows` rows of each table.
    pub(super) fn shown(device: &DeviceView<'_>, report: &Report, rows: usize) -> Self {
        let of = |section: &Section| match &section.named {
            Some(NamedRows::Live(rows)) => Some((section.key.clone(), Table::of(rows.clone()))),
            _ => None,
        };
        let is_shown = |key: &str| report.sections.iter().any(|section| section.key == key);
        let mut figures = Self {
            tables: Tables(report.sections.iter().filter_map(of).collect()),
            scopes: is_shown("scopes").then(|| shown_scopes(device, rows).0),
            ..Self::with(device, &report.findings, is_shown)
        };
        figures.keep_tables(rows);
        figures
    }

    pub(super) fn longest(&self) -> usize {
        let lists = [
            self.tables.0.values().map(|table| table.rows.len()).max(),
            Some(self.findings.len()),
            self.scopes.as_ref().map(Vec::len),
            self.temporaries.as_ref().map(Vec::len),
            self.live_twice.as_ref().map(Vec::len),
            self.driver_time.as_ref().map(|time| time.by_line.len().max(time.by_scope.len())),
            Some(self.peak_by_allocator.len()),
            Some(self.gaps.len()),
            Some(self.older_times.len()),
            self.older_times.iter().map(|time| time.by_line.len()).max(),
            Some(self.ooms.len()),
        ];
        lists.into_iter().flatten().max().unwrap_or(0)
    }

    /// Keeps the first rows of each list. If the rows add up, the others are summed in one row.
    pub(super) fn keep(&mut self, rows: usize) {
        self.keep_tables(rows);
        self.tables.0.values_mut().for_each(|table| Row::keep(&mut table.rows, rows));
        self.scopes.iter_mut().for_each(|scopes| scopes.truncate(rows));
        self.findings.truncate(rows);
        self.peak_by_allocator.truncate(rows);
        self.gaps.truncate(rows);
        self.older_times.truncate(rows);
        self.older_times.iter_mut().for_each(|time| time.by_line.truncate(rows));
        self.ooms.truncate(rows);
    }

    fn keep_tables(&mut self, rows: usize) {
        self.temporaries.iter_mut().for_each(|temporaries| keep_temporaries(temporaries, rows));
        self.live_twice.iter_mut().for_each(|twice| twice.truncate(rows));
        if let Some(time) = &mut self.driver_time {
            time.by_line.truncate(rows);
            time.by_scope.truncate(rows);
        }
    }

    /// All parts except tables of live memory and scopes.
    fn with(device: &DeviceView<'_>, found: &[Finding], is_shown: impl Fn(&str) -> bool) -> Self {
        let twice = || Some(device.live_twice().to_vec()).filter(|rows| !rows.is_empty());
        let is_gpu = matches!(device.device, Device::Cuda(_));
        let has_times = is_gpu && !device.calls.is_empty();
        let allocators = coverage::allocator_notes(device).into_iter();
        Self {
            device: device.device.to_string(),
            records: device.records.len(),
            records_overwritten: device.overwritten,
            peak: Peak::of(&device.peak),
            findings: found.iter().map(FindingFigures::of).collect(),
            tables: Tables::default(),
            scopes: None,
            temporaries: is_shown("temporaries").then(|| analysis::temporaries(device)),
            live_twice: is_shown("live_twice").then(twice).flatten(),
            balance: is_shown("balance")
                .then(|| analysis::balance(device))
                .flatten()
                .map(|found| MemoryBalance::of(device, &found)),
            segments: (is_gpu && is_shown("segments")).then(|| Segments::of(device)),
            driver_time: (has_times && (is_shown("driver_time") || is_shown("driver_time_by_scope")))
                .then(|| DriverTime::of(device)),
            pool_churn: is_shown("driver_time").then(|| analysis::churn(device)).flatten(),
            pool: device.pool.map(|pool| Pool::of(pool, device)),
            peak_by_allocator: allocators.map(|(row, note)| AllocatorRow::of(row, note)).collect(),
            gaps: device.gaps.clone(),
            older_times: analysis::older_peaks(device),
            ooms: device.ooms.clone(),
            stats: stats(&device.stats),
            estimated: device.sample_interval().map(|_| true),
            sampled: device.sample_interval().map(|interval| Sample::of(interval, device)),
        }
    }
}

/// Tables of live memory at the end. `live_by_line` is not among them: it belongs to the tables of the text report.
pub(super) const LIVE: [(&str, Key); 4] = [
    ("live_by_scope", Key::Scope),
    ("live_by_operator", Key::Operator),
    ("live_by_module", Key::Module),
    ("live_by_age", Key::Age),
];

/// Tables of live memory by key.
#[derive(Clone, Default, Serialize)]
pub(super) struct Tables(BTreeMap<Cow<'static, str>, Table>);

/// Live memory grouped by one key, such as the line.
#[derive(Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Table {
    /// Sum of all rows, in bytes.
    total_bytes: u64,
    /// The rows, the largest first. A last row may sum smaller ones.
    rows: Vec<Row>,
}

impl Table {
    fn of(rows: Vec<Row>) -> Self {
        Self { total_bytes: rows.iter().map(|row| row.bytes).sum(), rows }
    }
}

fn keep_temporaries(all: &mut Vec<TemporaryRow>, rows: usize) {
    let rest = all.split_off(rows.min(all.len()));
    if !rest.is_empty() {
        all.push(TemporaryRow {
            label: format!("({} smaller rows)", rest.len()),
            bytes: rest.iter().map(|row| row.bytes).fold(0, u64::saturating_add),
            count: rest.iter().map(|row| row.count).sum(),
            largest: rest.iter().map(|row| row.largest).max().unwrap_or(0),
        });
    }
}
