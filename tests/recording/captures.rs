//! Captures of real recordings: written whole, streamed, and of programs that have ended.

#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroU64;
use std::path::Path;

use memtrace::analysis::Key;
use memtrace::snapshot::{Block, DeviceSnapshot, MappingKind, Record, RecordKind, ScopeStats, StackId};
use memtrace::{DeviceView, Session, Snapshot, SnapshotData, open, scope};
use proptest::prelude::*;

use crate::child::{command_of, copy_of_this_program, ended, if_child, test_name};
use crate::support::{MIB, Raw, alone, cpu};

/// A capture read from a file and written again, twice.
fn written_twice(path: &Path) -> [Vec<u8>; 2] {
    let dir = tempfile::tempdir().unwrap();
    let mut from = path.to_owned();
    [1, 2].map(|number| {
        let to = dir.path().join(format!("{number}.memtrace"));
        open(&from).unwrap().write(&to).unwrap();
        from = to;
        fs::read(&from).unwrap()
    })
}

/// The contents of a recording without numbers of stacks and without blocks below the threshold, which other threads of
/// the test harness change.
fn said(data: &SnapshotData) -> Vec<String> {
    let device = cpu(data);
    let stack = |id| data.stacks.addresses(id).map(|address| address.address).collect::<Vec<u64>>();
    let block = |b: &Block| {
        let path = data.context_path(b.context);
        format!("{:x} {} {} {} {path} {:?} {:x?}", b.address, b.size, b.raw_seq(), b.time_ns, b.thread, stack(b.stack))
    };
    let record = |r: &Record| {
        let stacks = (stack(r.stack), stack(r.alloc_stack));
        format!("{:?} {} {} {:?} {stacks:x?}", r.kind, r.time_ns, block(&r.block()), r.thread)
    };
    let scope = |s: &ScopeStats| format!("{} {s:?}", data.context_path(s.context));
    let mut stats = device.stats;
    stats.below_threshold = 0;
    let peak = &device.peak;
    let mut said = vec![
        format!("{} {} {} {}", peak.bytes, peak.seq.map_or(0, NonZeroU64::get), peak.time_ns, peak.not_recorded),
        format!("{} {} {stats:?}", device.overwritten, device.not_recorded),
        format!("{:?}", device.segments),
    ];
    said.extend(device.records.iter().map(record));
    said.extend(device.live.iter().chain(&peak.blocks).map(block));
    said.extend(device.scopes.iter().map(scope));
    said.extend(device.marks.iter().map(|mark| format!("{mark:?}")));
    said
}

fn assert_same(one: &SnapshotData, other: &SnapshotData) {
    let (one, other) = (said(one), said(other));
    let at = one.iter().zip(&other).position(|(a, b)| a != b);
    assert!(at.is_none(), "{:#?}", at.map(|at| (&one[at], &other[at])));
    assert_eq!(one.len(), other.len());
}

#[test]
fn a_snapshot_survives_a_capture() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.memtrace");
    let session = crate::support::record_large();
    let kept = scope("kept", || Raw::new(3 * MIB));
    drop(scope("gone", || Raw::new(5 * MIB)));
    let snapshot = session.snapshot();
    snapshot.write(&path).unwrap();
    let back = open(&path).unwrap();
    assert_eq!(*back, *snapshot);
    assert_eq!(back.report().to_string(), snapshot.report().to_string());
    let bytes = fs::read(&path).unwrap();
    assert_eq!(written_twice(&path), [bytes.clone(), bytes]);
    let packed = dir.path().join("a.memtrace.gz");
    snapshot.write(&packed).unwrap();
    assert_eq!(*open(&packed).unwrap(), *snapshot);
    fs::write(&packed, [0x1f, 0x8b, 8, 0, 1, 2, 3]).unwrap();
    assert!(open(&packed).unwrap_err().to_string().contains("decompressed"));
    drop(kept);
}

