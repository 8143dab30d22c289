//! Both traces of small hand-made snapshots, read back as JSON.

use serde_json::Value;

use super::{ChromeTrace, MemoryLayout, Steps};
use crate::export::Export;
use crate::snapshot::testing::{Story, two_lines_and_a_temporary};
use crate::snapshot::{SnapshotData, segments};

pub(super) fn timeline_of(data: &SnapshotData) -> Value {
    let mut out = Vec::new();
    ChromeTrace::default().write(data, &mut out).unwrap();
    serde_json::from_slice(&out).unwrap()
}

pub(super) fn layout_of(data: &SnapshotData, options: &MemoryLayout) -> Value {
    let mut out = Vec::new();
    options.write(data, &mut out).unwrap();
    serde_json::from_slice(&out).unwrap()
}

pub(super) fn events<'a>(trace: &'a Value, phase: &'a str) -> impl Iterator<Item = &'a Value> {
    trace["traceEvents"].as_array().unwrap().iter().filter(move |event| event["ph"] == phase)
}

fn memory(trace: &Value) -> Vec<&Value> {
    events(trace, "i").filter(|event| event["name"] == "[memory]").collect()
}

/// (begin or end, thread, name, time) of the slices.
fn slices(trace: &Value) -> Vec<String> {
    let slice = |event: &Value| format!("{} {} {} {}", event["ph"], event["tid"], event["name"], event["ts"]);
    let all = trace["traceEvents"].as_array().unwrap().iter();
    all.filter(|event| event["ph"] == "B" || event["ph"] == "E").map(|event| slice(event).replace('"', "")).collect()
}

/// (row, offset, size) of the blocks.
pub(super) fn blocks(trace: &Value) -> Vec<(u64, u64, u64)> {
    let number = |event: &Value, key: &str| event[key].as_u64().unwrap();
    events(trace, "X").map(|event| (number(event, "tid"), number(event, "ts"), number(event, "dur"))).collect()
}

#[test]
fn the_largest_total_is_the_peak_and_the_last_is_what_is_live() {
    let data = two_lines_and_a_temporary();
    let trace = timeline_of(&data);
    let totals: Vec<u64> = memory(&trace).iter().map(|e| e["args"]["Total Allocated"].as_u64().unwrap()).collect();
    assert_eq!(totals, [3024, 4024, 4524, 3524, 3588, 3524]);
    let device = &data.devices[0];
    assert_eq!(totals.iter().max(), Some(&device.peak.bytes));
    assert_eq!(totals.last(), Some(&device.stats.allocated_bytes.current));
    let curve: Vec<u64> = events(&trace, "C").map(|e| e["args"]["bytes"].as_u64().unwrap()).collect();
    assert_eq!(curve, [1024, 3024, 4024, 4524, 3524, 3588, 3524, 3524], "from before the first to after the last");
}

#[test]
fn totals_are_the_same_when_older_records_are_overwritten() {
    let mut told = Story::cpu();
    told.before(1024);
    told.at(1_000).alloc("kept", 2500);
    told.at(2_000).alloc("freed", 1000);
    told.at(4_000).free("freed");
    told.at(5_000).alloc("temporary", 64);
    told.at(6_000).free("temporary");
    let trace = timeline_of(&told.overwritten(2).build());
    let totals: Vec<u64> = memory(&trace).iter().map(|e| e["args"]["Total Allocated"].as_u64().unwrap()).collect();
    assert_eq!(totals, [3524, 3588, 3524]);
    assert_eq!(events(&trace, "C").next().unwrap()["ts"], 4, "the curve begins where the log does");
}

#[test]
fn scopes_left_in_any_order_are_slices_that_nest() {
    let mut told = Story::cpu();
    told.at(1000).enter("a");
    told.at(2000).enter("a > b");
    told.at(2500).thread(2).enter("a");
    told.at(3000).thread(1).leave("a");
    told.at(4000).leave("a > b");
    let trace = timeline_of(&told.lasting(2_000_000).build());
    let expected =
        ["B 1 a 1", "B 1 b 2", "B 2 a 2.5", "E 1 null 3", "E 1 null 3", "B 1 b 3", "E 1 null 4", "E 2 null 2000"];
    assert_eq!(slices(&trace), expected);
}

