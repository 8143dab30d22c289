//! Ranks of a job, as a user reads them: folders with good and bad files, files of two jobs, and all commands.

mod check;
mod diff;
mod one;
mod report;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use memtrace_core::analysis::main_device;
use memtrace_core::export::{Capture, Export, Pickle};
use memtrace_core::snapshot::{Launcher, Process};
use memtrace_core::{Device, SnapshotData, open};

fn recording() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/everything.memtrace")
}

/// A rank of a job of 6.
fn rank(number: u32) -> SnapshotData {
    let mut data = open(recording()).unwrap();
    data.process = Process { rank: Some(number), pid: 100 + number, host: "node".into(), ..data.process };
    data.process.launcher = Launcher { world_size: Some(6), job: Some("7.0".into()) };
    data
}

fn write(folder: &Path, name: &str, format: &dyn Export, data: &SnapshotData) -> Vec<u8> {
    let mut bytes = Vec::new();
    format.write(data, &mut bytes).unwrap();
    fs::write(folder.join(name), &bytes).unwrap();
    bytes
}

fn capture(folder: &Path, name: &str, data: &SnapshotData) -> Vec<u8> {
    write(folder, name, &Capture::default(), data)
}

fn memtrace(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-memtrace"));
    command.arg("memtrace").args(arguments).current_dir(folder).env_remove("COLUMNS").env("NO_COLOR", "1");
    command.output().unwrap()
}

/// Standard output and standard error of a command that must end so.
#[track_caller]
fn ends(code: i32, folder: &Path, arguments: &[&str]) -> (String, String) {
    let output = memtrace(folder, arguments);
    let [out, error] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {out}{error}");
    (out, error)
}

/// The device that is compared.
fn main(data: &SnapshotData) -> Device {
    main_device(data).unwrap()
}

/// The peak of a rank without more.
fn peak() -> u64 {
    rank(0).device(main(&rank(0))).unwrap().peak.total()
}

/// A rank whose peak is larger by so many bytes of small blocks.
fn with_more(number: u32, bytes: u64) -> SnapshotData {
    let mut data = rank(number);
    let device = main(&data);
    let device = data.devices.iter_mut().find(|other| other.device == device).unwrap();
    device.peak.below_threshold += bytes;
    device.below_threshold += bytes;
    device.stats.below_threshold += bytes;
    data
}

/// Ranks 0 and 1, rank 2 killed, rank 3 a PyTorch snapshot, rank 4 torn, an empty file, a foreign file, and notes.
fn job(folder: &Path) {
    capture(folder, "a.memtrace", &rank(0));
    let peak = rank(0).devices[0].peak.total();
    let mut second = rank(1);
    // A temporary of the second rank was larger.
    second.devices[0].peak.below_threshold += 1000;
    second.devices[0].below_threshold += 1000;
    second.devices[0].stats.below_threshold += 1000;
    assert!(capture(folder, "b.memtrace", &second).len() > 100 && peak > 0);
    let killed = capture(folder, "c.memtrace", &rank(2));
    // Without the end mark.
    fs::write(folder.join("c.memtrace"), &killed[..killed.len() - 13]).unwrap();
    write(folder, "dump_rank3.pickle", &Pickle::default(), &rank(9));
    fs::write(folder.join("torn_rank4.memtrace"), &killed[..60]).unwrap();
    fs::write(folder.join("empty.memtrace"), "").unwrap();
    fs::write(folder.join("foreign.memtrace"), "a picture").unwrap();
    fs::write(folder.join("notes.txt"), "no recording").unwrap();
}
