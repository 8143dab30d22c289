//! `growth` as a user runs it: its exit codes, its JSON, and a folder of ranks.

use std::fs;
use std::num::NonZeroU64;
use std::path::Path;
use std::process::Command;

use memtrace_core::export::{Capture, Export};
use memtrace_core::snapshot::{
    Block, DeviceMemory, DeviceSnapshot, MemoryKind, Peak, Record, RecordKind, StackId, Stat,
};
use memtrace_core::{Device, SnapshotData, open};
use serde_json::{Value, json};

/// A request each millisecond.
const REQUESTS: u64 = 3200;

/// A service on a GPU. Each request allocates 1 KiB, and frees that of the request before it, unless this is kept.
fn service(rank: Option<u32>, is_kept: impl Fn(u64) -> bool) -> SnapshotData {
    let mut data = open(Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/everything.memtrace")).unwrap();
    (data.process.rank, data.process.duration_ns) = (rank, REQUESTS * 1_000_000);
    data.health = Default::default();
    let mut device = DeviceSnapshot::default();
    device.device = Device::Cuda(0);
    device.memory = Some(DeviceMemory { total: 1 << 20, ..DeviceMemory::default() });
    let (mut last, mut kept) = (None, Vec::new());
    for number in 1..=REQUESTS {
        let (seq, time_ns) = (NonZeroU64::new(number), 1_000_000 * number - 1);
        let (address, size, stack, memory) = (4096 * number, 1024, StackId(1), MemoryKind::Pool);
        let block = Block { address, size, seq, time_ns, stack, memory, ..Block::default() };
        device.records.push(Record::alloc_of(&block));
        let Some(before) = last.replace(block) else { continue };
        match is_kept(number) {
            true => kept.push(before),
            false => device.records.push(Record {
                kind: RecordKind::Free,
                time_ns,
                stack: StackId::NONE,
                ..Record::alloc_of(&before)
            }),
        }
    }
    device.live = kept.into_iter().chain(last).collect();
    let now = device.live.len() as u64;
    let stat =
        |of: u64| Stat { current: of * now, peak: of * now, allocated: of * REQUESTS, freed: of * (REQUESTS - now) };
    device.stats.allocated_bytes = stat(1024);
    device.stats.allocations = stat(1);
    device.peak = Peak { bytes: 1024 * now, blocks: device.live.clone(), ..Peak::default() };
    data.devices = vec![device];
    data
}

fn leaking(rank: Option<u32>, every: u64) -> SnapshotData {
    service(rank, |number| number % every == 0)
}

fn capture(folder: &Path, name: &str, data: &SnapshotData) {
    let mut bytes = Vec::new();
    Capture::default().write(data, &mut bytes).unwrap();
    fs::write(folder.join(name), &bytes).unwrap();
}

/// Standard output and standard error of a command that must end so.
#[track_caller]
fn ends(code: i32, folder: &Path, arguments: &[&str]) -> (String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-memtrace"));
    command.args(["memtrace", "growth"]).args(arguments).current_dir(folder).env_remove("COLUMNS").env("NO_COLOR", "1");
    let output = command.output().unwrap();
    let [out, error] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {out}{error}");
    (out, error)
}

#[test]
fn the_exit_code_says_whether_memory_grows() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    capture(folder, "clean.memtrace", &service(None, |_| false));
    capture(folder, "leaking.memtrace", &leaking(None, 100));
    let mut overwritten = leaking(None, 100);
    overwritten.devices[0].overwritten = 7;
    capture(folder, "overwritten.memtrace", &overwritten);

    let (out, error) = ends(0, folder, &["clean.memtrace"]);
    assert_eq!((&*out, &*error), ("Nothing grows on cuda:0, by line.\n", ""));

    // 1 KiB each 100 ms are 600 KiB a minute.
    let (out, error) = ends(1, folder, &["leaking.memtrace"]);
    assert_eq!(error, "error: memory grows\n");
    for line in [
        "1 row grows on cuda:0, 600.0 KiB a minute.",
        "Most of it: src/model.rs:7 (Net::forward), 600.0 KiB a minute (600.0 KiB to 600.0 KiB).",
        "33.00 KiB of 1.000 MiB are live at the end: at this rate the device is full in 99.1 s.",
        "Growth by line",
    ] {
        assert!(out.contains(line), "{line}: {out}");
    }
    assert!(ends(1, folder, &["leaking.memtrace", "--by", "scope"]).0.contains("(no scope)"));

    let (out, error) = ends(3, folder, &["overwritten.memtrace"]);
    assert_eq!(error, "undecided: whether memory grows\n");
    assert!(out.starts_with("Undecided on cuda:0: the log lacks its beginning.\n"), "{out}");
    assert!(ends(2, folder, &["clean.memtrace", "--device", "cuda:3"]).1.contains("recorded on cuda:3"));
}