#[test]
fn a_gzip_file_of_something_else_is_refused_by_its_beginning() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.gz");
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, &vec![b'['; 1 << 20]).unwrap();
    let bytes = encoder.finish().unwrap();
    // Its end is missing, which the reader of the beginning does not notice.
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let errors = [open(&path).unwrap_err(), memtrace::read_operators(&path).unwrap_err()];
    errors.iter().for_each(|error| assert!(error.to_string().contains("content is something else"), "{error}"));
}

#[test]
fn a_capture_without_its_binary_is_read_and_missing_names_are_reported() {
    let _alone = alone();
    if_child(|| {
        let out = std::env::var("TEST_OUT").unwrap();
        let session = memtrace::builder().min_size(MIB).stream(out).start().unwrap();
        let _kept = Raw::new(4 * MIB);
        session.end().unwrap();
    });
    let dir = tempfile::tempdir().unwrap();
    let (program, capture) = (dir.path().join("program"), dir.path().join("a.memtrace"));
    copy_of_this_program(&program);
    ended(command_of(&program, &test_name()).env("TEST_OUT", &capture)).well();
    let named = |snapshot: &Snapshot| {
        let lines = DeviceView::of(snapshot, cpu(snapshot)).at_end().by(Key::Line).into_owned();
        lines.rows.iter().any(|row| row.label.contains("Raw::with") && row.bytes == 4 * MIB as u64)
    };
    let before = open(&capture).unwrap();
    assert!(named(&before) && before.health.unreadable_objects.is_empty(), "{}", before.report());
    fs::write(&program, "another program").unwrap();
    let replaced = open(&capture).unwrap();
    assert!(replaced.health.unreadable_objects[0].contains("has changed"), "{:?}", replaced.health);
    fs::remove_file(&program).unwrap();
    let after = open(&capture).unwrap();
    assert_eq!(cpu(&after), cpu(&before));
    let report = after.report().to_string();
    assert!(
        !named(&after) && report.contains("no names for the code of") && report.contains("file is gone"),
        "{report}"
    );
    // A capture that was read while the binaries existed keeps their names.
    let kept = dir.path().join("kept.memtrace");
    before.write(&kept).unwrap();
    assert!(named(&open(&kept).unwrap()));
}

#[test]
fn a_log_that_outruns_the_stream_has_a_gap_and_exact_sums() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.memtrace");
    let stream = path.display().to_string();
    let session = memtrace::builder().min_size(MIB).max_entries(16).stream(stream).start().unwrap();
    let mut kept = Vec::new();
    for round in 0..4 {
        scope(format!("round {round}"), || {
            for _ in 0..100 {
                drop(Raw::new(MIB));
            }
            kept.push(Raw::new((4 - round) * MIB));
        });
        session.flush();
    }
    let snapshot = session.snapshot();
    session.end().unwrap();
    let read = open(&path).unwrap();
    let (read, live) = (cpu(&read), cpu(&snapshot));
    let missing: u64 = read.gaps.iter().map(|gap| gap.records).sum();
    // Of the 804 records, those that the background thread did not write in time are missing. Blocks that are live
    // after a gap have their allocation records again.
    let there = read.records.len() as u64;
    let again = 4 * read.gaps.len() as u64;
    assert!((804..=804 + again).contains(&(missing + there)), "{missing} are missing, {there} are there");
    assert!(missing > 400, "{missing} are missing");
    assert!(read.gaps.len() >= 4 && read.overwritten == 0, "{:?}", read.gaps);
    let sizes: Vec<u64> = read.live.iter().map(|block| block.size).collect();
    assert_eq!(sizes, [4, 3, 2, 1].map(|size| size * MIB as u64));
    let places = |device: &DeviceSnapshot| {
        device.live.iter().map(|block| (block.seq, block.size, block.address)).collect::<Vec<_>>()
    };
    assert_eq!(
        (places(read), read.peak.blocks.len(), read.peak.bytes),
        (places(live), live.peak.blocks.len(), live.peak.bytes)
    );
    // The harness's small blocks come and go meanwhile.
    let mut stats = read.stats;
    stats.below_threshold = live.stats.below_threshold;
    assert_eq!((&read.scopes, &stats), (&live.scopes, &live.stats));
}

