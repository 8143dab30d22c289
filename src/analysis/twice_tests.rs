use super::*;
use crate::snapshot::testing::two_lines_and_a_temporary;
use crate::snapshot::{CodeAddress, MemoryStats, Record};

/// A recording of `steps`: `+3` allocates block 3, `-3` frees it. Each block has 100 bytes and its number as its line,
/// all in one function; but those from 50 on have 7 bytes and no user line.
fn recording(steps: &[i64]) -> SnapshotData {
    let mut data = two_lines_and_a_temporary();
    let first = add_lines(&mut data);
    let device = &mut data.devices[0];
    let template = device.records[0];
    let record = |step: &i64| {
        let seq = step.unsigned_abs();
        let (size, stack) = if seq < 50 { (100, StackId(first + seq as u32)) } else { (7, StackId(2)) };
        let kind = if *step > 0 { RecordKind::Alloc } else { RecordKind::Free };
        Record { address: seq << 12, alloc_seq: seq, size, stack, alloc_stack: stack, kind, ..template }
    };
    device.records = steps.iter().map(record).collect();
    let (mut live, mut peak) = (Vec::new(), (0, Vec::new()));
    for record in &device.records {
        match record.kind {
            RecordKind::Alloc => live.push(record.block()),
            RecordKind::Free => live.retain(|block| block.seq != record.alloc_seq),
        }
        let bytes: u64 = live.iter().map(|block| block.size).sum();
        peak = if bytes > peak.0 { (bytes, live.clone()) } else { peak };
    }
    device.peak.bytes = peak.0;
    device.peak.blocks = peak.1;
    device.stats = MemoryStats::default();
    device.stats.allocated_bytes.current = live.iter().map(|block| block.size).sum();
    device.live = live;
    data
}

/// Adds a stack for each line of a function; gives the one of line 0.
fn add_lines(data: &mut SnapshotData) -> u32 {
    let stacks = &mut data.stacks;
    let (first, function) = (stacks.starts.len() as u32, stacks.frames[1].clone());
    for line in 0..50 {
        let frame = stacks.frames.len() as u32;
        stacks.frames.push(Frame { line, ..function.clone() });
        stacks.addresses.push(CodeAddress { frames: frame..frame + 1, ..stacks.addresses[1].clone() });
        stacks.starts.push(stacks.calls.len() as u32);
        stacks.calls.push(stacks.addresses.len() as u32 - 1);
    }
    first
}

fn found(data: &SnapshotData) -> Vec<LiveTwice> {
    live_twice(data, &data.devices[0])
}

#[test]
fn a_shadowed_block_is_live_until_its_successor_is_gone() {
    let data = recording(&[1, 2, 50, -50, 3, -3, -2, -1]);
    let lines = [1, 2, 3].map(|line| format!("src/model.rs:{line} (Net::forward)")).to_vec();
    let row = LiveTwice { lines, size: 100, count: 3, older: 200, peak_without: Some(200) };
    assert_eq!(found(&data), [row]);
}

#[test]
fn the_peak_without_is_that_of_the_program_that_drops_them() {
    // Temporaries, an unrelated block that is as high, and one that stays.
    let kept = recording(&[60, 1, 51, -51, 2, 52, 53, -52, 3, 54, -54, -53, -3, -2, -1, 55]);
    let dropped = recording(&[60, 1, 51, -51, 2, -1, 52, 53, -52, 3, -2, 54, -54, -53, -3, 55]);
    assert_eq!(found(&kept)[0].peak_without, Some(dropped.devices[0].peak.bytes));
    assert!(dropped.devices[0].peak.bytes < kept.devices[0].peak.bytes);
}

#[test]
fn no_alarm_where_nothing_is_gained_or_known() {
    let cases: [(&str, &[i64]); 6] = [
        ("two are needed to make the second", &[1, 2, -2, -1]),
        ("the parts of a structure", &[1, 2, 3, -1, -2, -3]),
        ("replaced one by one", &[1, 2, -1, 3, -2, -3]),
        ("freed at different times", &[1, 2, 3, -3, 50, -2, 51, -1]),
        ("still live", &[1, 2, 3]),
        ("as high elsewhere", &[1, 2, 3, -3, -2, -1, 11, 12, 13]),
    ];
    for (what, steps) in cases {
        assert_eq!(found(&recording(steps)), [], "{what}");
    }
}

#[test]
fn a_log_that_lost_records_gives_no_other_peak() {
    let mut data = recording(&[1, 2, 3, -3, -2, -1]);
    assert_eq!(found(&data)[0].peak_without, Some(200));
    data.devices[0].overwritten = 1;
    assert_eq!(found(&data)[0].peak_without, None);
    data.devices[0].overwritten = 0;
    data.devices[0].peak.bytes += 1;
    assert_eq!(found(&data)[0].peak_without, None);
}

#[test]
fn blocks_of_one_line_or_of_different_functions_are_none() {
    let row = |change: &dyn Fn(&mut Frame)| {
        let mut data = recording(&[1, 2, 3, -3, -2, -1]);
        data.stacks.frames.iter_mut().for_each(change);
        found(&data).len()
    };
    assert_eq!(row(&|_| {}), 1);
    assert_eq!(row(&|frame| frame.line = 1), 0);
    assert_eq!(row(&|frame| frame.function = format!("function {}", frame.line)), 0);
    assert_eq!(row(&|frame| frame.file = "/c/registry/src/index/model-1.0.0/src/lib.rs".into()), 0, "a library's");
}
