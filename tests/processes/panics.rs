//! Memory of a panic itself is not the program's.

use memtrace::{Device, open};

use crate::child::{command, ended, if_child};
use crate::support::MIB;
use crate::training::{OUT, out, recording};

#[test]
fn a_panics_snapshot_excludes_the_memory_of_its_backtrace() {
    if_child(|| {
        let session = recording().dump_to(out().join("dump.memtrace").display().to_string());
        let _session = session.dump_on_panic(true).start().unwrap();
        let kept = vec![1u8; MIB];
        panic!("with {} bytes", kept.len());
    });
    let dir = tempfile::tempdir().unwrap();
    let child = ended(command(&[("RUST_BACKTRACE", "1")]).env(OUT, dir.path()));
    assert_eq!(child.status.code(), Some(101), "{child}");
    assert!(child.said("with 1048576 bytes") && child.said("stack backtrace:"), "{child}");
    let dump = open(dir.path().join("dump.memtrace")).unwrap();
    let peak = &dump.device(Device::Cpu).unwrap().peak;
    let recorded: u64 = peak.blocks.iter().map(|block| block.size).sum();
    assert!((MIB as u64..2 * MIB as u64).contains(&recorded), "{recorded}");
}

/// Recorded bytes at the peak of a program that goes on after a panic, and its largest block then.
fn peak_after_a_caught_panic(hook: &str) -> (u64, u64) {
    let dir = tempfile::tempdir().unwrap();
    let child = ended(command(&[("RUST_BACKTRACE", "1"), ("TEST_HOOK", hook)]).env(OUT, dir.path()));
    assert_eq!(child.status.code(), Some(0), "{child}");
    assert!(hook != "default" || child.said("stack backtrace:"), "{child}");
    let recording = open(dir.path().join("last.memtrace")).unwrap();
    let sizes = || recording.device(Device::Cpu).unwrap().peak.blocks.iter().map(|block| block.size);
    (sizes().sum(), sizes().max().unwrap_or(0))
}

#[test]
fn a_recording_that_goes_on_excludes_the_default_hooks_memory_only() {
    if_child(|| {
        if std::env::var("TEST_HOOK").unwrap() == "own" {
            std::panic::set_hook(Box::new(|_| drop(std::hint::black_box(vec![1u8; 3 * MIB]))));
        }
        let session = recording().stream(out().join("last.memtrace").display().to_string()).start().unwrap();
        let kept = vec![1u8; MIB];
        let caught = std::panic::catch_unwind(|| panic!("caught and ended")).is_err();
        assert!(caught && kept.len() == MIB);
        drop(session);
    });
    let mib = MIB as u64;
    let (bytes, _) = peak_after_a_caught_panic("default");
    assert!((mib..2 * mib).contains(&bytes), "{bytes}");
    let (bytes, largest) = peak_after_a_caught_panic("own");
    assert!((4 * mib..5 * mib).contains(&bytes) && largest == 3 * mib, "{bytes} {largest}");
}

#[test]
fn the_programs_hook_is_dropped_when_the_program_replaces_memtraces() {
    if_child(|| {
        let kept = std::sync::Arc::new(());
        let hooks = kept.clone();
        std::panic::set_hook(Box::new(move |_| drop(hooks.clone())));
        let session = recording().start().unwrap();
        assert!(std::panic::catch_unwind(|| panic!("caught")).is_err());
        assert_eq!(std::sync::Arc::strong_count(&kept), 2);
        drop(std::panic::take_hook());
        assert_eq!(std::sync::Arc::strong_count(&kept), 1);
        drop(session);
    });
    ended(&mut command(&[])).well();
}

#[test]
fn a_hook_that_panics_or_ends_the_program_does_so_as_without_memtrace() {
    if_child(|| {
        let hook = std::env::var("TEST_HOOK").unwrap();
        std::panic::set_hook(Box::new(move |_| match hook.as_str() {
            "exits" => std::process::exit(7),
            "aborts" => std::process::abort(),
            _ => panic!("once more"),
        }));
        let session = recording().dump_to(out().join("dump.memtrace").display().to_string());
        let _session = session.dump_on_panic(true).start().unwrap();
        panic!("the first");
    });
    let dir = tempfile::tempdir().unwrap();
    let with = |hook| ended(command(&[("TEST_HOOK", hook)]).env(OUT, dir.path())).status;
    assert_eq!(with("exits").code(), Some(7));
    // By an abort.
    for hook in ["aborts", "panics"] {
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&with(hook)), Some(libc::SIGABRT), "{hook}");
    }
}
