//! Ranks that allocate at random, start programs, replace themselves and are killed at any moment, read as one job, against the
//! states of known programs: on hosts whose clocks differ, of two builds, beside PyTorch's snapshots, and beside another job.

#[path = "../../../tests/support/known.rs"]
mod known;
mod round;

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use known::{KnownProgram, KnownStep};
use memtrace_core::analysis::main_device;
use memtrace_core::snapshot::DeviceSnapshot;
use memtrace_core::{Device, SnapshotData};
use serde_json::{Value, json};

use round::{Round, programs};

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

/// What a recording must count for: its rank and life, and its weight, by which ranks are ordered.
type Expected = (String, u64, (bool, u64));

/// Of a rank of a job. Its live bytes are checked here.
fn of_rank(name: &str, data: &SnapshotData) -> Expected {
    let rank = u64::from(data.process.rank.unwrap());
    // `first0-2.memtrace` is of the second life.
    let life = u64::from(name.contains('-'));
    let of = |device: &DeviceSnapshot| (device.stats.allocations, device.not_recorded, device.peak.clone());
    let (steps, other, peak) = data.devices.first().map(of).unwrap_or_default();
    let (live, most) = after(program(rank, life), steps.allocated + steps.freed);
    let found = data.devices.first().map_or(0, |device| device.stats.allocated_bytes.current);
    assert_eq!((found, peak.bytes), (live + other, most + peak.not_recorded), "{name}");
    // With smaller blocks, which are counted only.
    (rank.to_string(), life, (false, peak.total()))
}

fn of_pickle(name: &str, data: &SnapshotData) -> Expected {
    let device = main_device(data).unwrap();
    let peak = data.device(device).unwrap().peak.total();
    let rank = if name == "rank8.pickle" { "8" } else { name };
    (rank.to_owned(), 0, (matches!(device, Device::Cuda(_)), peak))
}

/// Checks the report of these files of a job, in a folder in which so many files cannot be read.
fn check(report: &Value, files: &BTreeMap<String, Option<Expected>>, unread: usize) {
    // Of two files of a rank the one that ends last counts.
    let mut lives = BTreeMap::new();
    let read = || files.iter().filter_map(|(name, of)| Some((name, of.as_ref()?)));
    read().for_each(|(name, (rank, life, weight))| _ = lives.insert((rank, *life), (name.as_str(), *weight)));
    let last: BTreeMap<&str, (&str, (bool, u64))> =
        lives.into_iter().map(|((rank, _), last)| (rank.as_str(), last)).collect();
    let said = &report["ranks"];
    assert_eq!((&said["count"], &said["world_size"]), (&json!(last.len()), &json!(WORLD)), "{said}");
    // The one that never ran, and those that were killed before their first commit.
    let range = |range: &Value| range["first"].as_u64().unwrap()..=range["last"].as_u64().unwrap();
    let missing: Vec<u64> = said["missing"].as_array().unwrap().iter().flat_map(range).collect();
    assert_eq!(missing, (0..WORLD).filter(|rank| !last.contains_key(&*rank.to_string())).collect::<Vec<_>>());
    let count = |key: &str| said[key].as_array().unwrap().len();
    assert_eq!((count("unread"), count("second_files")), (unread, read().count() - last.len()), "{said}");
    let section = |key: &str| {
        let mut sections = report["sections"].as_array().unwrap().iter();
        sections.find(|section| section["key"] == key).unwrap()["rows"].as_array().unwrap()
    };
    let rows = section("ranks");
    let mut found: Vec<(&str, &Value)> =
        rows.iter().map(|row| (row["file"].as_str().unwrap(), &row["peak_bytes"])).collect();
    found.sort_unstable_by_key(|(file, _)| *file);
    let mut expected: Vec<(&str, Value)> = last.values().map(|(name, (_, peak))| (*name, json!(peak))).collect();
    expected.sort_unstable_by_key(|(file, _)| *file);
    assert!(
        found.iter().zip(&expected).all(|(row, of)| row.0.ends_with(of.0) && *row.1 == of.1),
        "{found:?} {expected:?}"
    );
    let mut weights: Vec<(bool, u64)> = last.values().map(|(_, weight)| *weight).collect();
    let sum: u64 = weights.iter().map(|(_, peak)| peak).sum();
    assert_eq!(section("ranks_by_line").iter().map(|row| row["sum_bytes"].as_u64().unwrap()).sum::<u64>(), sum);
    weights.sort_unstable();
    let (median, most) = (weights[(weights.len() - 1) / 2].1, weights[weights.len() - 1].1);
    assert_eq!((&said["median"]["peak_bytes"], &said["worst"]["peak_bytes"]), (&json!(median), &json!(most)));
    assert_eq!(rows[0]["peak_bytes"], most, "the worst is first");
}

#[test]
fn a_job_whose_ranks_were_killed_is_the_sum_of_what_each_had_done() {
    let times = number("MEMTRACE_TEST_KILLS").unwrap_or(4);
    let builds = tempfile::tempdir().unwrap();
    let programs = programs(builds.path());
    let (mut random, mut files, mut replaced) = (88172645463325252, 0, 0);
    for time in 0..times {
        let mut round = Round { folder: tempfile::tempdir().unwrap(), programs: programs.clone(), random };
        if time % 2 == 0 {
            round.programs[1] = programs[0].clone();
        }
        let jobs: &[&str] = if time % 4 == 1 { &["first", "second"] } else { &["first"] };
        jobs.iter().for_each(|id| round.run(id));
        round.set_clocks();
        let of_job = |id: &&str| {
            let names = round.names().into_iter().filter(|name| name.starts_with(id));
            let of = |name: String| (name.clone(), round.open(&name).map(|data| of_rank(&name, &data)));
            names.map(of).collect::<BTreeMap<_, _>>()
        };
        let mut expected: Vec<BTreeMap<String, Option<Expected>>> = jobs.iter().map(of_job).collect();
        if time % 4 == 3 {
            round.add_pickles();
            for name in ["rank8.pickle", "early.pickle", "late.pickle"] {
                let of = round.open(name).map(|data| of_pickle(name, &data));
                expected[0].insert(name.to_owned(), of);
            }
        }
        let unread = expected.iter().flatten().filter(|(_, of)| of.is_none()).count();
        for (number, job) in (1..).zip(&expected) {
            let number = format!("{number}");
            let report = round.report(&["--job", &number][..if jobs.len() == 1 { 0 } else { 2 }]);
            check(&report, job, unread);
        }
        let all = || expected.iter().flatten();
        files += all().count();
        replaced += all().filter(|(_, of)| of.as_ref().is_some_and(|(_, life, _)| *life == 1)).count();
        random = round.random;
    }
    println!("{times} rounds, {files} files, {replaced} of ranks that had replaced themselves");
    assert!(replaced > 0, "none was killed in its second life");
}