#[test]
fn scopes_entered_before_the_log_begin_with_it() {
    let mut told = Story::cpu();
    told.at(2000).leave("a > b");
    told.at(3000).leave("a");
    let mut data = told.build();
    assert_eq!(slices(&timeline_of(&data)), ["B 1 a 0", "B 1 b 0", "E 1 null 2", "E 1 null 3"]);
    data.settings.max_entries = 2;
    assert_eq!(slices(&timeline_of(&data)), ["B 1 a 2", "B 1 b 2", "E 1 null 2", "E 1 null 3"]);
}

#[test]
fn each_row_holds_what_was_live_at_the_highest_moment_of_its_step() {
    let data = two_lines_and_a_temporary();
    let trace = layout_of(&data, &MemoryLayout::default());
    // Two blocks in `forward`, then the peak with all three.
    assert_eq!(blocks(&trace), [(2, 0, 2000), (2, 4096, 1000), (3, 0, 2000), (3, 4096, 1000), (3, 8192, 500)]);
    let names: Vec<&Value> =
        events(&trace, "M").filter(|e| e["name"] == "thread_name").map(|e| &e["args"]["name"]).collect();
    let expected = [
        "1 forward: 3.930 KiB (with 1.000 KiB that were not recorded)",
        "2 (no scope): 4.418 KiB (peak) (with 1.000 KiB that were not recorded)",
    ];
    assert_eq!(names, expected);
}

#[test]
fn segments_lie_end_to_end() {
    let mut told = Story::cpu();
    told.alloc("first", 2000).address(0x1000).alloc("second", 1000).address(0x2000).alloc("third", 500).address(0x3000);
    let mut data = told.build();
    let device = &mut data.devices[0];
    // The other two blocks of the peak are outside of all segments.
    device.segments = segments::cover(&[], &device.peak.blocks[..1], &[], &[]);
    let trace = layout_of(&data, &MemoryLayout { max_steps: 1, ..Default::default() });
    assert_eq!(blocks(&trace), [(2, 0, 2000), (2, 2000, 1000), (2, 3000, 500)]);
}

#[test]
fn the_peak_has_a_row_when_its_records_are_gone() {
    let options = MemoryLayout::default();
    let peak = [(1, 0, 2000), (1, 2000, 1000), (1, 3000, 500)];
    let mut told = Story::cpu();
    told.alloc("kept", 2000).alloc("freed", 1000).alloc("kept, too", 500).free("freed");
    told.alloc("temporary", 64).free("temporary");
    let rows = blocks(&layout_of(&told.overwritten(4).build(), &options));
    assert_eq!(rows[..3], peak);
    assert_eq!(rows[3..], [(2, 0, 2000), (2, 3000, 500), (2, 7096, 64)]);
    // A recording without a log.
    assert_eq!(blocks(&layout_of(&told.overwritten(0).without_log().build(), &options)), peak);
}

#[test]
fn too_many_steps_lose_their_deepest_scopes_first_and_never_the_peak() {
    let mut told = Story::cpu();
    told.at(1_000).alloc("first", 2000);
    told.at(1_500).enter("a > b");
    told.at(2_000).alloc("second", 1000);
    told.at(2_500).leave("a > b");
    told.at(3_000).alloc("third", 500);
    told.at(4_000).free("second");
    told.at(4_500).enter("a");
    told.at(5_000).alloc("temporary", 64);
    told.at(6_000).free("temporary");
    let data = told.build();
    let steps = |most| {
        let trace = layout_of(&data, &MemoryLayout { max_steps: most, ..Default::default() });
        let rows = events(&trace, "M").filter(|e| e["name"] == "thread_name").count();
        let peak: u64 = data.devices[0].peak.blocks.iter().map(|block| block.size).sum();
        let bytes = |row| blocks(&trace).iter().filter(|block| block.0 == row).map(|block| block.2).sum::<u64>();
        assert!((2..9).any(|row| bytes(row) == peak), "{most} steps");
        let cpu = trace["otherData"]["cpu"].clone();
        (rows, cpu["scopes_to_depth"].as_u64(), cpu["steps_joined"].as_u64().unwrap())
    };
    assert_eq!(steps(4), (4, None, 1));
    assert_eq!(steps(3), (2, Some(1), 1));
    assert_eq!(steps(1), (1, Some(1), 2));
}