/// Whatever was skipped: live blocks and peak are the session's, and the log adds up to them.
fn check_sums_across_gaps(steps: &[Step]) {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.memtrace");
    let mut kept = Vec::new();
    let stream = path.display().to_string();
    let session = memtrace::builder().min_size(MIB).max_entries(4).stream(stream).start().unwrap();
    run(&session, steps, &mut kept, 0);
    let snapshot = session.snapshot();
    session.flush();
    let growing = fs::read(&path).unwrap();
    session.end().unwrap();
    let at_end = open(&path).unwrap();
    for read in [Snapshot::parse(&growing).unwrap(), at_end] {
        let (read, expected) = (cpu(&read), cpu(&snapshot));
        let of = |device: &DeviceSnapshot| (device.live.clone(), device.peak.clone(), device.scopes.clone());
        let (mut found, mut expected_state) = (of(read), of(expected));
        // Stacks are numbered per file.
        [&mut found, &mut expected_state].into_iter().for_each(|(live, peak, _)| {
            live.iter_mut().chain(&mut peak.blocks).for_each(|block| block.stack = StackId::NONE);
            peak.below_threshold = 0;
        });
        assert_eq!(found, expected_state);
        let mut live = BTreeMap::new();
        for record in &read.records {
            match record.kind {
                RecordKind::Alloc => assert!(live.insert(record.address, record.alloc_seq).is_none()),
                RecordKind::Free => assert_eq!(live.remove(&record.address), Some(record.alloc_seq)),
            }
            let bytes: u64 = live.values().map(|seq| size_of(read, *seq)).sum();
            assert!(bytes <= read.peak.bytes, "within a gap it is less, never more");
        }
        let mut left: Vec<_> = live.into_values().collect();
        left.sort_unstable();
        assert_eq!(left, read.live.iter().map(|block| block.seq).collect::<Vec<_>>());
        let [once, twice] = written_twice(&path);
        assert_eq!(once, twice);
    }
}

fn size_of(device: &DeviceSnapshot, seq: Option<NonZeroU64>) -> u64 {
    device.records.iter().find(|record| record.alloc_seq == seq).map_or(0, |record| record.size)
}

#[test]
fn an_existing_file_is_not_overwritten_by_a_stream() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.memtrace");
    fs::write(&path, "mine").unwrap();
    let error = memtrace::builder().stream(path.display().to_string()).start().unwrap_err();
    assert!(error.is_already_exists(), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    assert!(memtrace::start().is_ok());
}

#[test]
fn contradictory_options_are_refused() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let stream = || memtrace::builder().stream(dir.path().join("%p.memtrace").display().to_string());
    let errors = [
        stream().schedule(1, 1, 1, 0).start().unwrap_err(),
        stream().enabled(memtrace::Enabled::State).start().unwrap_err(),
        stream().skip_actions([memtrace::Action::Alloc]).start().unwrap_err(),
    ];
    errors.iter().for_each(|error| assert!(error.to_string().contains("leave out"), "{error}"));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// A program's next step.
#[derive(Clone, Debug)]
enum Step {
    Alloc(usize),
    Free(usize),
    /// A reallocation that fails.
    ResizeInVain(usize),
    Scope(Vec<Step>),
    Flush,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let leaf = prop_oneof![
        6 => (1..8usize).prop_map(Step::Alloc),
        5 => any::<prop::sample::Index>().prop_map(|index| Step::Free(index.index(64))),
        1 => (0..64usize).prop_map(Step::ResizeInVain),
        1 => Just(Step::Flush),
    ];
    let inside = leaf.clone();
    let step = prop_oneof![
        8 => leaf,
        1 => prop::collection::vec(inside, 0..12).prop_map(Step::Scope),
    ];
    prop::collection::vec(step, 0..40)
}

