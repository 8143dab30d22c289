//! Report serializer: JSON with a schema, bytes as integers, times in nanoseconds.

use std::io::Write;

use serde_json::{Value, json};

use super::{Export, LeftOut, budget};
use crate::analysis::{self, Breakdown, Moment, ScopeRow, TemporaryRow};
use crate::error::Error;
use crate::report::{Cost, Finding, coverage, device_memory, findings, sampled};
use crate::snapshot::{
    CudaHooks, Device, DeviceSnapshot, Gap, HostMemory, MappingKind, MemoryStats, OutOfMemory, RecordKind,
    SnapshotData, StackId, Stat,
};
use crate::visible;

/// The JSON's version: higher if a key is gone or has another meaning.
const VERSION: u32 = 1;

/// The report's numbers as JSON: every device with its peak, breakdowns, scopes, temporaries and counters. A sampled device
/// has `estimated` and `sampled`. [`Json::SCHEMA`] describes all keys; the value of `version` grows when a key is gone or has
/// another meaning.
#[derive(Clone, Debug)]
pub struct Json {
    /// One line instead of indented lines.
    pub compact: bool,
    /// The size to keep to: beyond it the smallest rows of each table are summed in one. 32 MiB by default, which no report of a
    /// program reaches; no limit if `None`.
    pub max_bytes: Option<u64>,
}

impl Default for Json {
    fn default() -> Self {
        Self { compact: false, max_bytes: Some(32 << 20) }
    }
}

impl Json {
    /// The JSON Schema of the format; it describes each key.
    pub const SCHEMA: &str = include_str!("report.schema.json");
}

impl Export for Json {
    fn write(&self, data: &SnapshotData, out: &mut dyn Write) -> Result<LeftOut, Error> {
        let tables: Vec<Tables> = data.devices.iter().map(|device| Tables::of(data, device)).collect();
        let most = tables.iter().map(Tables::longest).max().unwrap_or(0).max(data.objects.len());
        budget::rows(self.max_bytes, most, out, |rows, left_out, out| {
            let devices = data.devices.iter().zip(&tables).map(|(device, tables)| self::device(device, tables, rows));
            let value = report(data, devices.collect(), rows, left_out);
            let text = if self.compact { format!("{value}\n") } else { format!("{value:#}\n") };
            Ok(out.write_all(visible::json(text).as_bytes())?)
        })
    }
}

