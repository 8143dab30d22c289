//! Tests of keys, pictures and looks without a terminal.

use std::fs;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::time::Duration;

use memtrace_core::analysis::{LookOrder, Looks};
use memtrace_core::capture::{Commit, Counters, Encoder};
use memtrace_core::report::WatchedFile;
use memtrace_core::snapshot::{Block, Peak, Process, Record, RecordKind, SnapshotData, Thread, ThreadId};
use memtrace_core::symbol::SymbolSources;

use super::terminal::presses_of;
use super::view::{Answer, Pace, Press, View};
use super::*;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden").join(name)
}

fn watch(paths: &[PathBuf]) -> Watch {
    Watch::of(Targets::of(paths).unwrap(), None, SymbolSources::default()).unwrap()
}

fn seen(names: &[&str]) -> Vec<WatchedFile> {
    let paths: Vec<PathBuf> = names.iter().map(|name| golden(name)).collect();
    watch(&paths).look(&[Key::Line]).unwrap().to_vec()
}

fn view(names: &[&str]) -> View {
    let mut view = View::by(Key::Line, Duration::from_secs(1));
    view.see(seen(names));
    view
}

fn press(view: &mut View, keys: &str) -> Vec<Answer> {
    presses_of(keys.as_bytes()).into_iter().map(|key| view.press(key)).collect()
}

fn status(view: &View) -> String {
    view.screen(200, 30).pop().unwrap()
}

#[test]
fn bytes_of_a_terminal_are_keys() {
    use Press::{Backspace, Char, Enter, Escape, Interrupt, Next, Previous};
    let keys = presses_of("q\x1b[A\x1bOB\x1b[C\x1b[D\x1b[1;5A\x1b[15~é\r\x7f\x03\x1b".as_bytes());
    let expected =
        [Char('q'), Previous, Next, Next, Previous, Previous, Char('é'), Enter, Backspace, Interrupt, Escape];
    assert_eq!(keys, expected);
    assert_eq!(presses_of(b"\x1b["), [], "cut off");
    assert_eq!(presses_of(b"\x1bq"), [Escape, Char('q')]);
    assert_eq!(presses_of(&[0xff, 0]), [Char('\u{fffd}')]);
}

#[test]
fn a_filter_is_typed_kept_and_cleared() {
    let mut view = view(&["everything.memtrace"]);
    let has = |view: &View, text: &str| view.screen(100, 30).iter().any(|line| line.contains(text));
    assert!(has(&view, "model.rs:7") && has(&view, "join/mod.rs"));
    assert_eq!(press(&mut view, "/qMODE"), [Answer::Draw; 6], "q is a letter here");
    assert_eq!(status(&view), "filter: qMODE_  (Enter keeps it, Esc clears it)");
    press(&mut view, "\x7f\x7f\x7f\x7f\x7fMODE\r");
    assert!(has(&view, "model.rs:7") && !has(&view, "join/mod.rs") && has(&view, "rows not matching the filter"));
    assert_eq!(status(&view), "by line, sorted by bytes; filter: MODE; every 1 s; q ends, ? helps");
    press(&mut view, "\x1b");
    assert!(has(&view, "join/mod.rs") && !status(&view).contains("filter"));
}

#[test]
fn a_frozen_picture_stays_until_it_is_asked_to_go_on() {
    let mut view = view(&["everything.memtrace"]);
    let picture = |view: &View| view.picture(100, 30);
    let before = picture(&view);
    press(&mut view, " ");
    view.see(seen(&["sampled.memtrace"]));
    assert_eq!(picture(&view), before);
    assert!(status(&view).contains("; FROZEN, and ended; "), "{}", status(&view));
    press(&mut view, " ");
    assert!(picture(&view) != before && !status(&view).contains("FROZEN"));
}

#[test]
fn other_keys_choose_what_is_shown() {
    let mut view = view(&["everything.memtrace", "sampled.memtrace"]);
    let chosen = |view: &View| view.screen(100, 30).iter().find(|line| line.contains('>')).unwrap().clone();
    assert!(chosen(&view).contains("everything"));
    press(&mut view, "\x1b[B");
    assert!(chosen(&view).contains("sampled"));
    press(&mut view, "\x1b[C\x1b[B");
    assert!(chosen(&view).contains("sampled"), "there are two");
    press(&mut view, "\x1b[A\x1b[D");
    assert!(chosen(&view).contains("everything"));
    for order in [LookOrder::Growth, LookOrder::Count, LookOrder::Bytes] {
        press(&mut view, "s");
        assert!(status(&view).contains(&format!("sorted by {order}")));
    }
    assert_eq!(press(&mut view, "?"), [Answer::Draw]);
    assert!(view.screen(100, 30)[0].starts_with("q, Ctrl-C"));
    assert_eq!(press(&mut view, "q"), [Answer::Draw], "any key closes the help");
    assert_eq!(press(&mut view, "q\x03"), [Answer::End; 2]);
}

#[test]
fn a_key_that_was_not_shown_yet_asks_for_a_look_and_stays_in_the_looks() {
    let mut view = view(&["everything.memtrace"]);
    assert_eq!(press(&mut view, "b"), [Answer::Look]);
    assert_eq!(view.keys(), [Key::Line, Key::ModelLine]);
    assert!(view.picture(100, 30).iter().any(|line| line == "(not known by this key at this moment)"));
    let all = "b".repeat(Key::ALL.len() - 1);
    assert_eq!(press(&mut view, &all).last(), Some(&Answer::Draw), "line again");
    assert_eq!((view.keys().len(), status(&view).contains("by line, ")), (Key::ALL.len(), true));
}

