//! What the unusual ends of a program leave behind: kill -9, a panic, a signal, `exit`, a full disk, a
//! failed allocation, each in the middle of the resnet example's training.
//!
//! The training runs in a process of its own: this program again.
#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "constructors run from .init_array; fork and kill are C functions")]

mod support;
#[path = "support/training.rs"]
mod training;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use memtrace::analysis;
use memtrace::{Builder, Device, Snapshot, read_capture, scope};
use training::Training;

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

#[used]
// SAFETY: the loader calls the functions in this section; `before_main` unwinds into nobody.
#[unsafe(link_section = ".init_array")]
static SCENARIOS: extern "C" fn() = {
    extern "C" fn start() {
        support::before_main(&[
            ("goes on", goes_on),
            ("panics", panics),
            ("exits", exits),
            ("fills the disk", fills_the_disk),
            ("runs out of memory", runs_out_of_memory),
            ("forks", forks),
            ("asks the environment", asks_the_environment),
        ]);
    }
    start
};

unsafe extern "C" {
    fn fork() -> i32;
    fn kill(pid: i32, signal: i32) -> i32;
}

const SIGKILL: i32 = 9;
const SIGUSR2: i32 = 12;
/// Where a scenario writes to.
const OUT: &str = "MEMTRACE_TEST_OUT";

fn out() -> PathBuf {
    PathBuf::from(std::env::var_os(OUT).unwrap())
}

fn recording() -> Builder {
    memtrace::builder().min_size("16 KiB").max_entries(100_000)
}

/// The first two steps, told on the standard output as they end.
fn two_steps(training: &mut Training) {
    for number in 1..=2 {
        scope(format!("step {number}"), || training.step()).unwrap();
        say(&format!("step {number}"));
    }
}

fn say(line: &str) {
    println!("{line}");
    std::io::stdout().flush().unwrap();
}

// ---- in the child ----

fn goes_on() {
    let out = out();
    let stream = out.join("streamed.memtrace").display().to_string();
    let dump = out.join("dump.memtrace").display().to_string();
    let session = recording().stream(stream).dump_to(dump).dump_on_signal("USR2").start().unwrap();
    let mut training = Training::load().unwrap();
    two_steps(&mut training);
    while !out.join("stop").exists() {
        scope("more", || training.step()).unwrap();
    }
    let stats = memtrace::stats(Device::Cpu);
    session.end().unwrap();
    say(&format!("peak {}", stats.allocated_bytes.peak));
}

fn panics() {
    let out = out();
    let stream = out.join("streamed.memtrace").display().to_string();
    let dump = out.join("dump.memtrace").display().to_string();
    let _session = recording().stream(stream).dump_to(dump).dump_on_panic(true).start().unwrap();
    let mut training = Training::load().unwrap();
    two_steps(&mut training);
    scope("step 3", || {
        let _loss = training.forward().unwrap();
        panic!("in the middle")
    })
}

fn exits() {
    let dump = out().join("dump.memtrace").display().to_string();
    let session = recording().dump_to(dump).dump_at_end(true).start().unwrap();
    let mut training = Training::load().unwrap();
    two_steps(&mut training);
    let _loss = scope("step 3", || training.forward()).unwrap();
    std::mem::forget(session);
    std::process::exit(3)
}

fn fills_the_disk() {
    let out = out();
    let stream = out.join("streamed.memtrace").display().to_string();
    let session = recording().stream(stream).start().unwrap();
    let mut training = Training::load().unwrap();
    two_steps(&mut training);
    while fs::write(out.join(format!("filler-{}", fs::read_dir(&out).unwrap().count())), vec![1; 1 << 14]).is_ok() {}
    for _ in 0..3 {
        scope("step on a full disk", || training.step()).unwrap();
        std::thread::sleep(Duration::from_millis(250));
    }
    let failed = session.snapshot().write_pytorch(out.join("full.pickle")).unwrap_err();
    let ended = session.end().unwrap_err();
    say(&format!("pickle: {failed}\nstream: {ended}"));
}

fn runs_out_of_memory() {
    let dump = out().join("dump.memtrace").display().to_string();
    let session = recording().dump_to(dump).dump_on_oom(true).start().unwrap();
    let mut training = Training::load().unwrap();
    two_steps(&mut training);
    for _ in 0..2 {
        assert!(Vec::<u8>::new().try_reserve_exact(1 << 46).is_err());
    }
    scope("step 3", || training.step()).unwrap();
    drop(session);
}

