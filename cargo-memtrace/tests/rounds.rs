//! Rounds of several `run`s at once, a third of them killed: every recording is whole, and every `run` speaks of its own.
//!
//! `MEMTRACE_CASES=100 cargo test -p cargo-memtrace --test rounds -- --nocapture` runs 200 rounds of two and 200 of six, and prints
//! how much of a killed program was not yet written.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use memtrace_core::SnapshotData;
use memtrace_core::snapshot::{DeviceSnapshot, RecordKind};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

/// Keeps COUNT blocks of SIZE bytes, and says each; it is recorded by the others.
#[test]
#[ignore = "a program for the other test"]
fn program() {
    let [count, size] = ["TEST_COUNT", "TEST_SIZE"].map(|name| std::env::var(name).unwrap().parse::<usize>().unwrap());
    println!("pid {}", std::process::id());
    let mut kept = Vec::with_capacity(count);
    for number in 1..=count {
        kept.push(std::hint::black_box(vec![1u8; size]));
        println!("block {number}");
        std::thread::sleep(Duration::from_millis(8));
    }
    std::process::exit(0);
}

/// The same numbers in every run of the test.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 += 1;
        let mut hasher = DefaultHasher::new();
        self.0.hash(&mut hasher);
        hasher.finish() % limit
    }
}

/// What is killed, and after which time.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kill {
    Nobody,
    Program(u64),
    Run(u64),
}

/// A `run` under way.
struct Running {
    child: Child,
    count: usize,
    size: u64,
    kill: Kill,
    output: JoinHandle<Said>,
}

/// What the program said, and when.
#[derive(Debug, Default)]
struct Said {
    pid: u32,
    blocks: Vec<Instant>,
    /// When it was killed: its output ends later, because its `run` has it, too.
    killed: Option<Instant>,
}

