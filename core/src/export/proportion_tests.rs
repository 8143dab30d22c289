//! Extremely disproportionate recordings: nothing recurses over nested scopes, and JSON keeps to its size limit.

use std::num::NonZeroU64;

use serde_json::Value;

use super::viewer_tests::written;
use super::{Export, Folded, Json};
use crate::report::{Report, ReportOptions};
use crate::snapshot::testing::{LINE_7, Story};
use crate::snapshot::{ContextId, ContextNode, SnapshotData, scopes_of_log};

/// `deep` nested scopes, with a block in every `each`-th of them.
fn nested_scopes(deep: u32, each: u32) -> SnapshotData {
    let mut story = Story::cpu();
    for at in 0..deep / each {
        story.at(1000 * u64::from(at)).alloc(at, 1000 + u64::from(at)).on(LINE_7);
    }
    let mut data = story.build();
    let scope = |parent| ContextNode { parent: ContextId(parent), name: "s".into(), module: false };
    data.contexts.extend((0..deep).map(scope));
    let device = &mut data.devices[0];
    let context = |seq: Option<NonZeroU64>| ContextId(seq.unwrap().get() as u32 * each);
    device.live.iter_mut().chain(&mut device.peak.blocks).for_each(|block| block.context = context(block.seq));
    device.records.iter_mut().for_each(|record| record.context = context(record.alloc_seq));
    device.scopes =
        scopes_of_log(&device.records, &device.marks, &data.contexts, device.sampling, device.live_by_sizes());
    data
}

/// Runs `run` with the stack size of Rust's threads, which is less than that of the main thread.
fn in_a_thread(run: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap().join().unwrap();
}

#[test]
fn a_report_takes_as_many_nested_scopes_as_the_reader_accepts() {
    in_a_thread(|| {
        // The limits of `capture/limits.rs`.
        let data = nested_scopes(4096, 1024);
        written(&Folded { scopes: true, ..Folded::default() }, &data);
        let report = Report::of(&data, &ReportOptions { rows: 10_000, ..ReportOptions::default() }).unwrap();
        let scopes = report.sections.iter().find(|section| section.key == "scopes").unwrap();
        assert_eq!(scopes.rows.len(), 4097, "each scope, and everything else");
    });
}

#[test]
fn json_keeps_to_its_size_whatever_the_names_of_scopes_add_up_to() {
    let data = nested_scopes(1000, 2);
    let whole = written(&Json { max_bytes: None, ..Json::default() }, &data).len();
    assert!(whole > 4 << 20, "each scope is written with its path: {whole} bytes");
    for max_bytes in [1 << 20, 16 << 10] {
        let mut out = Vec::new();
        let left_out = Json { max_bytes: Some(max_bytes), ..Json::default() }.write(&data, &mut out).unwrap();
        assert!(out.len() as u64 <= max_bytes && left_out.rows > 0 && !left_out.too_large, "{left_out}");
        let value: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(value["left_out"], left_out.to_string());
        assert_eq!(value["devices"][0]["peak"]["bytes"], data.devices[0].peak.bytes);
        let rows = value["devices"][0]["peak_by_scope"]["rows"].as_array().unwrap();
        let sum: u64 = rows.iter().map(|row| row["bytes"].as_u64().unwrap()).sum();
        assert_eq!(sum, data.devices[0].peak.bytes, "the smallest rows are summed in one");
    }
}

#[test]
fn every_list_of_the_json_is_within_its_size() {
    let mut story = Story::cuda(0);
    story.at(1).alloc("a", 1000).on(LINE_7);
    for at in 0..2000 {
        story.at(2 + at).refused(1 << 40, None);
    }
    let mut data = story.build();
    data.objects = vec![data.objects[0].clone(); 2000];
    let mut out = Vec::new();
    let left_out = Json { max_bytes: Some(32 << 10), ..Json::default() }.write(&data, &mut out).unwrap();
    assert!(out.len() <= 32 << 10 && !left_out.too_large, "{} bytes: {left_out}", out.len());
}