#[test]
fn json_has_what_is_printed() {
    let folder = tempfile::tempdir().unwrap();
    capture(folder.path(), "leaking.memtrace", &leaking(None, 100));
    let printed = ends(1, folder.path(), &["leaking.memtrace", "--json"]).0;
    let json: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(json["version"], 1);
    let growth = &json["recordings"][0];
    assert_eq!((&growth["name"], &growth["grows"]), (&Value::Null, &json!(true)));
    assert_eq!((&growth["bytes_per_minute"], &growth["interval_ns"]), (&json!(614_400), &json!(200_000_000)));
    assert_eq!((&growth["capacity_bytes"], &growth["live_at_end_bytes"]), (&json!(1 << 20), &json!(33 << 10)));
    // 1,014,784 bytes are left, at 614,400 a minute.
    assert_eq!(growth["full_in_ns"], 99_100_000_000_u64);
    let row = &growth["rows"][0];
    assert_eq!((&row["label"], &row["grows"]), (&json!("src/model.rs:7 (Net::forward)"), &json!(true)));
    // 11 intervals of 2 KiB.
    assert_eq!((&row["risen_bytes"], &row["at_end_bytes"]), (&json!(22 << 10), &json!(33 << 10)));
}

#[test]
fn ranks_are_said_one_by_one_with_the_fastest_growth_first() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    capture(folder, "a.memtrace", &service(Some(0), |_| false));
    capture(folder, "b.memtrace", &service(Some(1), |_| false));
    ends(0, folder, &["."]);

    let mut overwritten = service(Some(2), |_| false);
    overwritten.devices[0].overwritten = 7;
    capture(folder, "c.memtrace", &overwritten);
    assert_eq!(ends(3, folder, &["."]).1, "undecided: whether memory grows in rank 2\n");

    fs::write(folder.join("torn.memtrace"), "").unwrap();
    let (out, error) = ends(2, folder, &["."]);
    assert!(out.contains("rank 0: Nothing grows"), "{out}");
    assert!(error.starts_with("error: torn.memtrace: ") && error.ends_with("1 of 4 files could not be judged\n"));

    capture(folder, "d.memtrace", &leaking(Some(3), 100));
    capture(folder, "e.memtrace", &leaking(Some(4), 50));
    let (out, error) = ends(1, folder, &["."]);
    assert!(error.ends_with("error: memory grows in rank 4, rank 3\n"), "{error}");
    let ranks: Vec<&str> = out.lines().filter(|line| line.contains("on cuda:0")).map(|line| &line[..6]).collect();
    assert_eq!(ranks, ["rank 4", "rank 3", "rank 2", "rank 0", "rank 1"], "{out}");
    assert!(out.contains("\nrank 4: Growth by line\n"), "{out}");
    let json: Value = serde_json::from_str(&ends(1, folder, &[".", "--json"]).0).unwrap();
    assert_eq!((&json["recordings"][0]["name"], &json["recordings"][3]["grows"]), (&json!("rank 4"), &json!(false)));
}
