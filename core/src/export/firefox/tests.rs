//! The profile is read as the Firefox Profiler reads it: retained memory is what a range allocates and does not free.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Firefox;
use crate::analysis::Moment;
use crate::export::viewer_tests::{hostile, hostile_names, written};
use crate::snapshot::testing::{LINE_7, LINE_9, Story, a_sample, two_lines_and_a_temporary};
use crate::snapshot::{Category, Gap, RecordKind, SnapshotData};

fn profile(data: &SnapshotData) -> Value {
    serde_json::from_slice(&written(&Firefox::default(), data)).unwrap()
}

fn column<'a>(table: &'a Value, name: &str) -> &'a Vec<Value> {
    let column = table[name].as_array().unwrap();
    assert_eq!(Some(column.len() as u64), table["length"].as_u64(), "{name}");
    column
}

fn numbers(table: &Value, name: &str) -> Vec<f64> {
    column(table, name).iter().map(|value| value.as_f64().unwrap_or(-1.0)).collect()
}

/// Names of a stack's functions, innermost first.
fn names(thread: &Value, stack: f64) -> Vec<String> {
    let (tables, strings) = (&thread["stackTable"], thread["stringArray"].as_array().unwrap());
    let mut names = Vec::new();
    let mut at = stack;
    while at >= 0.0 {
        let frame = numbers(tables, "frame")[at as usize] as usize;
        let function = numbers(&thread["frameTable"], "func")[frame] as usize;
        let name = numbers(&thread["funcTable"], "name")[function] as usize;
        names.push(strings[name].as_str().unwrap().to_owned());
        at = numbers(tables, "prefix")[at as usize];
    }
    names
}

/// Bytes by stack, of what is allocated before `until_ms` and not freed.
fn retained(thread: &Value, until_ms: f64) -> BTreeMap<Vec<String>, i64> {
    let table = &thread["nativeAllocations"];
    let [times, weights, stacks, blocks] =
        ["time", "weight", "stack", "memoryAddress"].map(|name| numbers(table, name));
    assert!(times.is_sorted(), "{times:?}");
    let mut live: BTreeMap<u64, (i64, f64)> = BTreeMap::new();
    for (at, block) in blocks.iter().enumerate().take_while(|(at, _)| times[*at] < until_ms) {
        let (block, weight) = (*block as u64, weights[at] as i64);
        if weight > 0 {
            assert!(live.insert(block, (weight, stacks[at])).is_none(), "block {block} is allocated twice");
        } else {
            assert_eq!(live.remove(&block).map(|(bytes, _)| bytes), Some(-weight), "block {block}");
        }
    }
    let mut sums = BTreeMap::new();
    for (bytes, stack) in live.into_values() {
        *sums.entry(names(thread, stack)).or_insert(0) += bytes;
    }
    sums
}

/// The end of the range that the marker `peak` has.
fn peak_ms(thread: &Value) -> f64 {
    let markers = &thread["markers"];
    let is_peak = |data: &Value| data["type"] == "memtrace-peak";
    let at = column(markers, "data").iter().position(is_peak).unwrap();
    assert!(numbers(markers, "startTime")[at].abs() < f64::EPSILON);
    numbers(markers, "endTime")[at]
}

fn check(data: &SnapshotData) {
    let profile = profile(data);
    for (thread, device) in profile["threads"].as_array().unwrap().iter().zip(&data.devices) {
        let sum = |until| retained(thread, until).values().sum::<i64>() as u64;
        assert_eq!(sum(peak_ms(thread)), device.peak.total(), "{}", device.device);
        let end = Moment::End.of(data, device).unwrap().peak.total();
        assert!(device.is_sample() || sum(f64::INFINITY) == end, "{} {end}", sum(f64::INFINITY));
        let same_pid = |counter: &&Value| counter["pid"] == thread["pid"];
        let counter = profile["counters"].as_array().unwrap().iter().find(same_pid).unwrap();
        let add = |live: &mut f64, change: &f64| {
            *live += change;
            Some(*live)
        };
        let totals: Vec<f64> = numbers(&counter["samples"], "count").iter().scan(0.0, add).collect();
        let highest = totals.iter().copied().fold(0.0, f64::max);
        assert!(device.is_sample() || highest as u64 == device.peak.total(), "{totals:?}");
    }
}