fn forks() {
    let dump = out().join("dump-%p.memtrace").display().to_string();
    let stream = out().join("streamed.memtrace").display().to_string();
    let session = recording().dump_to(dump).dump_at_end(true).dump_on_panic(true).stream(stream).start().unwrap();
    let kept = vec![0u8; 1 << 20];
    // SAFETY: the child runs ordinary code; glibc lets it allocate.
    match unsafe { fork() } {
        0 => {
            let _ = std::panic::catch_unwind(|| panic!("in the child"));
            drop(session);
            std::process::exit(kept.len() as i32 >> 20)
        }
        child => assert!(child > 0),
    }
    std::thread::sleep(Duration::from_millis(300));
    drop(kept);
}

fn asks_the_environment() {
    match memtrace::init() {
        Ok(recording) => say(&format!("recording: {recording}")),
        Err(error) => return say(&error.to_string()),
    }
    let mut training = Training::load().unwrap();
    two_steps(&mut training);
    // What was live at the end is in the last snapshot.
    std::mem::forget(training);
}

// ---- in the parent ----

fn scenario(name: &str, dir: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env("MEMTRACE_TEST_SCENARIO", name).env(OUT, dir).env("RAYON_NUM_THREADS", "2");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn ends(command: &mut Command) -> (Output, String) {
    let output = command.output().unwrap();
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    (output, String::from_utf8_lossy(&text).into_owned())
}

/// A scenario that has done two steps and goes on.
fn after_two_steps(dir: &Path) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child = scenario("goes on", dir).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    wait_for(&mut lines, "step 2");
    (child, lines)
}

fn wait_for(lines: &mut impl BufRead, line: &str) -> String {
    let mut last = String::new();
    while !last.starts_with(line) {
        last.clear();
        assert!(lines.read_line(&mut last).unwrap() > 0, "no {line}");
    }
    last
}

fn send(child: &Child, signal: i32) {
    // SAFETY: sends a signal to a child that has not been waited for.
    assert_eq!(unsafe { kill(child.id() as i32, signal) }, 0);
}

/// The sums hold, the scopes are there, and most of the memory has a line of the network.
fn check(snapshot: &Snapshot, scopes: &[&str]) {
    let device = snapshot.device(Device::Cpu).unwrap();
    let lines = analysis::by_line(snapshot, device);
    assert_eq!(lines.total, device.peak.total());
    let ours = ["model.rs", "sgd.rs", "training.rs"];
    let of_network = lines.rows.iter().filter(|row| ours.iter().any(|file| row.label.contains(file)));
    let share = of_network.map(|row| row.bytes).sum::<u64>() as f64 / lines.total as f64;
    assert!(share > 0.9, "{share}");
    let live: u64 = device.live.iter().map(|block| block.size).sum();
    assert_eq!(live + device.not_recorded, device.stats.allocated_bytes.current);
    let paths: Vec<String> = analysis::scopes(snapshot, device).into_iter().map(|row| row.path).collect();
    scopes.iter().for_each(|scope| assert!(paths.iter().any(|path| path == scope), "{scope}: {paths:?}"));
    assert!(snapshot.health.unreadable_modules.is_empty(), "{:?}", snapshot.health);
}

/// Truth 2: the log, applied to what was live before it, gives what is live after it.
fn check_replay(snapshot: &Snapshot) {
    let device = snapshot.device(Device::Cpu).unwrap();
    let mut replay = memtrace::snapshot::Replay::at_log_start(device);
    device.records.iter().for_each(|record| replay.apply(record));
    assert_eq!(replay.blocks(), device.live);
}

#[test]
fn a_killed_program_leaves_its_capture() {
    let dir = tempfile::tempdir().unwrap();
    let (mut child, _lines) = after_two_steps(dir.path());
    let capture = dir.path().join("streamed.memtrace");
    // The stream's thread runs when it may.
    let since = Instant::now();
    let named = |bytes: Vec<u8>| bytes.windows(4).any(|word| word == b"more");
    let goes_on_after_step_2 = || {
        // Names stand in the file as they are; reading it all takes longer.
        fs::read(&capture).is_ok_and(named)
            && read_capture(&capture).is_ok_and(|read| read.contexts.iter().any(|node| node.name == "more"))
    };
    while !goes_on_after_step_2() {
        assert!(since.elapsed() < Duration::from_secs(100), "the stream was not flushed");
        std::thread::sleep(Duration::from_millis(100));
    }
    send(&child, SIGKILL);
    assert!(!child.wait().unwrap().success());
    let snapshot = read_capture(&capture).unwrap();
    assert!(snapshot.health.cut_off);
    check(&snapshot, &["step 1", "step 2"]);
    check_replay(&snapshot);
    assert!(snapshot.report().to_string().contains("ends without its end mark"), "{}", snapshot.report());
    let names: Vec<&str> = snapshot.process.threads.iter().map(|thread| thread.name.as_str()).collect();
    assert!(names.iter().any(|name| name.starts_with("exits")), "{names:?}");
}

