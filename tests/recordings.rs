//! What one recording must not take over from another, and odd things that programs do in one.

mod support;

use std::collections::HashMap;

use memtrace::export::{folded, text};
use memtrace::{Device, analysis, scope, scope_guard};
use support::{MIB, Raw, alone, cpu};

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

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
fn what_an_earlier_recording_missed_is_not_told_again() {
    let _alone = alone();
    let session = memtrace::builder().min_size(MIB).stack_depth(2).start().unwrap();
    drop(deep(40));
    assert!(session.snapshot().health.shortened_stacks > 0);
    drop(session);
    let session = memtrace::builder().min_size(MIB).start().unwrap();
    assert_eq!(session.snapshot().health.shortened_stacks, 0);
}

#[test]
fn scopes_closed_out_of_order_are_left_under_the_names_they_were_entered_by() {
    let _alone = alone();
    let session = memtrace::builder().min_size(MIB).start().unwrap();
    let (outer, inner) = (scope_guard("outer"), scope_guard("inner"));
    drop(outer);
    drop(inner);
    let snapshot = session.snapshot();
    let marks = cpu(&snapshot).marks.iter().map(|mark| (snapshot.context_path(mark.context), mark.enter));
    let expected = [("outer", true), ("outer > inner", true), ("outer", false), ("outer > inner", false)];
    assert_eq!(marks.collect::<Vec<_>>(), expected.map(|(path, enter)| (path.to_owned(), enter)));
}

#[test]
fn the_growth_of_a_hash_map_is_the_callers() {
    let _alone = alone();
    let session = memtrace::builder().min_size(MIB).start().unwrap();
    let mut map: HashMap<u64, [u64; 64]> = HashMap::new();
    map.reserve(20_000);
    let snapshot = session.snapshot();
    let lines = analysis::live_by_line(&snapshot, cpu(&snapshot));
    assert!(lines.rows[0].label.contains("recordings.rs"), "{lines:?}");
}

#[test]
fn odd_scope_names_stay_in_their_row_and_frame() {
    let _alone = alone();
    let session = memtrace::builder().min_size(MIB).start().unwrap();
    let blocks: Vec<Raw> =
        ["a > b", "", "x;y", "new\nline\u{1}", "größe"].map(|name| scope(name, || Raw::new(MIB))).into();
    let snapshot = session.snapshot();
    let mut out = Vec::new();
    folded::write(&snapshot, &folded::Options::default(), &mut out).unwrap();
    let out = String::from_utf8(out).unwrap();
    for name in ["[a > b];", "[(unnamed)];", "[x,y];", "[new line ];", "[größe];"] {
        assert_eq!(out.matches(name).count(), 1, "{name} in {out}");
    }
    let rows = analysis::by_scope(&snapshot, cpu(&snapshot)).rows;
    assert_eq!(rows.iter().filter(|row| row.bytes == MIB as u64).count(), 5, "{rows:?}");
    let report = text::to_string(&snapshot, &text::Options::default());
    assert!(report.contains("new line") && !report.contains('\u{1}'));
    drop(blocks);
}

#[test]
fn nothing_is_recorded_of_a_device_that_was_not_asked_for() {
    let _alone = alone();
    let session = memtrace::builder().min_size(MIB).device(Device::Cuda(0)).start().unwrap();
    let block = Raw::new(MIB);
    let snapshot = session.snapshot();
    assert!(snapshot.device(Device::Cpu).is_none());
    assert!(snapshot.report().to_string().contains("nothing was recorded"));
    drop(block);
}