fn start(folder: &TempDir, id: u64, random: &mut Random) -> Running {
    let (count, size) = (10 + random.below(60) as usize, (64 << 10) + 64 * id);
    let kill = match random.below(6) {
        0 => Kill::Program(random.below(800)),
        1 => Kill::Run(random.below(800)),
        _ => Kill::Nobody,
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-memtrace"));
    command.args(["memtrace", "run", "--exec", "./program", "--", "--exact", "program", "--ignored", "--nocapture"]);
    command.current_dir(folder.path()).env_remove("CARGO_TARGET_DIR").env("TEST_COUNT", count.to_string());
    command.env("TEST_SIZE", size.to_string()).env("NO_COLOR", "1");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let output = std::thread::spawn(move || {
        let (mut said, mut killer) = (Said::default(), None);
        for line in lines.map_while(Result::ok) {
            if let Some((_, pid)) = line.split_once("pid ") {
                said.pid = pid.parse().unwrap();
                if let Kill::Program(after) = kill {
                    let pid = Pid::from_raw(said.pid as i32);
                    killer = Some(std::thread::spawn(move || {
                        std::thread::sleep(Duration::from_millis(after));
                        // It may have ended.
                        let _ = pid.map(|pid| kill_process(pid, Signal::KILL));
                        Instant::now()
                    }));
                }
            }
            if line.starts_with("block ") {
                said.blocks.push(Instant::now());
            }
        }
        said.killed = killer.map(|killer| killer.join().unwrap());
        said
    });
    Running { child, count, size, kill, output }
}

/// The largest part of a killed program that is not in its recording, of those looked at so far.
#[derive(Debug, Default)]
struct Tally {
    ended: usize,
    killed: usize,
    empty: usize,
    not_written: Vec<Duration>,
}

fn finish(mut run: Running, folder: &TempDir, tally: &mut Tally) {
    if let Kill::Run(after) = run.kill {
        std::thread::sleep(Duration::from_millis(after));
        let _ = run.child.kill();
    }
    let mut errors = String::new();
    run.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    run.child.wait().unwrap();
    let said = run.output.join().unwrap();
    let named = errors.split("recorded to ").nth(1).map(|rest| rest.split(['\n', ',']).next().unwrap().to_owned());
    match run.kill {
        Kill::Run(_) => {}
        _ if said.pid == 0 => panic!("{errors}"),
        _ => assert_eq!(
            ["recorded to", "no block"].iter().filter(|words| errors.contains(**words)).count(),
            1,
            "{errors}"
        ),
    }
    let Some((file, data)) = recording_of(folder, said.pid) else {
        assert!(run.kill != Kill::Nobody && said.blocks.is_empty(), "{run:?} {said:?} {errors}", run = run.kill);
        tally.empty += 1;
        return;
    };
    assert!(named.as_ref().is_none_or(|named| named.ends_with(&file)), "{named:?} is not {file}");
    let was_killed = data.health.cut_off;
    assert!(!was_killed || matches!(run.kill, Kill::Program(_)), "{file}: only a killed program's is cut off");
    let Some(device) = data.devices.first() else {
        assert!(was_killed);
        tally.empty += 1;
        return;
    };
    check_replay(device);
    let own = device.peak.blocks.iter().filter(|block| block.size == run.size).count();
    if let (Some(_), false) = (&named, was_killed) {
        assert!(errors.contains(&format!("Peak {}", memtrace_core::Bytes(device.peak.total()))), "{errors}");
    }
    if !was_killed {
        tally.ended += 1;
        assert_eq!(own, run.count, "{file} has its whole peak");
        return;
    }
    tally.killed += 1;
    assert!(own <= said.blocks.len() + 1, "{file}: {own} of {}", said.blocks.len());
    let since = |missing: &Instant| said.killed.unwrap().saturating_duration_since(*missing);
    tally.not_written.push(said.blocks.get(own).map_or(Duration::ZERO, since));
}

/// The one recording of a process, and its file's name.
fn recording_of(folder: &TempDir, pid: u32) -> Option<(String, SnapshotData)> {
    let files = fs::read_dir(folder.path().join("target/memtrace")).into_iter().flatten().flatten();
    let name = |file: &fs::DirEntry| file.file_name().into_string().unwrap();
    let captures = files.filter(|file| name(file).ends_with(".memtrace"));
    let read = |file: fs::DirEntry| {
        let data = memtrace_core::open(file.path()).ok()?;
        (data.process.pid == pid).then(|| (name(&file), data))
    };
    let mut found: Vec<_> = captures.filter_map(read).collect();
    assert!(found.len() <= 1, "one recording for each process");
    found.pop()
}

/// Live blocks and peak are what the records say, replayed one by one.
fn check_replay(device: &DeviceSnapshot) {
    assert_eq!((device.overwritten, device.gaps.len()), (0, 0));
    let (mut live, mut sum, mut most) = (BTreeMap::new(), 0u64, 0u64);
    for record in &device.records {
        if record.kind == RecordKind::Alloc {
            sum += record.size;
            live.insert(record.address, record.size);
        } else if let Some(size) = live.remove(&record.address) {
            sum -= size;
        }
        most = most.max(sum);
    }
    let mut expected: Vec<(u64, u64)> = device.live.iter().map(|block| (block.address, block.size)).collect();
    expected.sort_unstable();
    assert_eq!(live.into_iter().collect::<Vec<_>>(), expected);
    assert_eq!(most, device.peak.blocks.iter().map(|block| block.size).sum::<u64>());
}

#[test]
fn each_of_many_runs_at_once_has_its_own_whole_recording() {
    let cases: usize = std::env::var("MEMTRACE_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(1);
    let mut random = Random(7);
    let mut tally = Tally::default();
    for at_once in [2, 6] {
        for _ in 0..2 * cases {
            // A folder for each round, so that a pid that comes again is no other program's.
            let folder = tempfile::tempdir().unwrap();
            fs::copy(std::env::current_exe().unwrap(), folder.path().join("program")).unwrap();
            let runs: Vec<Running> = (0..at_once).map(|id| start(&folder, id, &mut random)).collect();
            runs.into_iter().for_each(|run| finish(run, &folder, &mut tally));
        }
    }
    tally.not_written.sort();
    let median = tally.not_written.get(tally.not_written.len() / 2);
    println!("{} ended, {} killed, {} before the first block", tally.ended, tally.killed, tally.empty);
    println!("not written when killed: median {median:?}, most {:?}", tally.not_written.last());
}
