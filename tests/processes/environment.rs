//! Recordings that environment variables request.

use std::fs;
use std::path::Path;

use memtrace::open;

use crate::child::{Ended, command, ended, if_child};
use crate::training::{ONE_THREAD, Training, check, say};

/// The child's body: trains two steps and records if the environment says so.
fn trains_under_the_environment() {
    match memtrace::init() {
        Ok(recording) => say(&format!("recording: {recording}")),
        Err(error) => return say(&error.to_string()),
    }
    let mut training = Training::load().unwrap();
    training.two_steps();
    // Blocks that were live at the end are in the last snapshot.
    std::mem::forget(training);
}

/// Runs a child with these variables in this folder.
fn asked(folder: &Path, variables: &[(&str, &str)]) -> Ended {
    ended(command(variables).envs([ONE_THREAD]).current_dir(folder)).well()
}

#[test]
fn the_environment_starts_a_recording_and_names_its_file() {
    if_child(trains_under_the_environment);
    let dir = tempfile::tempdir().unwrap();
    let child = asked(dir.path(), &[]);
    assert!(child.said("recording: false"), "{child}");
    let out = dir.path().join("%e-%r.txt");
    let variables =
        [("MEMTRACE", "1"), ("MEMTRACE_OUT", out.to_str().unwrap()), ("RANK", "3"), ("MEMTRACE_MIN_SIZE", "16 KiB")];
    let child = asked(dir.path(), &variables);
    assert!(child.said("recording: true"), "{child}");
    let written: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(written.len(), 1, "{written:?}");
    assert!(written[0].to_str().unwrap().ends_with("-3.txt"), "{written:?}");
    let report = fs::read_to_string(&written[0]).unwrap();
    assert!(report.contains("training.rs") && report.contains("step 2"), "{report}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_program_is_recorded_from_before_main_and_its_sessions_share_that_recording() {
    const BLOCK: usize = 5 << 20;
    if_child(|| {
        assert!(memtrace::is_recording());
        let before_session = std::hint::black_box(vec![1u8; BLOCK]);
        drop(before_session);
        let session = memtrace::builder().max_entries(10).start().unwrap();
        assert!(session.snapshot().report().to_string().contains("5.000 MiB"), "it has what came before");
        drop(session);
        assert!(memtrace::is_recording() && memtrace::init().unwrap(), "until the process ends");
        std::mem::forget(std::hint::black_box(vec![1u8; BLOCK / 5]));
    });
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("a.memtrace");
    asked(dir.path(), &[("MEMTRACE_AUTOSTART", "1"), ("MEMTRACE", "1"), ("MEMTRACE_OUT", out.to_str().unwrap())]);
    let snapshot = open(&out).unwrap();
    let device = &snapshot.devices[0];
    assert!(device.peak.blocks.iter().any(|block| block.size == BLOCK as u64));
    assert!(device.live.iter().any(|block| block.size == BLOCK as u64 / 5), "allocated after the session ended");
}

#[cfg(target_os = "linux")]
#[test]
fn a_streamed_capture_has_what_the_launcher_said() {
    if_child(|| std::mem::forget(std::hint::black_box(vec![1u8; 1 << 20])));
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("%h-%p-%r.memtrace");
    let launcher = [("RANK", "3"), ("WORLD_SIZE", "4"), ("TORCHELASTIC_RUN_ID", "job 7")];
    let recording = [("MEMTRACE_AUTOSTART", "1"), ("MEMTRACE", "1"), ("MEMTRACE_OUT", out.to_str().unwrap())];
    asked(dir.path(), &[&launcher[..], &recording].concat());
    let written: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(written.len() == 1 && written[0].to_str().unwrap().ends_with("-3.memtrace"), "{written:?}");
    let process = open(&written[0]).unwrap().process.clone();
    assert_eq!((process.rank, process.launcher.world_size), (Some(3), Some(4)));
    assert_eq!(process.launcher.job.as_deref(), Some("job 7"));
}

#[test]
fn a_requested_capture_is_the_only_file() {
    if_child(trains_under_the_environment);
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("a.memtrace");
    fs::write(&out, "an earlier run").unwrap();
    let with = |on| {
        let path = out.to_str().unwrap();
        asked(dir.path(), &[("MEMTRACE", on), ("MEMTRACE_OUT", path), ("MEMTRACE_MIN_SIZE", "16 KiB")])
    };
    let child = with("1");
    assert!(child.said("recording: true"), "{child}");
    assert_eq!(fs::read_to_string(&out).unwrap(), "an earlier run");
    let snapshot = open(dir.path().join("a-2.memtrace")).unwrap();
    assert!(!snapshot.health.cut_off);
    check(&snapshot, &["step 1", "step 2"]);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "{child}");
    let child = with("off");
    assert!(child.said("recording: false"), "{child}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "{child}");
}

#[test]
fn an_invalid_variable_is_named_in_the_message() {
    if_child(trains_under_the_environment);
    let dir = tempfile::tempdir().unwrap();
    let cases = [
        ("MEMTRACE", "yes", "off, state or all"),
        ("MEMTRACE_STACKS", "python", "rust or all"),
        ("MEMTRACE_CONTEXT", "some", "none, state, alloc or all"),
        ("MEMTRACE_MAX_ENTRIES", "1e6", "a number of records"),
        ("MEMTRACE_MIN_SIZE", "16K", "64 KiB"),
        ("MEMTRACE_SAMPLE_INTERVAL", "lots", "64 KiB"),
        ("MEMTRACE_SAMPLE_SEED", "any", "a number"),
        ("MEMTRACE_DUMP_ON_OOM", "maybe", "1 or 0"),
        ("MEMTRACE_CHECK_STACKS", "perhaps", "1, 0 or abort"),
        ("MEMTRACE_SIGNAL", "KILL", "USR1, USR2"),
        ("MEMTRACE_SIGNAL", "9", "USR1, USR2"),
        ("MEMTRACE_SIGNAL", "SEGV", "USR1, USR2"),
        // The C library's own variable, and an empty one.
        ("MEMTRACE_SIGNAL", "32", "USR1, USR2"),
        ("MEMTRACE_SIGNAL", "33", "USR1, USR2"),
        ("MEMTRACE_SIGNAL", "65", "USR1, USR2"),
        ("MEMTRACE_OUT", "trace.bin", ".pickle"),
    ];
    for (name, value, accepted) in cases {
        let child = asked(dir.path(), &[("MEMTRACE", "1"), (name, value)]);
        assert!(child.said(accepted) && child.said(value), "{name}: {child}");
        let is_named = child.said(name) || ["MEMTRACE_SIGNAL", "MEMTRACE_OUT"].contains(&name);
        assert!(is_named, "{name}: {child}");
        assert!(!child.said("recording"), "{name}: {child}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_misspelt_variable_is_reported_once_with_the_valid_names() {
    if_child(trains_under_the_environment);
    let dir = tempfile::tempdir().unwrap();
    let child = asked(dir.path(), &[("MEMTRACE", "1"), ("MEMTRACE_OUTT", "a.txt"), ("MEMTRACE_CUSIM_MEMORY", "1GiB")]);
    assert_eq!(
        child.errors.matches("unknown variables MEMTRACE_OUTT; memtrace reads MEMTRACE, MEMTRACE_OUT,").count(),
        1,
        "{child}"
    );
    assert!(!child.said("CUSIM"), "{child}");
}

#[test]
fn a_path_alone_starts_a_recording() {
    if_child(trains_under_the_environment);
    let dir = tempfile::tempdir().unwrap();
    let child = asked(dir.path(), &[("MEMTRACE_OUT", dir.path().join("a.txt").to_str().unwrap())]);
    assert!(child.said("recording: true") && dir.path().join("a.txt").exists(), "{child}");
    let child = asked(dir.path(), &[("MEMTRACE", "0"), ("MEMTRACE_OUT", dir.path().join("b.txt").to_str().unwrap())]);
    assert!(child.said("recording: false") && !dir.path().join("b.txt").exists(), "{child}");
}

#[test]
fn an_invalid_rules_file_is_named_with_the_line_but_not_quoted() {
    if_child(trains_under_the_environment);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rules");
    let cases = [
        ("the words of a file", "begins with none of framework, "),
        ("category WORDS of a-file", "PARAMETER"),
        ("backward the words of-a-file", "LINE:OPERATOR"),
        ("helper many words", "the wrong number of words"),
    ];
    for (line, expected) in cases {
        fs::write(&file, format!("# mine\n\n{line}\n")).unwrap();
        let child = asked(dir.path(), &[("MEMTRACE", "1"), ("MEMTRACE_RULES", file.to_str().unwrap())]);
        assert!(child.said(&format!("line 3 of {}", file.display())) && child.said(expected), "{child}");
        assert!(!child.said("words of") && !child.said("WORDS") && !child.said("many words"), "{child}");
    }
}