#[test]
fn a_signal_writes_a_snapshot_and_the_program_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let (mut child, mut lines) = after_two_steps(dir.path());
    let files = ["dump.memtrace", "dump-2.memtrace"].map(|name| dir.path().join(name));
    for file in &files {
        send(&child, SIGUSR2);
        let since = Instant::now();
        while !file.exists() {
            assert!(since.elapsed() < Duration::from_secs(100), "no {}", file.display());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    fs::write(dir.path().join("stop"), "").unwrap();
    let peak = wait_for(&mut lines, "peak");
    assert!(child.wait().unwrap().success());
    files.iter().for_each(|file| check(&read_capture(file).unwrap(), &["step 1", "step 2"]));
    let whole = read_capture(dir.path().join("streamed.memtrace")).unwrap();
    assert!(!whole.health.cut_off);
    check(&whole, &["step 1", "step 2", "more"]);
    check_replay(&whole);
    assert_eq!(peak.trim(), format!("peak {}", whole.device(Device::Cpu).unwrap().peak.bytes));
}

#[test]
fn a_panic_leaves_what_was_live_when_it_happened() {
    let dir = tempfile::tempdir().unwrap();
    let (output, text) = ends(&mut scenario("panics", dir.path()));
    assert_eq!(output.status.code(), Some(101), "{text}");
    assert!(text.contains("in the middle") && text.contains("after a panic"), "{text}");
    let dump = read_capture(dir.path().join("dump.memtrace")).unwrap();
    check(&dump, &["step 1", "step 2", "step 3"]);
    // The panic's own backtrace leaves blocks behind, too.
    let in_step_3 = |snapshot: &Snapshot| {
        let live = &snapshot.device(Device::Cpu).unwrap().live;
        let in_network = |stack| snapshot.stacks.frames(stack).any(|frame| frame.file.ends_with("model.rs"));
        let in_step = live.iter().filter(|block| snapshot.context_path(block.context).starts_with("step 3"));
        in_step.filter(|block| in_network(block.stack)).count()
    };
    assert!(in_step_3(&dump) > 50, "{}", in_step_3(&dump));
    let streamed = read_capture(dir.path().join("streamed.memtrace")).unwrap();
    assert!(!streamed.health.cut_off);
    assert_eq!(in_step_3(&streamed), 0, "unwinding freed them");
}

#[test]
fn exit_leaves_a_snapshot_and_its_code() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("dump.memtrace"), "an earlier file").unwrap();
    let (output, text) = ends(&mut scenario("exits", dir.path()));
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert_eq!(fs::read_to_string(dir.path().join("dump.memtrace")).unwrap(), "an earlier file");
    let dump = read_capture(dir.path().join("dump-2.memtrace")).unwrap();
    check(&dump, &["step 1", "step 2", "step 3"]);
    check_replay(&dump);
}

#[test]
fn a_full_disk_costs_the_rest_of_the_capture_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk");
    fs::create_dir(&disk).unwrap();
    // The disk exists in the child alone, so what it leaves there is copied out before it goes.
    let script = "mount -t tmpfs -o size=512k tmpfs \"$1\" && echo earlier > \"$1/earlier.pickle\" && \"$2\" && cp \"$1\"/*.memtrace \"$1\"/*.pickle \"$3\"";
    let mut command = scenario("fills the disk", &disk);
    let program = command.get_program().to_owned();
    let mut unshared = Command::new("unshare");
    unshared.args(["--map-root-user", "--mount", "sh", "-c", script, "sh"]).arg(&disk).arg(program).arg(dir.path());
    unshared.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command = unshared;
    let (output, text) = ends(&mut command);
    assert!(output.status.success(), "this test needs `unshare` with user namespaces: {text}");
    assert!(text.contains("memtrace goes on trying"), "{text}");
    assert!(text.contains("pickle: cannot write") && text.contains("stream: cannot write"), "{text}");
    assert_eq!(fs::read_to_string(dir.path().join("earlier.pickle")).unwrap(), "earlier\n");
    assert!(!dir.path().join("full.pickle").exists());
    let snapshot = read_capture(dir.path().join("streamed.memtrace")).unwrap();
    assert!(snapshot.health.cut_off && snapshot.health.unread_bytes == 0, "{:?}", snapshot.health);
    check(&snapshot, &["step 1"]);
    check_replay(&snapshot);
}

