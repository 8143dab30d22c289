//! Files that remain after abnormal ends of a program in the middle of a training: kill -9, a panic, a signal, `exit`,
//! a full disk, a failed allocation.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use memtrace::{Device, Snapshot, open, scope};

use crate::child::{self, ended, eventually, if_child};
use crate::training::{ONE_THREAD, OUT, Training, check, check_replay, out, recording, say};

unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    fn kill(pid: i32, signal: i32) -> i32;
}

const SIGKILL: i32 = 9;
const SIGUSR2: i32 = 12;

/// The child's file with this name in its folder.
fn file(name: &str) -> String {
    out().join(name).display().to_string()
}

/// The command for this test's child, which writes to this folder.
fn command(folder: &Path) -> Command {
    // A panic's backtrace would hold more memory than the network.
    let mut command = child::command(&[ONE_THREAD, ("RUST_BACKTRACE", "0")]);
    command.env(OUT, folder).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Whether a streamed capture has a scope with this name, and thus everything recorded before it.
fn has_scope(capture: &Path, name: &str) -> bool {
    // Names are stored as plain text; parsing the file would take longer.
    let named = |bytes: &Vec<u8>| bytes.windows(name.len()).any(|word| word == name.as_bytes());
    let Some(bytes) = fs::read(capture).ok().filter(named) else { return false };
    Snapshot::parse(&bytes).is_ok_and(|read| read.contexts.iter().any(|node| node.name == name))
}

/// The child's body: trains until the file `stop` exists.
fn trains_until_stopped() {
    let session = recording().stream(file("streamed.memtrace")).dump_to(file("dump.memtrace"));
    let session = session.dump_on_signal(memtrace::Signal::Usr2).start().unwrap();
    let mut training = Training::load().unwrap();
    training.two_steps();
    while !out().join("stop").exists() {
        scope("more", || training.step()).unwrap();
    }
    let stats = memtrace::stats(Device::Cpu);
    session.end().unwrap();
    say(&format!("peak {}", stats.allocated_bytes.peak));
}

/// Starts the child and waits for two steps.
fn after_two_steps(folder: &Path) -> (Child, BufReader<ChildStdout>) {
    let mut child = command(folder).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    wait_for(&mut lines, "step 2");
    (child, lines)
}

/// Reads up to a line with this text.
fn wait_for(lines: &mut impl BufRead, text: &str) -> String {
    let (mut said, mut line) = (String::new(), String::new());
    while !line.contains(text) {
        said.push_str(&line);
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "no {text}:\n{said}");
    }
    line
}

fn send(child: &Child, signal: i32) {
    // SAFETY: the child has not been waited for, so its id is valid.
    assert_eq!(unsafe { kill(child.id() as i32, signal) }, 0);
}

#[test]
fn a_killed_program_leaves_its_capture() {
    if_child(trains_until_stopped);
    let dir = tempfile::tempdir().unwrap();
    let (mut child, _lines) = after_two_steps(dir.path());
    let capture = dir.path().join("streamed.memtrace");
    // The stream's thread may run at any time.
    eventually("the stream is flushed", || has_scope(&capture, "more"));
    send(&child, SIGKILL);
    assert!(!child.wait().unwrap().success());
    let snapshot = open(&capture).unwrap();
    assert!(snapshot.health.cut_off);
    check(&snapshot, &["step 1", "step 2"]);
    check_replay(&snapshot);
    assert!(snapshot.report().to_string().contains("ends without its end mark"), "{}", snapshot.report());
    let names: Vec<&str> = snapshot.process.threads.iter().map(|thread| thread.name.as_str()).collect();
    assert!(names.iter().any(|name| name.starts_with("exits::a_killed")), "{names:?}");
}