#[test]
fn a_stack_is_a_path_in_the_table() {
    let data = two_lines_and_a_temporary();
    let trace = timeline_of(&data);
    let frame = &trace["stackFrames"][memory(&trace)[0]["sf"].to_string()];
    assert_eq!(frame["name"], "candle-core-0.11.1/src/tensor.rs:700 (Tensor::relu)");
    assert_eq!(trace["stackFrames"][frame["parent"].to_string()]["name"], "src/model.rs:7 (Net::forward)");
}

#[test]
fn odd_names_are_escaped() {
    let name = "say \"hi\"\\\n\u{1}\u{1f980}";
    let mut told = Story::cpu();
    told.at(1000).enter(name);
    told.at(9000).leave(name);
    let data = told.build();
    let trace = timeline_of(&data);
    assert_eq!(events(&trace, "B").next().unwrap()["name"], name);
}

#[test]
fn a_small_timeline_keeps_the_peak_and_exact_totals() {
    let data = two_lines_and_a_temporary();
    let write = |max_bytes| {
        let mut out = Vec::new();
        let options = ChromeTrace { max_bytes, ..ChromeTrace::default() };
        let left_out = options.write(&data, &mut out).unwrap();
        (left_out, out)
    };
    let (whole, everything) = (write(None).1.len() as u64, write(None).1);
    let (left_out, fitting) = write(Some(whole));
    assert!(left_out.is_nothing() && fitting == everything, "{left_out}");
    for max in [whole - 1, 1] {
        let (left_out, out) = write(Some(max));
        assert!(left_out.too_large == (max == 1) && (out.len() as u64 <= max || max == 1), "{left_out}");
        let trace: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(trace["otherData"]["left_out"], left_out.to_string());
        let totals: Vec<u64> =
            memory(&trace).iter().map(|event| event["args"]["Total Allocated"].as_u64().unwrap()).collect();
        // The temporary is left out; the other totals are unchanged.
        assert_eq!(totals, [3024, 4024, 4524, 3524]);
    }
}

#[test]
fn a_small_layout_keeps_the_row_of_the_peak() {
    let data = two_lines_and_a_temporary();
    let write = |max_bytes| {
        let mut out = Vec::new();
        let options = MemoryLayout { max_bytes, ..MemoryLayout::default() };
        let left_out = options.write(&data, &mut out).unwrap();
        (left_out, serde_json::from_slice::<Value>(&out).unwrap())
    };
    let (left_out, trace) = write(Some(1));
    assert_eq!((left_out.blocks_up_to, left_out.too_large), (Some(2000), true), "{left_out}");
    assert_eq!(trace["otherData"]["left_out"], left_out.to_string());
    let mut at_peak: Vec<u64> = blocks(&trace).into_iter().map(|(_, _, size)| size).collect();
    at_peak.sort_unstable();
    assert_eq!(at_peak, [500, 1000, 2000], "the row of the peak and no other");
    assert!(blocks(&write(None).1).len() > 3);
    let whole = write(None).1.to_string().len() as u64;
    let (left_out, trace) = write(Some(whole - 100));
    assert!(!left_out.too_large && !left_out.is_nothing(), "{left_out}");
    assert_eq!(trace["otherData"]["left_out"], left_out.to_string());
}

#[test]
fn steps_by_calls_are_named_after_them() {
    let options = MemoryLayout { steps: Steps::Operators, ..Default::default() };
    let trace = layout_of(&two_lines_and_a_temporary(), &options);
    let names: Vec<&str> =
        events(&trace, "M").filter(|e| e["name"] == "thread_name").filter_map(|e| e["args"]["name"].as_str()).collect();
    let outside = "(with 1.000 KiB that were not recorded)";
    assert_eq!(
        names,
        [
            format!("1 relu_0 in forward: 2.953 KiB {outside}"),
            format!("2 relu_1 in forward: 3.930 KiB {outside}"),
            format!("3 (no operator): 4.418 KiB (peak) {outside}"),
        ]
    );
}
