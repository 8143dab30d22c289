//! Independence of recordings from each other, and unusual programs.

use std::collections::HashMap;

use memtrace::analysis::{Key, Subject};
use memtrace::export::{Export, Folded, Text, report_json};
use memtrace::report::{DiffOptions, Report, ReportOptions};
use memtrace::{Device, DeviceView, scope, scope_guard};

use crate::schema::{checked_json, violations};
use crate::support::{MIB, Raw, alone, cpu, record_large};

#[inline(never)]
fn deep(levels: usize) -> Raw {
    if levels == 0 { Raw::new(2 * MIB) } else { std::hint::black_box(deep(std::hint::black_box(levels - 1))) }
}

#[test]
fn the_stack_depth_of_a_session_ends_with_it() {
    let _alone = alone();
    let session = memtrace::builder().min_size(MIB).stack_depth(2).start().unwrap();
    drop(session);
    let measured = memtrace::measure(|| drop(deep(40)));
    let snapshot = measured.snapshot();
    let block = cpu(&snapshot).peak.blocks[0];
    assert!(snapshot.stacks.addresses(block.stack).count() > 40);
}

#[test]
fn losses_of_an_earlier_recording_are_not_reported_again() {
    let _alone = alone();
    let session = memtrace::builder().min_size(MIB).stack_depth(2).start().unwrap();
    drop(deep(40));
    assert!(session.snapshot().health.shortened_stacks > 0);
    drop(session);
    let session = memtrace::builder().min_size(MIB).start().unwrap();
    assert_eq!(session.snapshot().health.shortened_stacks, 0);
}

#[test]
fn scopes_closed_out_of_order_are_left_under_their_own_names() {
    let _alone = alone();
    let session = memtrace::builder().min_size(MIB).start().unwrap();
    let (outer, inner) = (scope_guard("outer"), scope_guard("inner"));
    drop(outer);
    drop(inner);
    let snapshot = session.snapshot();
    let expected = [("outer", true), ("outer > inner", true), ("outer", false), ("outer > inner", false)];
    assert_eq!(marks(&snapshot), expected.map(|(path, enter)| (path.to_owned(), enter)));
}

/// Paths entered and left, in order.
fn marks(snapshot: &memtrace::SnapshotData) -> Vec<(String, bool)> {
    cpu(snapshot).marks.iter().map(|mark| (snapshot.context_path(mark.context), mark.enter)).collect()
}

#[test]
fn a_scope_open_when_the_recording_starts_is_neither_entered_nor_left_in_it() {
    let _alone = alone();
    let (before, carried) = (scope_guard("before"), memtrace::Context::current().enter());
    let session = memtrace::builder().min_size(MIB).start().unwrap();
    let inner = scope_guard("inner");
    let small = Raw::new(MIB);
    drop((before, carried));
    let large = Raw::new(4 * MIB);
    drop(inner);
    let snapshot = session.snapshot();
    let scopes = &cpu(&snapshot).scopes;
    let mut seen: Vec<_> = scopes.iter().map(|s| (snapshot.context_path(s.context), s.calls, s.total_peak)).collect();
    // In the order in which the process first entered them.
    seen.sort();
    let peak = Some(cpu(&snapshot).peak.bytes);
    let path = |path: &str| path.to_owned();
    assert_eq!(seen, [(path("before"), 0, None), (path("before > inner"), 1, peak), (path("inner"), 0, None)]);
    assert_eq!(marks(&snapshot), [(path("before > inner"), true), (path("before > inner"), false)]);
    drop((small, large));
}

#[test]
fn carried_scopes_are_not_entered_again() {
    let _alone = alone();
    let session = memtrace::builder().min_size(MIB).start().unwrap();
    scope("work", || {
        let here = memtrace::Context::current();
        std::thread::spawn(move || here.scope(|| drop(Raw::new(MIB)))).join().unwrap();
    });
    let snapshot = session.snapshot();
    let scopes: Vec<_> = cpu(&snapshot).scopes.iter().map(|s| (s.calls, s.allocations)).collect();
    assert_eq!(scopes, [(1, 1)]);
    assert_eq!(marks(&snapshot), [("work".to_owned(), true), ("work".to_owned(), false)]);
}

#[test]
fn a_scope_that_outlives_its_session_closes_none_of_the_next_one() {
    let _alone = alone();
    let first = memtrace::builder().min_size(MIB).start().unwrap();
    let old = scope_guard("old");
    drop(first);
    let session = memtrace::builder().min_size(MIB).start().unwrap();
    let there = std::thread::scope(|threads| {
        let (opened, is_open) = std::sync::mpsc::channel();
        let (close, closing) = std::sync::mpsc::channel::<()>();
        let thread = threads.spawn(move || {
            scope("new", || {
                opened.send(()).unwrap();
                closing.recv().unwrap();
            });
        });
        is_open.recv().unwrap();
        drop(old);
        let large = Raw::new(8 * MIB);
        close.send(()).unwrap();
        thread.join().unwrap();
        large
    });
    let snapshot = session.snapshot();
    let totals: Vec<_> = cpu(&snapshot).scopes.iter().map(|s| (s.calls, s.total_peak)).collect();
    assert_eq!(totals, [(1, Some(cpu(&snapshot).peak.bytes))], "`new` was open when the large block came");
    assert_eq!(marks(&snapshot), [("new".to_owned(), true), ("new".to_owned(), false)]);
    drop(there);
}