fn run(session: &Session, steps: &[Step], kept: &mut Vec<Raw>, depth: usize) {
    for step in steps {
        match step {
            Step::Alloc(mebibytes) => kept.push(Raw::new(mebibytes * MIB)),
            Step::Free(index) if !kept.is_empty() => drop(kept.swap_remove(index % kept.len())),
            Step::Free(_) => {}
            Step::ResizeInVain(index) => {
                let last = kept.len().saturating_sub(1);
                assert!(kept.get_mut(*index.min(&last)).is_none_or(|block| !block.try_resize(1 << 50)));
            }
            Step::Scope(steps) => scope(format!("scope {depth}"), || run(session, steps, kept, depth + 1)),
            Step::Flush => session.flush(),
        }
    }
}

/// The closed stream equals the session's snapshot, and so do its records alone, without the lists at its end.
fn check_stream_against_session(steps: &[Step]) {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.memtrace");
    let early = Raw::new(2 * MIB);
    let mut kept = Vec::new();
    let stream = path.display().to_string();
    let session = memtrace::builder().min_size(MIB).stream(stream).start().unwrap();
    run(&session, steps, &mut kept, 0);
    drop(early);
    let snapshot = session.snapshot();
    session.flush();
    let growing = fs::read(&path).unwrap();
    session.end().unwrap();
    assert_same(&open(&path).unwrap(), &snapshot);
    let cut = Snapshot::parse(&growing).unwrap();
    assert!(cut.health.cut_off);
    assert_same(&cut, &snapshot);
    let [once, twice] = written_twice(&path);
    assert_eq!(once, twice);
}

/// It records nothing while it reads the file, and the file is gone at the end.
#[test]
#[expect(unsafe_code, reason = "maps a file")]
fn what_a_mapped_file_held_is_read_while_nothing_is_recorded() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let (path, weights) = (dir.path().join("a.memtrace"), dir.path().join("weights.safetensors"));
    fs::write(&weights, vec![1u8; 64 * MIB]).unwrap();
    let session = memtrace::builder().min_size(MIB << 10).stream(path.display().to_string()).start().unwrap();
    session.flush();
    // SAFETY: nobody changes the file.
    let map = unsafe { memmap2::Mmap::map(&fs::File::open(&weights).unwrap()) }.unwrap();
    assert_eq!(map.iter().map(|byte| usize::from(*byte)).sum::<usize>(), 64 * MIB);
    session.flush();
    drop(map);
    session.end().unwrap();
    let data = open(&path).unwrap();
    let report = crate::schema::checked_json(&data);
    let balance = &report["devices"][0]["balance"];
    let sum: i64 = balance["rows"].as_array().unwrap().iter().map(|row| row["bytes"].as_i64().unwrap()).sum();
    assert!(sum > 0 && balance["used_bytes"] == sum, "{balance}");
    let named = |row: &&serde_json::Value| row["path"] == weights.display().to_string();
    assert!(report["host_memory"]["mapped"].as_array().unwrap().iter().any(|row| named(&row)), "{report}");
    let process = data.process.clone();
    let mappings = process.mappings.unwrap();
    let row = mappings.of(MappingKind::File).find(|file| file.path == weights.display().to_string()).unwrap();
    // A reading on the way there is the last one if less than a tenth came afterwards, of all that is resident.
    let least = (63 * MIB as u64).saturating_sub(mappings.resident() / 10);
    assert!(row.size == 64 * MIB as u64 && (least..=row.size).contains(&row.resident), "{row:?}");
    let memory = process.memory.unwrap();
    // The program's own files may become resident meanwhile.
    assert!(memory.files + 32 * (MIB as u64) < memory.files_high, "{memory:?}");
}

#[test]
fn the_stream_of_an_idle_program_equals_its_session() {
    check_stream_against_session(&[]);
}

proptest! {
    #![proptest_config(crate::random::programs(4))]

    #[test]
    fn sums_across_gaps_are_right(steps in steps()) {
        check_sums_across_gaps(&steps);
    }

    #[test]
    fn a_stream_equals_its_session(steps in steps()) {
        check_stream_against_session(&steps);
    }
}
