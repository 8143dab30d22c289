//! Tests of the formats for profile viewers. A small reader here reads each format, and adds up the bytes itself.

use std::collections::BTreeSet;

use serde_json::Value;

use super::golden_tests::Full;
use super::{Dhat, Export, Pprof};
use crate::analysis::Moment;
use crate::recording::DeviceView;
use crate::snapshot::testing::{Story, a_sample, empty, frame, stacks, two_lines_and_a_temporary};
use crate::snapshot::{SnapshotData, StackId};

pub(super) fn written(format: &impl Export, data: &SnapshotData) -> Vec<u8> {
    let mut out = Vec::new();
    format.write(data, &mut out).unwrap();
    out
}

fn json(format: &impl Export, data: &SnapshotData) -> Value {
    serde_json::from_slice(&written(format, data)).unwrap()
}

/// Names that could break a format.
pub(super) fn hostile_names() -> [String; 4] {
    ["say \"hi\" \\ </script>".into(), "two\nlines\r\t".into(), "a\0NUL \u{1f980}".into(), "x".repeat(10_000)]
}

/// A GPU and the heap. The GPU's stack has two inlined calls, and every hostile name as a function and as a file.
pub(super) fn hostile() -> SnapshotData {
    let frames: Vec<_> = (1..).zip(hostile_names()).map(|(line, name)| frame(&name, &name, line)).collect();
    let mut trace = Story::cuda(0);
    trace.stacks(stacks(frames, [[0, 1, 2, 3]])).enter(&hostile_names()[0]);
    trace.at(1_000).alloc("a", 700).on(StackId(1)).alloc("b", 50);
    trace.at(5_000).free("a").alloc("c", 10).on(StackId(1));
    let mut data = trace.build();
    // The first address gets three frames, so that two are inlined.
    data.stacks.addresses[0].frames = 0..3;
    data.stacks.frames[0].inlined = true;
    data.devices.insert(0, two_lines_and_a_temporary().devices.remove(0));
    data
}

/// The sum of a field over all points.
fn dhat_sum(file: &Value, field: &str) -> u64 {
    file["pps"].as_array().unwrap().iter().map(|point| point[field].as_u64().unwrap()).sum()
}

#[test]
fn dhat_has_the_peak_and_the_end_to_the_byte() {
    for data in [two_lines_and_a_temporary(), a_sample(), hostile()] {
        for device in &data.devices {
            let file = json(&Dhat { device: Some(device.device) }, &data);
            let end = DeviceView::of(&data, device).at(&Moment::End).unwrap().total();
            assert_eq!((dhat_sum(&file, "gb"), dhat_sum(&file, "eb")), (device.peak.total(), end));
            assert!(dhat_sum(&file, "mb") >= device.peak.total());
            let points = file["pps"].as_array().unwrap();
            let paths: BTreeSet<String> = points.iter().map(|point| point["fs"].to_string()).collect();
            assert_eq!(paths.len(), points.len(), "a call path occurs twice");
        }
    }
}

#[test]
fn dhat_has_totals_maxima_and_lifetimes_of_each_call_path_and_any_name_as_text() {
    let data = hostile();
    let file = json(&Dhat::default(), &data);
    let frames: Vec<&str> = file["ftbl"].as_array().unwrap().iter().flat_map(Value::as_str).collect();
    assert_eq!(frames[0], "[root]");
    let text = |n: usize| {
        format!(
            "0x{:x}: {name} ({name}:{line})",
            if n < 3 { 0x200 } else { 0x203 },
            name = hostile_names()[n],
            line = n + 1
        )
    };
    let points = file["pps"].as_array().unwrap();
    let innermost = |point: &&Value| frames[point["fs"][0].as_u64().unwrap() as usize] == text(0);
    let point = points.iter().find(innermost).unwrap();
    let fields = ["tb", "tbk", "mb", "mbk", "gb", "gbk", "eb", "ebk"].map(|field| point[field].as_u64().unwrap());
    assert_eq!(fields, [710, 2, 700, 1, 700, 1, 10, 1]);
    // One block lives from 1 to 5 µs, the other from 5 µs to the end at 2,000 µs.
    assert_eq!((&point["tl"], &file["te"], &file["tg"]), (&1999.into(), &2000.into(), &1.into()));
    assert!((0..4).all(|n| frames.contains(&&*text(n))), "{frames:?}");
}

#[test]
fn an_empty_recording_is_written_and_a_full_disk_is_an_error() {
    let formats: [&dyn Export; 2] = [&Pprof::default(), &Dhat::default()];
    for format in formats {
        format.write(&empty(), &mut Vec::new()).unwrap();
        for room in 0..200 {
            assert!(format.write(&two_lines_and_a_temporary(), &mut Full(room)).is_err());
        }
    }
}
