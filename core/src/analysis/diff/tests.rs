use super::*;
use crate::analysis::Key;
use crate::recording::DeviceView;
use crate::snapshot::testing::{LINE_7, LINE_9, Story, frame, registry, stacks};
use crate::snapshot::{SnapshotData, StackId, Thread, ThreadId};

fn diff(before: &SnapshotData, after: &SnapshotData, key: Key) -> Diff {
    let [before, after] = [before, after].map(|data| DeviceView::of(data, &data.devices[0]));
    Diff::of(&before.at_peak(), &after.at_peak(), key)
}

/// `seven` bytes on line 7, `nine` on line 9.
fn recording(seven: u64, nine: u64) -> SnapshotData {
    let mut story = Story::cpu();
    story.before(1024);
    story.at(1_000).alloc("a", seven).on(LINE_7);
    story.at(2_000).alloc("b", nine).on(LINE_9);
    story.build()
}

/// The same program after an edit that moved every line.
fn moved(mut data: SnapshotData, by: u32) -> SnapshotData {
    for frame in &mut data.stacks.frames {
        frame.line = frame.line.map(|line| line.saturating_add(by));
    }
    data
}

#[test]
fn rows_add_up_to_the_change_of_the_total() {
    let (before, after) = (recording(2000, 500), recording(5000, 400));
    for key in [
        Key::Line,
        Key::Function,
        Key::Operator,
        Key::Category,
        Key::Scope,
        Key::Name,
        Key::Thread,
        Key::Stream,
        Key::Crate,
    ] {
        let diff = diff(&before, &after, key);
        assert_eq!(diff.rows.iter().map(DiffRow::change).sum::<i64>(), diff.change(), "{key:?}");
        assert_eq!((diff.before, diff.after), (3524, 6424), "{key:?}");
    }
}

#[test]
fn a_recording_does_not_differ_from_itself() {
    let data = recording(2000, 500);
    assert!(diff(&data, &data, Key::Line).rows.iter().all(|row| row.change() == 0));
}

#[test]
fn lines_that_an_edit_moved_are_the_same_lines() {
    let (before, after) = (recording(2000, 500), moved(recording(5000, 500), 10));
    let diff = diff(&before, &after, Key::Line);
    let changed: Vec<_> = diff.rows.iter().filter(|row| row.change() != 0).collect();
    assert_eq!(changed.len(), 1, "{:#?}", diff.rows);
    assert_eq!((changed[0].before, changed[0].after), (2000, 5000));
    assert!(changed[0].label.contains(":17 ") && changed[0].label.ends_with(", before :7"), "{}", changed[0].label);
}

/// A function that calls an operator of candle on each of these lines, with one block each of this many bytes.
fn of_lines(lines: &[(u32, &str, u64)]) -> SnapshotData {
    let tensor = registry("candle-core-0.11.1/src/tensor.rs");
    let operators = lines.iter().map(|(_, name, _)| frame(&format!("candle_core::tensor::Tensor::{name}"), &tensor, 7));
    let callers = lines.iter().map(|(line, ..)| frame("net::f", "/home/u/net/src/main.rs", *line));
    let count = lines.len() as u32;
    let mut story = Story::cpu();
    story.stacks(stacks(operators.chain(callers).collect(), (0..count).map(|at| [at, count + at])));
    for (at, (.., bytes)) in (1..).zip(lines) {
        story.alloc(at, *bytes).on(StackId(at));
    }
    story.build()
}

#[test]
fn a_line_that_an_edit_adds_to_a_function_is_new_and_those_below_it_are_the_same() {
    let before = of_lines(&[(3, "relu", 100), (5, "matmul", 200)]);
    let after = of_lines(&[(3, "exp", 7), (4, "relu", 100), (6, "matmul", 200)]);
    let mut pairs: Vec<_> = diff(&before, &after, Key::Line).rows.iter().map(|row| (row.before, row.after)).collect();
    pairs.sort_unstable();
    assert_eq!(pairs, [(0, 7), (100, 100), (200, 200)]);
}

/// A function `f` in each of these files, with one block each: 1 byte in the first, 2 bytes in the next, …
fn in_files(files: &[&str]) -> SnapshotData {
    let frames = files.iter().map(|file| frame("f", file, 7)).collect();
    let mut story = Story::cpu();
    story.stacks(stacks(frames, (0..files.len() as u32).map(|at| [at])));
    for at in 1..=files.len() as u32 {
        story.alloc(at, at.into()).on(StackId(at));
    }
    story.build()
}

#[test]
fn files_of_two_checkouts_are_matched_by_the_longest_end_of_their_paths() {
    let pairs = |before: &[&str], after: &[&str]| {
        let rows = diff(&in_files(before), &in_files(after), Key::Line).rows;
        let mut pairs: Vec<_> = rows.iter().map(|row| (row.before, row.after)).collect();
        pairs.sort_unstable();
        pairs
    };
    let here = ["/home/a/net/src/nn.rs", "/home/a/net/src/main.rs", "/home/a/net/src/blocks/nn.rs"];
    let there = ["/build/3/net/src/blocks/nn.rs", "/build/3/net/src/nn.rs", "/build/3/net/src/main.rs"];
    assert_eq!(pairs(&here, &there), [(1, 2), (2, 3), (3, 1)]);
    assert_eq!(pairs(&["/home/a/net/nn.py"], &[r"C:\Users\b\net\nn.py"]), [(1, 1)]);
    assert_eq!(pairs(&["src/nn.rs"], &["/home/a/net/src/nn.rs"]), [(1, 1)]);
    assert_eq!(pairs(&["/a/x/nn.py"], &["/b/y/nn.py", "/b/z/nn.py"]), [(0, 1), (0, 2), (1, 0)], "either could be it");
    assert_eq!(pairs(&["/a/x/nn.py"], &["/b/x/mm.py"]), [(0, 1), (1, 0)]);
}

#[test]
fn threads_are_matched_by_name_and_those_without_a_name_are_one_row() {
    let recording = |os_id: u32, names: [&str; 2], bytes: u64| {
        let mut data = recording(2000, bytes);
        let device = &mut data.devices[0];
        device.peak.blocks[1].thread = ThreadId(2);
        data.process.threads = (1..)
            .zip(names)
            .map(|(number, name)| Thread { number: ThreadId(number), os_id: os_id + number, name: name.to_owned() })
            .collect();
        data
    };
    let rows = |names| {
        let found = diff(&recording(10, names, 500), &recording(70, names, 900), Key::Thread);
        let changed: Vec<_> = found.rows.into_iter().filter(|row| row.change() != 0).collect();
        changed.into_iter().map(|row| (row.label, row.before, row.after)).collect::<Vec<_>>()
    };
    assert_eq!(rows(["main", "loader"]), [("loader".to_owned(), 500, 900)]);
    assert_eq!(rows(["main", ""]), [("(unnamed threads)".to_owned(), 500, 900)]);
}
