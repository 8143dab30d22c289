//! The functions of PyTorch's memory tools, done with a recording. `docs/pytorch.md` has the same rows as a table.

use std::path::Path;

use memtrace::analysis::Key;
use memtrace::snapshot::{DeviceSnapshot, RecordKind};
use memtrace::{DeviceView, Snapshot, read_operators};
use serde_json::Value;

/// Runs all checks. `scope` is a scope that the program entered.
pub(crate) fn check(snapshot: &Snapshot, scope: &str, dir: &Path) {
    memory_snapshot(snapshot, dir);
    pytorch_mem_tracer(snapshot);
    memory_tracker(snapshot, dir);
    memory_trace(snapshot, dir);
    chrome_trace(snapshot, scope, dir);
    memory_timeline(snapshot, dir);
}

fn cpu(snapshot: &Snapshot) -> &DeviceSnapshot {
    snapshot.device(memtrace::Device::Cpu).expect("the CPU is recorded")
}

/// Bytes of the peak whose blocks are known. Memory from before the recording has no address.
fn with_addresses(snapshot: &Snapshot) -> u64 {
    let view = DeviceView::of(snapshot, cpu(snapshot));
    let before = view.by(Key::Line).rows.iter().filter(|row| row.label == "(allocated before recording)");
    cpu(snapshot).peak.bytes - before.map(|row| row.bytes).sum::<u64>()
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// `torch.cuda.memory._dump_snapshot`: a pickle with the same peak, the same allocations and the same live blocks.
fn memory_snapshot(snapshot: &Snapshot, dir: &Path) {
    let path = snapshot.write(dir.join("tools.pickle")).unwrap();
    let back = memtrace::open(path).unwrap();
    let (ours, read) = (cpu(snapshot), &back.devices[0]);
    let allocs = |device: &DeviceSnapshot| {
        device
            .records
            .iter()
            .filter(|record| record.kind == RecordKind::Alloc)
            .map(|record| record.size)
            .collect::<Vec<_>>()
    };
    assert_eq!(allocs(read), allocs(ours));
    assert_eq!(read.peak.bytes, with_addresses(snapshot));
}

/// `report_stats`: a table of lines at the peak with bytes, bytes so far, median and number.
fn pytorch_mem_tracer(snapshot: &Snapshot) {
    let view = DeviceView::of(snapshot, cpu(snapshot));
    let table = view.by(Key::Line);
    assert_eq!(table.rows.iter().map(|row| row.bytes).sum::<u64>(), cpu(snapshot).peak.total());
    let report = snapshot.report().to_string();
    let lines: Vec<&str> = report.lines().skip_while(|line| *line != "At the peak, by line").collect();
    for column in ["Mem", "Cumulative", "Blocks", "Median", "Location"] {
        assert!(lines[1].contains(column), "{}", lines[1]);
    }
    assert!(report.contains("\nPeak ") && report.contains("\nTotal allocated "), "{report}");
}

/// `summary`, `show_traces`, `save_stats` and `load`: memory by operator, four figures, and a file that is read again.
fn memory_tracker(snapshot: &Snapshot, dir: &Path) {
    let series = snapshot.operators();
    assert!(series.calls.len() > 20, "{} calls", series.calls.len());
    let largest = series.calls.iter().map(|call| call.peak).max().unwrap();
    assert_eq!(largest, cpu(snapshot).peak.bytes, "the peak is inside a call");
    let most = series.calls.iter().max_by_key(|call| call.added).unwrap();
    assert!(series.to_string().contains(&*most.operator), "{series}");
    let path = series.write(dir.join("tools.operators.json")).unwrap();
    assert_eq!(*read_operators(path).unwrap(), *series);
    let figures = std::fs::read_to_string(series.write(dir.join("tools.operators.svg")).unwrap()).unwrap();
    for figure in ["Allocated", "Active", "Reserved"] {
        assert!(figures.contains(figure), "{figure}");
    }
    assert_eq!(figures.contains("Forward/backward boundary"), series.calls.iter().any(|call| call.is_backward));
}

/// `generate_memory_trace` with offsets: a row for each step, in which the horizontal axis is bytes.
fn memory_trace(snapshot: &Snapshot, dir: &Path) {
    let trace = json(&snapshot.write(dir.join("tools.layout.json")).unwrap());
    let blocks: Vec<&Value> = events(&trace).filter(|event| event["ph"] == "X").collect();
    let row = |block: &Value| block["tid"].as_u64().unwrap();
    let rows: std::collections::BTreeSet<u64> = blocks.iter().map(|block| row(block)).collect();
    assert!(rows.len() > 2, "{rows:?}");
    let held = |at: u64| -> u64 {
        blocks.iter().filter(|block| row(block) == at).map(|block| block["dur"].as_u64().unwrap()).sum()
    };
    assert_eq!(rows.into_iter().map(held).max(), Some(with_addresses(snapshot)));
}

fn events(trace: &Value) -> impl Iterator<Item = &Value> {
    trace["traceEvents"].as_array().unwrap().iter()
}

/// `export_chrome_trace` with `profile_memory` and `record_function`: scopes, allocations and the total over time.
fn chrome_trace(snapshot: &Snapshot, scope: &str, dir: &Path) {
    let trace = json(&snapshot.write(dir.join("tools.trace.json")).unwrap());
    let of = |phase: &'static str| events(&trace).filter(move |event| event["ph"] == phase);
    assert!(of("B").any(|event| event["name"] == scope), "no {scope}");
    let peak = of("C").filter_map(|event| event["args"]["bytes"].as_u64()).max();
    assert_eq!(peak, Some(cpu(snapshot).peak.bytes));
    assert!(of("i").count() >= cpu(snapshot).records.len(), "an instant for each record");
}

/// `export_memory_timeline`: a picture, and both JSON forms. The parts of a moment add up to its live bytes.
fn memory_timeline(snapshot: &Snapshot, dir: &Path) {
    let picture = std::fs::read_to_string(snapshot.write(dir.join("tools.categories.svg")).unwrap()).unwrap();
    assert!(picture.contains("PARAMETER"), "categories have names");
    let timeline = json(&snapshot.write(dir.join("tools.categories.json")).unwrap());
    let (times, sizes) = (timeline[0].as_array().unwrap(), timeline[1].as_array().unwrap());
    assert_eq!(times.len(), sizes.len());
    let last: u64 = sizes.last().unwrap().as_array().unwrap().iter().map(|bytes| bytes.as_u64().unwrap()).sum();
    assert_eq!(last, cpu(snapshot).stats.allocated_bytes.current);
    let raw = json(&snapshot.write(dir.join("tools.categories.raw.json")).unwrap());
    assert!(raw.as_array().unwrap().len() >= cpu(snapshot).records.len());
}
