//! Ranks that allocate at random, start programs, replace themselves and are killed at any moment, read as one job, against the
//! states of known programs.

#[path = "../../tests/support/known.rs"]
mod known;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use known::{KnownProgram, KnownStep};
use memtrace_core::open;
use memtrace_core::snapshot::DeviceSnapshot;
use serde_json::{Value, json};

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

const MIB: usize = 1 << 20;
/// Ranks of the job; the last one never runs.
const WORLD: u64 = 9;
/// Steps after which some ranks replace themselves by a new program.
const LIFE: u64 = 400;

/// The program of a rank, in its first or its second life.
fn program(rank: u64, life: u64) -> KnownProgram {
    KnownProgram::new(1 + rank + life * WORLD)
}

/// The state after so many steps: live bytes, and the most that were live.
fn after(mut program: KnownProgram, steps: u64) -> (u64, u64) {
    let bytes = |program: &KnownProgram| (program.sizes.iter().sum::<usize>() * MIB) as u64;
    let mut peak = 0;
    for _ in 0..steps {
        program.next();
        peak = peak.max(bytes(&program));
    }
    (bytes(&program), peak)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The program that the test runs as each rank: it ends by being killed.
#[test]
#[ignore = "a program for the other test"]
fn rank() {
    let (rank, life) = (number("RANK").unwrap(), number("TEST_LIFE").unwrap());
    assert!(memtrace::init().unwrap());
    let (mut program, mut blocks) = (program(rank, life), Vec::new());
    for step in 1.. {
        match program.next() {
            // Not written to, so that it takes no memory.
            KnownStep::Alloc(size) => blocks.push(std::hint::black_box(Vec::<u8>::with_capacity(size * MIB))),
            KnownStep::Free(at) => drop(blocks.swap_remove(at)),
        }
        if step % 500 == 7 * (1 + rank) {
            Command::new("true").status().unwrap();
        }
        if step == LIFE && life == 0 && rank % 3 == 0 {
            let mut again = Command::new(std::env::current_exe().unwrap());
            panic!("{}", again.args(PROGRAM).env("TEST_LIFE", "1").exec());
        }
        std::thread::sleep(Duration::from_micros(20));
    }
}

const PROGRAM: [&str; 4] = ["--exact", "rank", "--ignored", "--nocapture"];

/// Runs the ranks and kills each at its own moment.
fn run(folder: &Path, random: &mut u64) {
    let start = |rank: u64| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(PROGRAM).env("RANK", rank.to_string()).env("WORLD_SIZE", WORLD.to_string()).env("TEST_LIFE", "0");
        command.env("MEMTRACE_OUT", folder.join("%r.memtrace")).env("MEMTRACE_MIN_SIZE", "1MiB");
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let mut running: Vec<_> = (0..WORLD - 1).map(start).collect();
    // All have begun, and one has replaced itself.
    while fs::read_dir(folder).unwrap().count() < running.len() + 1 {
        std::thread::sleep(Duration::from_millis(10));
    }
    while !running.is_empty() {
        std::thread::sleep(Duration::from_micros(known::random(random) as u64 % 80_000));
        let mut rank = running.swap_remove(known::random(random) % running.len());
        rank.kill().unwrap();
        rank.wait().unwrap();
    }
}

/// The rank and its life, and what its recording must say, by file. Live bytes are checked here.
fn expected(folder: &Path) -> BTreeMap<String, (u64, u64, u64)> {
    let file = |entry: std::io::Result<fs::DirEntry>| {
        let name = entry.unwrap().file_name().into_string().unwrap();
        // Killed before its first commit: not to be read, and said to be so.
        let data = open(folder.join(&name)).ok()?;
        let rank = u64::from(data.process.rank.unwrap());
        // `0-2.memtrace` is of the second life.
        let life = u64::from(name.contains('-'));
        let of = |device: &DeviceSnapshot| (device.stats.allocations, device.not_recorded, device.peak.clone());
        let (steps, other, peak) = data.devices.first().map(of).unwrap_or_default();
        let (live, most) = after(program(rank, life), steps.allocated + steps.freed);
        assert_eq!(
            data.devices.first().map_or(0, |device| device.stats.allocated_bytes.current),
            live + other,
            "{name}"
        );
        assert_eq!(peak.bytes, most + peak.not_recorded, "{name}");
        // With smaller blocks, which are counted only.
        Some((name, (rank, life, peak.total())))
    };
    fs::read_dir(folder).unwrap().filter_map(file).collect()
}

fn report(folder: &Path) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-memtrace"));
    let output = command.args(["memtrace", "report", ".", "--json"]).current_dir(folder).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

#[test]
fn a_job_whose_ranks_were_killed_is_the_sum_of_what_each_had_done() {
    let times = number("MEMTRACE_TEST_KILLS").unwrap_or(2);
    let (mut random, mut files, mut replaced) = (88172645463325252, 0, 0);
    for _ in 0..times {
        let folder = tempfile::tempdir().unwrap();
        run(folder.path(), &mut random);
        let found = expected(folder.path());
        let all = fs::read_dir(folder.path()).unwrap().count();
        (files, replaced) = (files + all, replaced + found.values().filter(|(_, life, _)| *life == 1).count());
        // Of two files of a rank the one that ends last counts.
        let mut ranks = BTreeMap::new();
        found.iter().for_each(|(name, (rank, life, peak))| _ = ranks.insert((*rank, *life), (name.as_str(), *peak)));
        let last: BTreeMap<u64, (&str, u64)> = ranks.into_iter().map(|((rank, _), last)| (rank, last)).collect();
        let report = report(folder.path());
        let said = &report["ranks"];
        assert_eq!((&said["count"], &said["world_size"]), (&json!(last.len()), &json!(WORLD)), "{said}");
        // The one that never ran, and those that were killed before their first commit.
        let range = |range: &Value| range["first"].as_u64().unwrap()..=range["last"].as_u64().unwrap();
        let missing: Vec<u64> = said["missing"].as_array().unwrap().iter().flat_map(range).collect();
        assert_eq!(missing, (0..WORLD).filter(|rank| !last.contains_key(rank)).collect::<Vec<_>>());
        let count = |key: &str| said[key].as_array().unwrap().len();
        assert_eq!((count("unread"), count("second_files")), (all - found.len(), found.len() - last.len()), "{said}");
        let section = |key: &str| {
            let mut sections = report["sections"].as_array().unwrap().iter();
            sections.find(|section| section["key"] == key).unwrap()["rows"].as_array().unwrap()
        };
        let rows = section("ranks");
        for row in rows {
            let (name, peak) = last[&row["rank"].as_u64().unwrap()];
            assert!(row["file"].as_str().unwrap().ends_with(name) && row["cut_off"] == true, "{row}");
            assert_eq!(row["peak_bytes"], peak, "{row}");
        }
        let sum: u64 = last.values().map(|(_, peak)| peak).sum();
        assert_eq!(section("ranks_by_line").iter().map(|row| row["sum_bytes"].as_u64().unwrap()).sum::<u64>(), sum);
        let mut peaks: Vec<u64> = last.values().map(|(_, peak)| *peak).collect();
        peaks.sort_unstable();
        let (median, most) = (peaks[(peaks.len() - 1) / 2], peaks[peaks.len() - 1]);
        assert_eq!((&said["median"]["peak_bytes"], &said["worst"]["peak_bytes"]), (&json!(median), &json!(most)));
        assert_eq!(rows[0]["peak_bytes"], most, "the worst is first");
    }
    println!("{times} jobs, {files} files, {replaced} of ranks that had replaced themselves");
    assert!(replaced > 0, "none was killed in its second life");
}