#[test]
fn a_screen_has_the_size_of_the_window_and_fills_it_with_rows() {
    let view = view(&["everything.memtrace", "sampled.memtrace", "streamed.memtrace"]);
    for (width, height) in [(1, 1), (1, 30), (17, 3), (40, 10), (80, 24), (300, 100)] {
        let screen = view.screen(width, height);
        assert_eq!(screen.len(), height);
        assert!(screen.iter().all(|line| line.chars().count() <= width), "{width}×{height}: {screen:#?}");
    }
    let folded = |height: usize| view.screen(100, height).iter().any(|line| line.contains("more rows"));
    assert!(folded(16) && !folded(17), "16 lines and the status");
    let full = view.screen(100, 16);
    assert!(full[14].contains("more rows"), "{full:#?}");
}

#[test]
fn looking_takes_a_tenth_of_the_time_at_most_and_the_screen_says_so() {
    let mut view = view(&["everything.memtrace"]);
    let pace = |cost| Pace { interval: Duration::from_secs(1), cost: Duration::from_millis(cost) };
    assert_eq!([0, 100, 101, 5000].map(|cost| pace(cost).wait().as_millis()), [1000, 1000, 1010, 50_000]);
    view.pace = pace(412);
    assert!(status(&view).contains("; every 4.1 s, not 1 s: a look takes 0.41 s; "), "{}", status(&view));
}

/// A capture of two threads with a commit after each of 20 allocs, every third of which is followed by a free.
fn streamed() -> Vec<u8> {
    let mut out = Encoder::begin(Vec::new()).unwrap();
    let thread = |number, name: &str| Thread { number: ThreadId(number), os_id: 7, name: name.to_owned() };
    out.process(&Process { program: "net".into(), pid: 7, ..Process::default() }).unwrap();
    out.threads(&[thread(1, "even"), thread(2, "odd")]).unwrap();
    let (mut blocks, mut counters) = (Vec::<Block>::new(), Counters::default());
    for number in 1..=20 {
        let seq = NonZeroU64::new(number);
        let (time_ns, thread) = (100 * number, ThreadId(1 + number as u32 % 2));
        let block = Block { address: number << 20, size: 1000 * number, seq, time_ns, thread, ..Block::default() };
        let mut records = vec![Record::alloc_of(&block)];
        blocks.push(block);
        let live = |blocks: &[Block]| blocks.iter().map(|block| block.size).sum::<u64>();
        if live(&blocks) > counters.peak.bytes {
            counters.peak = Peak { bytes: live(&blocks), time_ns, seq, ..Peak::default() };
        }
        if number % 3 == 0 {
            let freed = blocks.remove(blocks.len() - 2);
            records.push(Record { kind: RecordKind::Free, time_ns, ..Record::alloc_of(&freed) });
        }
        counters.stats.allocated_bytes.current = live(&blocks);
        out.records(Device::Cpu, &records).unwrap();
        out.counters(Device::Cpu, &counters).unwrap();
        out.commit(&Commit { duration_ns: time_ns, ..Commit::default() }).unwrap();
    }
    std::mem::take(out.out())
}

/// A file that grows by a few bytes at a time shows at each length the state of its last commit. It is read only if it
/// has grown.
#[test]
fn a_growing_file_is_right_at_any_length() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.memtrace");
    let bytes = streamed();
    fs::write(&path, "").unwrap();
    let mut watch = watch(std::slice::from_ref(&path));
    let mut totals = Vec::new();
    for length in (1..bytes.len()).step_by(3).chain([bytes.len()]) {
        fs::write(&path, &bytes[..length]).unwrap();
        let file = &watch.look(&[Key::Thread]).unwrap()[0];
        let Ok(data) = memtrace_core::open(&path) else {
            assert!(file.looks.is_none() && file.problem.is_some(), "{length}");
            continue;
        };
        assert_eq!(file.problem, None, "{length}");
        let looks = file.looks.as_ref().unwrap();
        check(looks, &data, &mut totals);
    }
    totals.dedup();
    // 1, 3, 6 less 2, …: the sums in thousands, computed by hand.
    assert_eq!(totals[..7], [1000, 3000, 4000, 8000, 13_000, 14_000, 21_000]);
    assert_eq!(totals.len(), 20);
    let last = |watch: &mut Watch| watch.look(&[Key::Thread]).unwrap()[0].clone();
    let before = last(&mut watch);
    fs::write(&path, vec![0; bytes.len()]).unwrap();
    let same = last(&mut watch);
    assert_eq!(same.problem, None, "a file of the same length is not read again");
    assert_eq!(same.looks.unwrap().last(), before.looks.unwrap().last());
}

fn check(looks: &Looks, data: &SnapshotData, totals: &mut Vec<u64>) {
    let (device, is) = (&data.devices[0], &looks.last().devices[0]);
    let live: u64 = device.live.iter().map(|block| block.size).sum();
    totals.push(live);
    assert_eq!((is.live, is.peak.bytes), (live, device.peak.bytes));
    for (name, number) in [("even", 1), ("odd", 2)] {
        let of = device.live.iter().filter(|block| block.thread == ThreadId(number));
        let rows = looks.rows(Device::Cpu, Key::Thread, LookOrder::Bytes);
        let row = rows.iter().find(|row| row.label == name);
        assert_eq!(row.map_or(0, |row| row.bytes), of.map(|block| block.size).sum::<u64>());
        // At the first look only the block of thread 2 was live.
        let first = if name == "odd" { 1000 } else { 0 };
        assert!(row.and_then(|row| row.since_first).is_none_or(|grown| grown == row.unwrap().bytes as i64 - first));
    }
}

#[test]
fn an_interval_is_between_a_tenth_of_a_second_and_a_day() {
    assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
    for wrong in ["0", "0.05", "-1", "NaN", "inf", "1e9", "1s", ""] {
        assert!(interval(wrong).is_err(), "{wrong}");
    }
}