#[test]
fn the_first_failed_allocation_leaves_a_snapshot_and_the_program_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let (output, text) = ends(&mut scenario("runs out of memory", dir.path()));
    assert!(output.status.success(), "{text}");
    assert!(text.contains("after an allocation of 64.00 TiB failed"), "{text}");
    check(&read_capture(dir.path().join("dump.memtrace")).unwrap(), &["step 1", "step 2"]);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "only the first failure");
}

#[test]
fn a_forked_child_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (output, text) = ends(&mut scenario("forks", dir.path()));
    assert!(output.status.success(), "{text}");
    let mut names: Vec<String> =
        fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names.len(), 2, "{names:?}\n{text}");
    assert!(!read_capture(dir.path().join("streamed.memtrace")).unwrap().health.cut_off);
    assert!(!read_capture(dir.path().join(&names[0])).unwrap().health.cut_off);
}

#[test]
fn the_environment_starts_a_recording_and_says_where_to() {
    let dir = tempfile::tempdir().unwrap();
    let with = |variables: &[(&str, &str)]| {
        let mut command = scenario("asks the environment", dir.path());
        command.envs(variables.iter().copied());
        ends(&mut command)
    };
    let (output, text) = with(&[]);
    assert!(output.status.success() && text.contains("recording: false"), "{text}");
    let out = dir.path().join("%e-%r.txt");
    let (output, text) = with(&[
        ("MEMTRACE", "1"),
        ("MEMTRACE_OUT", out.to_str().unwrap()),
        ("RANK", "3"),
        ("MEMTRACE_MIN_SIZE", "16 KiB"),
    ]);
    assert!(output.status.success() && text.contains("recording: true"), "{text}");
    let written: Vec<PathBuf> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(written.len(), 1, "{written:?}");
    assert!(written[0].to_str().unwrap().ends_with("-3.txt"), "{written:?}");
    let report = fs::read_to_string(&written[0]).unwrap();
    assert!(report.contains("model.rs") && report.contains("step 2"), "{report}");
}

#[test]
fn a_capture_that_the_environment_asks_for_is_all_that_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("a.memtrace");
    fs::write(&out, "an earlier run").unwrap();
    let mut command = scenario("asks the environment", dir.path());
    command.env("MEMTRACE", "1").env("MEMTRACE_OUT", &out).env("MEMTRACE_MIN_SIZE", "16 KiB").current_dir(dir.path());
    let (output, text) = ends(&mut command);
    assert!(output.status.success() && text.contains("recording: true"), "{text}");
    assert_eq!(fs::read_to_string(&out).unwrap(), "an earlier run");
    let snapshot = read_capture(dir.path().join("a-2.memtrace")).unwrap();
    assert!(!snapshot.health.cut_off);
    check(&snapshot, &["step 1", "step 2"]);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "{text}");
    let (output, text) = ends(command.env("MEMTRACE", "off"));
    assert!(output.status.success() && text.contains("recording: false"), "{text}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "{text}");
}

#[test]
fn a_variable_that_makes_no_sense_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let cases = [
        ("MEMTRACE", "yes", "off, state or all"),
        ("MEMTRACE_STACKS", "python", "rust or all"),
        ("MEMTRACE_CONTEXT", "some", "none, state, alloc or all"),
        ("MEMTRACE_MAX_ENTRIES", "1e6", "a number of records"),
        ("MEMTRACE_MIN_SIZE", "16K", "512 MiB"),
        ("MEMTRACE_DUMP_ON_OOM", "maybe", "1 or 0"),
        ("MEMTRACE_CHECK_STACKS", "perhaps", "1 or 0"),
        ("MEMTRACE_SIGNAL", "KILL", "USR1, USR2"),
        ("MEMTRACE_SIGNAL", "9", "USR1, USR2"),
        ("MEMTRACE_SIGNAL", "SEGV", "USR1, USR2"),
        ("MEMTRACE_OUT", "trace.bin", ".pickle"),
    ];
    for (name, value, accepted) in cases {
        let (output, text) = ends(scenario("asks the environment", dir.path()).env("MEMTRACE", "1").env(name, value));
        assert!(output.status.success() && text.contains(accepted) && text.contains(value), "{name}: {text}");
        assert!(!text.contains("recording"), "{name}: {text}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}
