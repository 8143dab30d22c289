//! Both Chrome traces of a real recording, through the public API.

use std::fs::File;

use crate::support::{MIB, Raw, alone, cpu, record_large};
use memtrace::export::{ChromeTrace, Export, MemoryLayout};
use memtrace::scope;
use serde_json::Value;

/// Two blocks and a temporary on this thread, one block on another thread, in scopes that end in the wrong order.
fn program() -> Vec<Raw> {
    let (outer, inner) = (memtrace::scope_guard("outer"), memtrace::scope_guard("inner"));
    let first = Raw::new(2 * MIB);
    drop(outer);
    let second = Raw::new(3 * MIB);
    drop(inner);
    let there = std::thread::spawn(|| scope("elsewhere", || Raw::new(MIB))).join().unwrap();
    drop(Raw::new(5 * MIB));
    vec![first, second, there]
}

fn events<'a>(trace: &'a Value, phase: &'a str) -> Vec<&'a Value> {
    trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == phase).collect()
}

#[test]
fn the_traces_of_a_recording_equal_its_snapshot() {
    let _alone = alone();
    let session = record_large();
    let kept = program();
    let snapshot = session.snapshot();
    drop((session, kept));
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let file = |name: &str| File::create(path(name)).unwrap();
    ChromeTrace::default().write(&snapshot, &mut file("timeline.json")).unwrap();
    MemoryLayout::default().write(&snapshot, &mut file("layout.json")).unwrap();
    let read = |name: &str| serde_json::from_slice(&std::fs::read(path(name)).unwrap()).unwrap();
    let (timeline, layout): (Value, Value) = (read("timeline.json"), read("layout.json"));
    let device = cpu(&snapshot);

    let memory: Vec<&Value> = events(&timeline, "i").into_iter().filter(|event| event["name"] == "[memory]").collect();
    assert_eq!(memory.len(), device.records.len());
    let total = |event: &&Value| event["args"]["Total Allocated"].as_u64().unwrap();
    assert_eq!(memory.iter().map(total).max(), Some(device.peak.bytes));
    assert_eq!(memory.last().map(total), Some(device.stats.allocated_bytes.current));
    assert!(memory[0]["args"]["source"].as_str().unwrap().starts_with("tests/"), "{}", memory[0]);

    let begun: Vec<&str> = events(&timeline, "B").iter().map(|event| event["name"].as_str().unwrap()).collect();
    assert_eq!(begun, ["outer", "inner", "inner", "elsewhere"], "what was inside is begun again");
    assert_eq!(events(&timeline, "E").len(), begun.len());

    let is_peak = |event: &&&Value| event["args"]["name"].as_str().is_some_and(|name| name.contains("(peak)"));
    let metadata = events(&layout, "M");
    let row = &metadata.iter().find(is_peak).unwrap()["tid"];
    let blocks: Vec<&Value> = events(&layout, "X").into_iter().filter(|event| event["tid"] == *row).collect();
    let bytes: u64 = blocks.iter().map(|event| event["dur"].as_u64().unwrap()).sum();
    assert_eq!((blocks.len(), bytes), (device.peak.blocks.len(), device.peak.bytes - device.peak.not_recorded));
}