#[test]
fn a_signal_writes_a_snapshot_and_the_program_continues() {
    if_child(trains_until_stopped);
    let dir = tempfile::tempdir().unwrap();
    let (mut child, mut lines) = after_two_steps(dir.path());
    let files = ["dump.memtrace", "dump-2.memtrace"].map(|name| dir.path().join(name));
    for file in &files {
        send(&child, SIGUSR2);
        eventually("a snapshot is there", || file.exists());
    }
    fs::write(dir.path().join("stop"), "").unwrap();
    let peak = wait_for(&mut lines, "peak");
    assert!(child.wait().unwrap().success());
    files.iter().for_each(|file| check(&open(file).unwrap(), &["step 1", "step 2"]));
    let whole = open(dir.path().join("streamed.memtrace")).unwrap();
    assert!(!whole.health.cut_off);
    check(&whole, &["step 1", "step 2", "more"]);
    check_replay(&whole);
    assert_eq!(peak.trim(), format!("peak {}", whole.device(Device::Cpu).unwrap().peak.bytes));
}

#[test]
fn a_panic_leaves_a_snapshot_of_its_moment() {
    if_child(|| {
        let session = recording().stream(file("streamed.memtrace")).dump_to(file("dump.memtrace"));
        let _session = session.dump_on_panic(true).start().unwrap();
        let mut training = Training::load().unwrap();
        training.two_steps();
        scope("step 3", || {
            let _loss = training.forward().unwrap();
            panic!("in the middle")
        })
    });
    let dir = tempfile::tempdir().unwrap();
    let child = ended(&mut command(dir.path()));
    assert_eq!(child.status.code(), Some(101), "{child}");
    assert!(child.said("in the middle") && child.said("after a panic"), "{child}");
    let dump = open(dir.path().join("dump.memtrace")).unwrap();
    check(&dump, &["step 1", "step 2", "step 3"]);
    // The panic itself also leaves blocks behind.
    let in_step_3 = |snapshot: &Snapshot| {
        let live = &snapshot.device(Device::Cpu).unwrap().live;
        let in_network =
            |stack| snapshot.stacks.frames(stack).any(|frame| frame.file_or_empty().ends_with("training.rs"));
        let in_step = live.iter().filter(|block| snapshot.context_path(block.context).starts_with("step 3"));
        in_step.filter(|block| in_network(block.stack)).count()
    };
    assert!(in_step_3(&dump) > 50, "{}", in_step_3(&dump));
    let streamed = open(dir.path().join("streamed.memtrace")).unwrap();
    assert!(!streamed.health.cut_off);
    assert_eq!(in_step_3(&streamed), 0, "unwinding freed them");
}

#[test]
fn exit_writes_a_snapshot_and_keeps_the_exit_code() {
    if_child(|| {
        let session = recording().dump_to(file("dump.memtrace")).dump_at_end(true).start().unwrap();
        let mut training = Training::load().unwrap();
        training.two_steps();
        let _loss = scope("step 3", || training.forward()).unwrap();
        std::mem::forget(session);
        std::process::exit(3)
    });
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("dump.memtrace"), "an earlier file").unwrap();
    let child = ended(&mut command(dir.path()));
    assert_eq!(child.status.code(), Some(3), "{child}");
    assert_eq!(fs::read_to_string(dir.path().join("dump.memtrace")).unwrap(), "an earlier file");
    let dump = open(dir.path().join("dump-2.memtrace")).unwrap();
    check(&dump, &["step 1", "step 2", "step 3"]);
    check_replay(&dump);
}

/// The child's body: trains on while the disk is full, until the file `stop` exists.
fn fills_the_disk() {
    let disk = out().join("disk");
    let stream = disk.join("streamed.memtrace");
    let session = recording().stream(stream.display().to_string()).start().unwrap();
    let mut training = Training::load().unwrap();
    training.two_steps();
    eventually("the first step is in the file", || has_scope(&stream, "step 2"));
    while fs::write(disk.join(format!("filler-{}", fs::read_dir(&disk).unwrap().count())), vec![1; 1 << 14]).is_ok() {}
    while !out().join("stop").exists() {
        scope("step on a full disk", || training.step()).unwrap();
    }
    let failed = session.snapshot().write(disk.join("full.pickle")).unwrap_err();
    let ended = session.end().unwrap_err();
    say(&format!("pickle: {failed}\nstream: {ended}"));
}