#[test]
fn growth_of_a_hash_map_is_attributed_to_the_caller() {
    let _alone = alone();
    let session = memtrace::builder().min_size(MIB).start().unwrap();
    let mut map: HashMap<u64, [u64; 64]> = HashMap::new();
    map.reserve(20_000);
    let snapshot = session.snapshot();
    let lines = DeviceView::of(&snapshot, cpu(&snapshot)).at_end().by(Key::Line).into_owned();
    let first = lines.rows.iter().find(|row| row.count.is_some()).unwrap();
    assert!(first.label.contains("recordings.rs"), "{lines:?}");
}

#[test]
fn odd_scope_names_stay_in_their_row_and_frame() {
    let _alone = alone();
    let session = memtrace::builder().min_size(MIB).start().unwrap();
    let blocks: Vec<Raw> =
        ["a > b", "", "x;y", "new\nline\u{1}", "größe"].map(|name| scope(name, || Raw::new(MIB))).into();
    let snapshot = session.snapshot();
    let mut out = Vec::new();
    Folded { scopes: true, ..Folded::default() }.write(&snapshot, &mut out).unwrap();
    let out = String::from_utf8(out).unwrap();
    for name in ["[a > b];", "[(unnamed)];", "[x,y];", "[new\\nline\\u{1}];", "[größe];"] {
        assert_eq!(out.matches(name).count(), 1, "{name} in {out}");
    }
    let rows = DeviceView::of(&snapshot, cpu(&snapshot)).by(Key::Scope).rows.clone();
    assert_eq!(rows.iter().filter(|row| row.bytes == MIB as u64).count(), 5, "{rows:?}");
    let report = Text::default().render(&snapshot).unwrap();
    assert!(report.contains("new\\nline\\u{1}") && !report.contains('\u{1}'));
    drop(blocks);
}

#[test]
fn a_device_that_was_not_selected_is_not_recorded() {
    let _alone = alone();
    let session = memtrace::builder().min_size(MIB).device(Device::Cuda(0)).start().unwrap();
    let block = Raw::new(MIB);
    let snapshot = session.snapshot();
    assert!(snapshot.device(Device::Cpu).is_none());
    assert!(snapshot.report().to_string().contains("nothing was recorded"));
    drop(block);
}

#[test]
fn a_name_that_ends_in_gz_compresses_the_file() {
    use std::io::Read;

    let _alone = alone();
    let session = record_large();
    let _kept = Raw::new(2 * MIB);
    let snapshot = session.snapshot();
    let dir = tempfile::tempdir().unwrap();
    for name in ["a.pickle", "a.json", "a.trace.json", "a.layout.json", "a.folded", "a.memtrace"] {
        let (plain, compressed) = (dir.path().join(name), dir.path().join(format!("{name}.gz")));
        snapshot.write(&plain).unwrap();
        snapshot.write(&compressed).unwrap();
        let mut unpacked = Vec::new();
        let file = std::fs::File::open(&compressed).unwrap();
        flate2::read::GzDecoder::new(file).read_to_end(&mut unpacked).unwrap();
        assert_eq!(unpacked, std::fs::read(&plain).unwrap(), "{name}");
    }
    assert!(snapshot.write(dir.path().join("a.xyz")).unwrap_err().to_string().contains(".trace.json"));
}

#[test]
fn the_reports_json_matches_its_schema_and_changed_json_does_not() {
    for golden in [include_str!("../golden/report.json"), include_str!("../golden/sampled.json")] {
        let report = serde_json::from_str(golden).unwrap();
        assert_eq!(violations(&report), [""; 0]);
    }
    let _alone = alone();
    let session = memtrace::builder().min_size(1).start().unwrap();
    let _block = scope("load", || Raw::new(MIB));
    let snapshot = session.snapshot();
    let report = checked_json(&snapshot);
    let changed = |at: &str, value: serde_json::Value| {
        let mut report = report.clone();
        *report.pointer_mut(at).unwrap() = value;
        violations(&report).len()
    };
    assert!(changed("/version", 1.into()) > 0 && changed("/devices/0/peak/bytes", (-1).into()) > 0);
    assert!(changed("/devices/0/scopes/0", serde_json::json!({ "path": "load" })) > 0);
    let options = ReportOptions::default();
    let shown = report_json(&Report::of(&snapshot, &options).unwrap(), Some((&snapshot, &options)));
    let address = Subject::Address(cpu(&snapshot).peak.blocks[0].address);
    let explained = Report::of_subject(&snapshot, &address, &options).unwrap();
    let changes = DiffOptions { threshold: 0, ..DiffOptions::default() };
    let difference = Report::of_diff(&snapshot, &snapshot, &changes).unwrap();
    for printed in [shown, report_json(&explained, None), report_json(&difference, None)] {
        assert_eq!(violations(&serde_json::from_str(&printed.unwrap()).unwrap()), [""; 0]);
    }
}