/// Blocks from before, one of them freed before the peak and one after; the peak is in the middle.
fn story() -> Story {
    let mut story = Story::cpu();
    story.before(5000).below_threshold(77);
    story.at(1_000).alloc("a", 2000).on(LINE_7).alloc("b", 300).on(LINE_9);
    story.at(2_000).free_from_before(1000).free("b");
    story.at(3_000).alloc("c", 6000).on(LINE_9).alloc("d", 10).on(LINE_7);
    // In the nanosecond of the peak.
    story.free("a").free_from_before(1500);
    story.at(4_000).alloc("e", 400).on(LINE_7).free("c");
    story.at(5_000).alloc("f", 40).on(LINE_7);
    story
}

#[test]
fn what_is_retained_until_the_peak_is_the_peak_and_until_the_end_the_end() {
    for data in [two_lines_and_a_temporary(), a_sample(), hostile(), story().build(), Story::cpu().build()] {
        check(&data);
    }
    let data = story().build();
    let found = retained(&profile(&data)["threads"][0], 0.003_000_5);
    let labels: Vec<&str> = found.keys().filter(|names| names.len() == 1).map(|names| &*names[0]).collect();
    assert_eq!(labels, ["(allocated before recording)", "(blocks smaller than 1 KiB)"]);
    assert_eq!(found[&vec![labels[0].to_owned()]], 4000);
}

#[test]
fn a_log_that_lost_records_has_the_peak_and_the_end_all_the_same() {
    for overwritten in 0..=9 {
        check(&story().overwritten(overwritten).build());
    }
    check(&story().without_log().build());
    // A block that only the peak's list has, as in a gap: the log says nothing of it.
    let mut data = story().build();
    let device = &mut data.devices[0];
    let (peak, at) = (device.peak.seq, device.records.iter().position(|record| record.size == 10).unwrap());
    assert_eq!((device.records[at].alloc_seq, device.records[at].kind), (peak, RecordKind::Alloc));
    device.records.retain(|record| record.alloc_seq != peak);
    device.live.retain(|block| block.seq != peak);
    device.stats.allocated_bytes.current -= 10;
    device.gaps.push(Gap { at, records: 2, from_ns: 3_000, to_ns: 3_000 });
    check(&data);
}

#[test]
fn scopes_frames_and_categories_are_there_and_any_name_as_text() {
    let data = hostile();
    let profile = profile(&data);
    let gpu = &profile["threads"][1];
    let strings = gpu["stringArray"].as_array().unwrap();
    assert!(hostile_names().iter().all(|name| strings.contains(&(&**name).into())));
    assert_eq!((&gpu["name"], &gpu["pid"]), (&"cuda:0".into(), &"42.1".into()));
    let stack = retained(gpu, peak_ms(gpu)).into_keys().find(|names| names.len() > 1).unwrap();
    assert_eq!(stack, [0, 1, 2, 1, 2, 3].map(|n| hostile_names()[n].clone()));
    let frames = &gpu["frameTable"];
    // The first address has three frames: its function's is the outermost.
    let depths: Vec<(f64, f64)> = numbers(frames, "line").into_iter().zip(numbers(frames, "inlineDepth")).collect();
    assert!([(4.0, 0.0), (3.0, 0.0), (2.0, 1.0), (1.0, 2.0)].iter().all(|row| depths.contains(row)), "{depths:?}");
    let files = numbers(&gpu["funcTable"], "fileName");
    assert!(files.iter().any(|file| *file >= 0.0 && strings[*file as usize] == *hostile_names()[3]));

    let profile = self::profile(&two_lines_and_a_temporary());
    let cpu = &profile["threads"][0];
    let scope = column(&cpu["markers"], "data").iter().position(|data| data["path"] == "forward").unwrap();
    let times = ["startTime", "endTime"].map(|name| numbers(&cpu["markers"], name)[scope]);
    assert_eq!(times, [0.0009, 0.0025]);
    let categories = profile["meta"]["categories"].as_array().unwrap();
    for category in Category::ALL {
        assert_eq!(categories[1 + category as usize]["name"], category.word());
    }
    let used = numbers(&cpu["frameTable"], "category");
    assert!(used.contains(&(1.0 + f64::from(Category::Parameter as u8))), "{used:?}");
}

#[test]
fn refused_allocations_are_markers() {
    let mut story = Story::cuda(0);
    story.at(7_000).refused(1 << 30, None);
    let profile = profile(&story.build());
    let markers = &profile["threads"][0]["markers"];
    let at = column(markers, "data").iter().position(|data| data["bytes"] == 1u64 << 30).unwrap();
    assert_eq!((numbers(markers, "startTime")[at], &markers["endTime"][at]), (0.007, &Value::Null));
}