/// Runs the command with a private disk; its files are copied out before the disk disappears.
fn with_a_disk(command: &Command, folder: &Path) -> Command {
    let script = "disk=$1/disk; out=$1; shift; mkdir \"$disk\" && mount -t tmpfs -o size=512k tmpfs \"$disk\" && \
        echo earlier > \"$disk/earlier.pickle\" && \"$@\" && cp \"$disk\"/*.memtrace \"$disk\"/*.pickle \"$out\"";
    let mut unshared = Command::new("unshare");
    unshared.args(["--map-root-user", "--mount", "sh", "-c", script, "sh"]).arg(folder);
    unshared.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => unshared.env(name, value),
            None => unshared.env_remove(name),
        };
    }
    unshared.stdout(Stdio::piped()).stderr(Stdio::piped());
    unshared
}

#[test]
fn a_full_disk_costs_the_rest_of_the_capture_and_nothing_else() {
    if_child(fills_the_disk);
    let dir = tempfile::tempdir().unwrap();
    let mut child = with_a_disk(&command(dir.path()), dir.path()).spawn().unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    // This test needs `unshare` with user namespaces.
    wait_for(&mut errors, "memtrace keeps trying");
    fs::write(dir.path().join("stop"), "").unwrap();
    let output = child.wait_with_output().unwrap();
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    errors.read_to_string(&mut text).unwrap();
    assert!(output.status.success(), "{text}");
    assert!(text.contains("pickle: cannot write") && text.contains("stream: cannot write"), "{text}");
    assert_eq!(fs::read_to_string(dir.path().join("earlier.pickle")).unwrap(), "earlier\n");
    assert!(!dir.path().join("full.pickle").exists());
    let snapshot = open(dir.path().join("streamed.memtrace")).unwrap();
    assert!(snapshot.health.cut_off && snapshot.health.unread_bytes == 0, "{:?}", snapshot.health);
    check(&snapshot, &["step 1"]);
    check_replay(&snapshot);
}

#[test]
fn the_first_failed_allocation_writes_a_snapshot_and_the_program_continues() {
    if_child(|| {
        let session = recording().dump_to(file("dump.memtrace")).dump_on_oom(true).start().unwrap();
        let mut training = Training::load().unwrap();
        training.two_steps();
        for _ in 0..2 {
            assert!(Vec::<u8>::new().try_reserve_exact(1 << 46).is_err());
        }
        scope("step 3", || training.step()).unwrap();
        drop(session);
    });
    let dir = tempfile::tempdir().unwrap();
    let child = ended(&mut command(dir.path())).well();
    assert!(child.said("after an allocation of 64.00 TiB failed"), "{child}");
    check(&open(dir.path().join("dump.memtrace")).unwrap(), &["step 1", "step 2"]);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "only the first failure");
}

#[test]
fn a_forked_child_writes_nothing() {
    if_child(|| {
        let session = recording().dump_to(file("dump-%p.memtrace")).dump_at_end(true).dump_on_panic(true);
        let session = session.stream(file("streamed.memtrace")).start().unwrap();
        let kept = vec![0u8; 1 << 20];
        // SAFETY: the child runs ordinary code; glibc lets it allocate.
        let pid = unsafe { fork() };
        if pid == 0 {
            let _ = std::panic::catch_unwind(|| panic!("in the child"));
            drop(session);
            std::process::exit(kept.len() as i32 >> 20)
        }
        let mut status = 0;
        // SAFETY: `status` is valid for writes.
        assert_eq!(unsafe { waitpid(pid, &raw mut status, 0) }, pid);
        assert_eq!(status, 1 << 8, "the forked child's code is 1");
        drop((kept, session));
    });
    let dir = tempfile::tempdir().unwrap();
    let child = ended(&mut command(dir.path())).well();
    let mut names: Vec<String> =
        fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names.len(), 2, "{names:?}\n{child}");
    assert!(!open(dir.path().join("streamed.memtrace")).unwrap().health.cut_off);
    assert!(!open(dir.path().join(&names[0])).unwrap().health.cut_off);
}
