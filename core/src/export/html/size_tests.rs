//! A page keeps to its size limit, whatever a recording has most of. The sizes are those of deflated columns.

use serde_json::Value;

use super::{HtmlPage, PAGE};
use crate::analysis::device_or_main;
use crate::export::{Export, LeftOut};
use crate::snapshot::testing::{LINE_7, Story, two_lines_and_a_temporary};
use crate::snapshot::{ContextId, ContextNode, DeviceSnapshot, SnapshotData};
use crate::units::grouped;

/// The head of a page, and what was left out.
fn page(data: &SnapshotData, beside_the_viewer: usize) -> (Value, LeftOut) {
    let max_bytes = PAGE.len() + beside_the_viewer;
    let mut out = Vec::new();
    let left_out = HtmlPage { max_bytes: Some(max_bytes as u64), ..HtmlPage::default() }.write(data, &mut out).unwrap();
    assert!(out.len() <= max_bytes && !left_out.too_large, "{} of {max_bytes} bytes: {left_out}", out.len());
    let text = String::from_utf8(out).unwrap();
    let (_, head) = text.split_once("id=\"head\">").unwrap();
    (serde_json::from_str(head.split_once("</script>").unwrap().0).unwrap(), left_out)
}

fn said(device: &Value, words: &str) -> bool {
    device["left_out"].as_array().unwrap().iter().any(|said| said.as_str().unwrap().contains(words))
}

#[test]
fn of_many_devices_those_with_the_largest_peaks_are_shown() {
    let device = |ordinal: u32| -> DeviceSnapshot {
        let mut story = Story::cuda(ordinal);
        story.at(1).alloc("a", 10_000 + 100 * u64::from((ordinal * 7) % 40)).on(LINE_7);
        story.device()
    };
    let data = SnapshotData { devices: (0..40).map(device).collect(), ..Story::cpu().build() };
    let (head, left_out) = page(&data, 200_000);
    let shown = head["recordings"][0]["devices"].as_array().unwrap();
    assert_eq!(shown.len() as u64 + left_out.devices, 40);
    assert!(shown.len() > 4 && left_out.devices > 4, "{} shown: {left_out}", shown.len());
    let peaks: Vec<u64> = shown.iter().map(|device| device["peak"]["bytes"].as_u64().unwrap()).collect();
    assert_eq!(*peaks.iter().min().unwrap(), 10_000 + 100 * left_out.devices, "the smallest peaks are left out");
    let main = &shown[head["recordings"][0]["main"].as_u64().unwrap() as usize];
    assert_eq!(main["name"], device_or_main(&data, None).unwrap().device.to_string());
    let sentence = format!("the {} devices with the smallest peaks", left_out.devices);
    assert!(shown.iter().all(|device| said(device, &sentence)), "{}", main["left_out"]);
}

#[test]
fn of_many_scopes_the_names_that_fit_are_shown() {
    let scope = |at: u32| ContextNode { parent: ContextId::ROOT, name: format!("step {at} of it"), module: false };
    let mut data = two_lines_and_a_temporary();
    let before = data.contexts.len();
    data.contexts.extend((0..20_000).map(scope));
    let (head, _) = page(&data, 900_000);
    let recording = &head["recordings"][0];
    let contexts = recording["contexts"].as_array().unwrap();
    assert_eq!((contexts.len(), &contexts[before + 19_999][0]), (before + 20_000, &Value::from("…")));
    assert_eq!(contexts[before + 99][0], "step 99 of it");
    let unnamed = contexts.iter().filter(|context| context[0] == "…").count();
    let sentence = format!("The names of {} scopes are left out", grouped(unnamed as u64));
    assert!(said(&recording["devices"][0], &sentence), "{}", recording["devices"][0]["left_out"]);
}

#[test]
fn without_room_segments_are_left_out_before_the_page_is_too_large() {
    let mut data = two_lines_and_a_temporary();
    let segment = |at: u64| {
        let noise = (at * at).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 30;
        crate::snapshot::Segment { address: (at << 40) + noise, size: 4096 + noise, ..Default::default() }
    };
    data.devices[0].segments = (1..20_000).map(segment).collect();
    let (head, _) = page(&data, 5 << 20);
    assert!(!said(&head["recordings"][0]["devices"][0], "segments"), "there is room for them");
    let (head, _) = page(&data, 100_000);
    let device = &head["recordings"][0]["devices"][0];
    assert!(said(device, "19,999 small segments are not shown."), "{}", device["left_out"]);
}

/// The size limit also includes the frame around the parts, and what escapes add.
#[test]
fn a_page_is_never_larger_than_asked_if_it_can_be() {
    let device = |ordinal: u32| -> DeviceSnapshot {
        let mut story = Story::cuda(ordinal);
        story.at(1).alloc("a", 10_000 + 100 * u64::from(ordinal)).on(LINE_7);
        story.device()
    };
    let mut data = SnapshotData { devices: (0..60).map(device).collect(), ..Story::cpu().build() };
    data.process.program = "<\u{202e}\u{1b}>".repeat(2000);
    let step = if std::env::var_os("MEMTRACE_CASES").is_some() { 7_001 } else { 28_001 };
    for room in (120_000..260_000).step_by(step) {
        page(&data, room);
    }
}