/// A device's tables, computed once for all measurements of a budget.
struct Tables {
    breakdowns: Vec<(&'static str, Breakdown)>,
    scopes: Vec<ScopeRow>,
    temporaries: Vec<TemporaryRow>,
    /// Tables of any length.
    lists: Vec<(&'static str, Value)>,
    others: Vec<(&'static str, Value)>,
}

impl Tables {
    fn of(data: &SnapshotData, device: &DeviceSnapshot) -> Self {
        // The table of names exists only if there are names; the others may be empty.
        let is_there = |key| key != "peak_by_name" || !device.names.is_empty();
        let tables = analysis::TABLES.iter().filter(|table| is_there(table.key));
        let breakdowns =
            tables.map(|table| (table.key, (table.make)(data, device))).chain(live(data, device)).collect();
        Self {
            breakdowns,
            scopes: analysis::scopes(data, device),
            temporaries: analysis::temporaries(data, device),
            lists: [("findings", findings(data, device).iter().map(finding).collect())]
                .into_iter()
                .chain(driver_time(data, device).map(|times| ("driver_time", times)))
                .chain(twice(data, device).map(|rows| ("live_twice", rows)))
                .chain(allocators(data, device).map(|rows| ("peak_by_allocator", rows)))
                .chain((!device.gaps.is_empty()).then(|| ("gaps", device.gaps.iter().map(gap).collect())))
                .chain((!device.ooms.is_empty()).then(|| ("ooms", device.ooms.iter().map(oom).collect())))
                .collect(),
            others: device_tables(data, device),
        }
    }

    fn longest(&self) -> usize {
        let breakdowns = self.breakdowns.iter().map(|(_, breakdown)| breakdown.rows.len());
        let lists = self.lists.iter().map(|(_, list)| longest(list));
        breakdowns.chain([self.scopes.len(), self.temporaries.len()]).chain(lists).max().unwrap_or(0)
    }
}

/// The length of a list, or of the longest one of an object.
fn longest(value: &Value) -> usize {
    match value {
        Value::Array(rows) => rows.len(),
        Value::Object(parts) => parts.values().map(longest).max().unwrap_or(0),
        _ => 0,
    }
}

/// The first rows of a list, or of each list of an object.
fn first(value: &Value, rows: usize) -> Value {
    match value {
        Value::Array(all) => all.iter().take(rows).cloned().collect(),
        Value::Object(parts) => parts.iter().map(|(name, part)| (name.clone(), first(part, rows))).collect(),
        _ => value.clone(),
    }
}

fn live(data: &SnapshotData, device: &DeviceSnapshot) -> Vec<(&'static str, Breakdown)> {
    // Every recording knows its end.
    let Ok(end) = Moment::End.of(data, device) else { return Vec::new() };
    let [scope, operator] = [analysis::by_scope, analysis::by_operator].map(|make| make(data, &end));
    let [module, age] = [analysis::by_module, analysis::by_age].map(|make| make(data, &end));
    vec![("live_by_scope", scope), ("live_by_operator", operator), ("live_by_module", module), ("live_by_age", age)]
}

fn report(data: &SnapshotData, devices: Vec<Value>, rows: usize, left_out: &LeftOut) -> Value {
    let mut report = json!({
        "version": VERSION,
        "recorded_by": concat!("memtrace ", env!("CARGO_PKG_VERSION")),
        "program": data.process.program,
        "host": data.process.host,
        "pid": data.process.pid,
        "rank": data.process.rank,
        "started_unix_us": data.process.started_unix_us,
        "duration_ns": data.process.duration_ns,
        "min_size": data.settings.min_size,
        "max_entries": data.settings.max_entries,
        "devices": devices,
        "modules": data.objects.iter().take(rows).map(module).collect::<Vec<_>>(),
        "health": health(data),
    });
    if !left_out.is_nothing() {
        report["left_out"] = left_out.to_string().into();
    }
    if let Some(memory) = &data.process.memory {
        report["host_memory"] = host_memory(data, memory);
    }
    if let Some(interval) = data.settings.sample_interval {
        report["sample_interval"] = interval.get().into();
    }
    report
}

fn host_memory(data: &SnapshotData, memory: &HostMemory) -> Value {
    let reading = analysis::at_reading(data);
    let rows = reading.iter().flat_map(|(mappings, then)| analysis::mapped(mappings, &then.blocks));
    let mapped: Vec<Value> = rows.map(|row| mapped(data, &row)).collect();
    json!({
        "mapped": mapped,
        "mapped_time_ns": reading.map(|(mappings, _)| mappings.time_ns),
        "time_ns": memory.time_ns,
        "resident_bytes": memory.resident,
        "resident_peak_bytes": memory.resident_high,
        "mapped_file_bytes": memory.files,
        "mapped_file_peak_bytes": memory.files_high,
        "swapped_bytes": memory.swapped,
    })
}

fn mapped(data: &SnapshotData, row: &analysis::MappedRow<'_>) -> Value {
    let line = (row.stack != StackId::NONE).then(|| analysis::line_label(data, row.stack.0));
    json!({
        "path": (row.kind == MappingKind::File).then_some(row.path),
        "line": line,
        "bytes": row.size,
        "resident_bytes": row.resident,
        "count": row.count,
    })
}

fn health(data: &SnapshotData) -> Value {
    let health = &data.health;
    let analysis::Spanless { blocks, bytes } = analysis::spanless(data);
    let note = analysis::spanless_note(data).map(|(cause, advice)| format!("{cause}; {advice}"));
    let mut value = json!({
        "lost_names": data.devices.iter().map(|device| device.lost_names).sum::<u64>(),
        "no_line_numbers": health.no_line_numbers,
        "unreadable_modules": health.unreadable_objects,
        "no_allocator": health.no_allocator,
        "cut_off": health.cut_off,
        "cuda": cuda_hooks(&health.cuda),
        "spanless": { "blocks": blocks, "bytes": bytes, "note": note },
    });
    health.counters().for_each(|(name, count)| value[name] = count.into());
    value
}

fn cuda_hooks(hooks: &CudaHooks) -> Value {
    let unseen = hooks.unseen_calls.iter().map(|unseen| (unseen.function.clone(), unseen.calls.into()));
    json!({
        "hooks": hooks.state.word(),
        "imports": hooks.imports,
        "refused_imports": hooks.refused_imports,
        "looked_up": hooks.looked_up,
        "unseen_calls": Value::Object(unseen.collect()),
    })
}

fn device_tables(data: &SnapshotData, device: &DeviceSnapshot) -> Vec<(&'static str, Value)> {
    let mut tables: Vec<_> =
        analysis::balance(data, device).map(|found| ("balance", balance(&found))).into_iter().collect();
    let Device::Cuda(_) = device.device else { return tables };
    tables.push(("segments", segments(device)));
    if let Some(churn) = analysis::churn(device) {
        let table = json!({
            "bytes_taken_again": churn.bytes,
            "growing_calls": churn.calls,
            "growing_ns": churn.ns,
            "release_threshold_bytes": churn.release_threshold,
            "threshold_to_keep_all_bytes": churn.keep,
        });
        tables.push(("pool_churn", table));
    }
    tables
}

fn driver_time(data: &SnapshotData, device: &DeviceSnapshot) -> Option<Value> {
    let is_there = matches!(device.device, Device::Cuda(_)) && !device.calls.is_empty();
    is_there.then(|| {
        let by_line: Vec<Value> = analysis::time_by_line(data, device).iter().map(time).collect();
        let by_scope: Vec<Value> = analysis::time_by_scope(data, device).iter().map(time).collect();
        json!({ "all": time(&analysis::time_in_driver(device)), "by_line": by_line, "by_scope": by_scope })
    })
}

fn allocators(data: &SnapshotData, device: &DeviceSnapshot) -> Option<Value> {
    let rows = coverage::allocator_notes(data, device).into_iter();
    let rows: Vec<Value> = rows
        .map(|(row, note)| json!({ "label": row.label, "bytes": row.bytes, "count": row.count, "note": note }))
        .collect();
    (!rows.is_empty()).then(|| rows.into())
}

fn twice(data: &SnapshotData, device: &DeviceSnapshot) -> Option<Value> {
    let row = |row: &analysis::LiveTwice| {
        json!({
            "lines": row.lines,
            "size": row.size,
            "count": row.count,
            "older_bytes": row.older,
            "peak_without_bytes": row.peak_without,
        })
    };
    let found = analysis::live_twice(data, device);
    (!found.is_empty()).then(|| found.iter().map(row).collect())
}

fn finding(finding: &Finding) -> Value {
    let Finding { kind, what, line, cost, confidence, why, advice } = finding;
    let (unit, cost) = match *cost {
        Cost::OfPeak(bytes) => ("peak_bytes", bytes),
        Cost::AtEnd(bytes) => ("live_bytes", bytes),
        Cost::Unusable(bytes) => ("unusable_bytes", bytes),
        Cost::Time(ns) => ("ns", ns),
        Cost::Written(bytes) => ("written_bytes", bytes),
    };
    json!({
        "kind": kind.word(),
        "what": what,
        "place": line.as_deref().unwrap_or_default(),
        "cost": { unit: cost },
        "certainty": finding.certainty(),
        "confidence": confidence.word(),
        "why": why,
        "advice": advice.join("\n"),
    })
}

/// The sampling of a device: estimated and counted figures.
fn sample(device: &DeviceSnapshot) -> Option<Value> {
    let interval = device.sample_interval()?;
    Some(json!({
        "interval_bytes": interval,
        "note": sampled::note(Some(interval)),
        "recorded_live_blocks": device.live.len(),
        "recorded_live_bytes": device.live.iter().map(|block| block.size).fold(0, u64::saturating_add),
        "counted_now_bytes": device.stats.counted.map(|counted| counted.now),
        "counted_at_peak_bytes": device.stats.counted.map(|counted| counted.at_peak),
        "counted_before_recording_bytes": device.stats.counted.map(|counted| counted.before),
    }))
}

fn segments(device: &DeviceSnapshot) -> Value {
    let all = analysis::fragmentation(device);
    json!({
        "count": all.segments,
        "reserved_bytes": all.reserved,
        "live_bytes": all.live,
        "unused_bytes": all.unused(),
        "holes": all.holes,
        "largest_hole_bytes": all.largest_hole,
        "empty_bytes": all.empty,
        "estimated": all.estimated,
        "came": device.segment_records.iter().filter(|record| record.kind == RecordKind::Alloc).count(),
        "went": device.segment_records.iter().filter(|record| record.kind == RecordKind::Free).count(),
    })
}

fn balance(balance: &analysis::Balance) -> Value {
    let row = |row: &analysis::BalanceRow| json!({ "label": device_memory::name(&row.item), "bytes": row.bytes });
    json!({
        "total_bytes": balance.total,
        "used_bytes": balance.used,
        "rows": balance.rows.iter().map(row).collect::<Vec<_>>(),
    })
}

fn time(row: &analysis::TimeRow) -> Value {
    let analysis::TimeRow { label, allocs, alloc_ns, frees, free_ns } = row;
    json!({ "label": label, "allocs": allocs, "alloc_ns": alloc_ns, "frees": frees, "free_ns": free_ns })
}

fn oom(oom: &OutOfMemory) -> Value {
    json!({
        "time_ns": oom.time_ns,
        "size": oom.size,
        "device_free_bytes": oom.device_free,
        "device_total_bytes": oom.device_total,
    })
}

fn gap(gap: &Gap) -> Value {
    json!({ "records": gap.records, "from_ns": gap.from_ns, "to_ns": gap.to_ns })
}

fn pool(device: &DeviceSnapshot) -> Value {
    device.pool.map_or(Value::Null, |pool| {
        json!({
            "used_bytes": pool.used,
            "used_high_bytes": pool.used_high,
            "reserved_bytes": pool.reserved,
            "reserved_high_bytes": pool.reserved_high,
            "release_threshold_bytes": pool.release_threshold,
            "used_before_recording_bytes": pool.used_before,
            "recorded_bytes": analysis::pool_balance(device).map(|balance| balance.recorded),
        })
    })
}

fn device(device: &DeviceSnapshot, tables: &Tables, rows: usize) -> Value {
    let peak = &device.peak;
    let mut value = json!({
        "device": device.device.to_string(),
        "records": device.records.len(),
        "records_overwritten": device.overwritten,
        "peak": {
            "total_bytes": peak.total(),
            "bytes": peak.bytes,
            "before_recording_bytes": peak.not_recorded,
            "below_threshold_bytes": peak.below_threshold,
            "blocks": peak.blocks.len(),
            "time_ns": peak.time_ns,
        },
    });
    for (name, table) in &tables.breakdowns {
        value[*name] = breakdown(table, rows);
    }
    value["scopes"] = tables.scopes.iter().take(rows).map(scope).collect();
    value["temporaries"] = tables.temporaries.iter().take(rows).map(temporary).collect();
    value["stats"] = stats(&device.stats);
    if let Some(table) = sample(device) {
        (value["estimated"], value["sampled"]) = (true.into(), table);
    }
    if device.pool.is_some() {
        value["pool"] = pool(device);
    }
    tables.lists.iter().for_each(|(name, list)| value[*name] = first(list, rows));
    tables.others.iter().for_each(|(name, table)| value[*name] = table.clone());
    value
}

fn breakdown(breakdown: &Breakdown, rows: usize) -> Value {
    let shown = breakdown.largest(rows);
    let row = |row: &analysis::Row| json!({ "label": row.label, "bytes": row.bytes, "count": row.count, "median_bytes": row.count.map(|_| row.median) });
    json!({ "total_bytes": shown.total, "rows": shown.rows.iter().map(row).collect::<Vec<_>>() })
}

fn scope(row: &ScopeRow) -> Value {
    json!({
        "path": row.path,
        "at_peak_bytes": row.at_peak,
        "own_peak_bytes": row.own_peak,
        "total_peak_bytes": row.total_peak,
        "calls": row.calls,
        "allocations": row.allocations,
    })
}

fn temporary(row: &TemporaryRow) -> Value {
    json!({ "label": row.label, "bytes": row.bytes, "count": row.count, "largest_bytes": row.largest })
}

fn module(module: &crate::snapshot::LoadedObject) -> Value {
    let build_id: String = module.build_id.iter().map(|byte| format!("{byte:02x}")).collect();
    json!({ "path": module.path.as_deref().unwrap_or_default(), "build_id": build_id, "base": module.base })
}

/// With the keys of `torch.cuda.memory_stats`.
fn stats(stats: &MemoryStats) -> Value {
    let quantities = [
        ("allocated_bytes", stats.allocated_bytes),
        ("active_bytes", stats.active_bytes),
        ("reserved_bytes", stats.reserved_bytes),
        ("allocation", stats.allocations),
    ];
    let mut flat = serde_json::Map::new();
    for (name, stat) in quantities {
        let Stat { current, peak, allocated, freed } = stat;
        for (part, value) in [("current", current), ("peak", peak), ("allocated", allocated), ("freed", freed)] {
            flat.insert(format!("{name}.all.{part}"), value.into());
        }
    }
    flat.insert("num_ooms".to_owned(), stats.num_ooms.into());
    flat.insert("num_alloc_retries".to_owned(), stats.num_alloc_retries.into());
    flat.insert("below_threshold_bytes".to_owned(), stats.below_threshold.into());
    Value::Object(flat)
}
