//! Streamed captures of programs that never pause, close all descriptors, or have little disk space.

use std::collections::HashMap;
use std::fs::{self, File};
use std::hint::black_box;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use memtrace::snapshot::RecordKind;
use memtrace::{Device, Session, Snapshot, SnapshotData, open};

use crate::child::{self, eventually, if_child, in_child};

unsafe extern "C" {
    fn close_range(first: u32, last: u32, flags: i32) -> i32;
    fn setrlimit(resource: i32, limit: *const [u64; 2]) -> i32;
    fn signal(signal: i32, handler: usize) -> usize;
}

const THREADS: &str = "TEST_THREADS";

/// Threads that allocate and free without a pause; each has its own block size.
fn busy_threads(count: usize) {
    for thread in 0..count {
        std::thread::spawn(move || {
            let kept = vec![0u8; 9000 + thread];
            loop {
                black_box(vec![0u8; 5000 + thread]);
                black_box(&kept);
            }
        });
    }
}

fn stream_to(path: &Path) -> Session {
    memtrace::builder().min_size(4096).stream(path.display().to_string()).start().unwrap()
}

fn out() -> PathBuf {
    std::env::var("TEST_OUT").unwrap().into()
}

/// Checks that the log adds up: every free has its allocation, and the remaining blocks are the live ones.
fn check_log(data: &SnapshotData) {
    let device = data.device(Device::Cpu).unwrap();
    let mut live = HashMap::new();
    for record in &device.records {
        let expected = match record.kind {
            RecordKind::Alloc => live.insert(record.address, record.alloc_seq).is_none(),
            RecordKind::Free => live.remove(&record.address) == Some(record.alloc_seq) || record.alloc_seq.is_none(),
        };
        assert!(expected, "{record:?}");
    }
    let mut left: Vec<_> = live.into_values().collect();
    left.sort_unstable();
    assert_eq!(left, device.live.iter().map(|block| block.seq).collect::<Vec<_>>());
    let total: u64 = device.live.iter().map(|block| block.size).sum();
    assert_eq!(total + device.not_recorded, device.stats.allocated_bytes.current);
}

/// Starts a child with this number of busy threads; returns once its capture has records of them.
fn busy_child(capture: &Path, threads: usize) -> Child {
    let mut command = child::command(&[(THREADS, &threads.to_string())]);
    let child = command.env("TEST_OUT", capture).spawn().unwrap();
    eventually("something is recorded", || has_devices(capture));
    child
}

fn has_devices(capture: &Path) -> bool {
    fs::read(capture).is_ok_and(|bytes| Snapshot::parse(&bytes).is_ok_and(|read| !read.devices.is_empty()))
}

/// Seconds since a capture's last commit.
fn age(data: &SnapshotData, now: Duration) -> f64 {
    let process = &data.process;
    now.as_secs_f64() - process.started_unix_us as f64 / 1e6 - process.duration_ns as f64 / 1e9
}

/// `MEMTRACE_CASES` multiplies the number of kills. Prints the age of the last commit without asserting it.
#[test]
fn a_program_killed_while_busy_leaves_all_but_its_last_moment() {
    if_child(|| {
        let session = stream_to(&out());
        busy_threads(std::env::var(THREADS).unwrap().parse().unwrap());
        std::thread::sleep(Duration::from_secs(1000));
        drop(session);
    });
    let times: u64 = std::env::var("MEMTRACE_CASES").map_or(1, |times| times.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    for run in 0..3 * times {
        let (capture, threads) = (dir.path().join(format!("{run}.memtrace")), [2, 4, 8][run as usize % 3]);
        let mut child = busy_child(&capture, threads);
        // An arbitrary moment, not a condition.
        std::thread::sleep(Duration::from_millis(run * 7919 % 1000));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let (length, read) = (fs::metadata(&capture).unwrap().len(), open(&capture).unwrap());
        check_log(&read);
        assert!(read.health.cut_off);
        let device = read.device(Device::Cpu).unwrap();
        let missing: u64 = device.gaps.iter().map(|gap| gap.records).sum();
        let records = device.records.len() as u64;
        assert!(length < 40 * records + (1 << 20), "{length} bytes for {records} records");
        let age = age(&read, now);
        assert!(age < 20.0, "the last commit is {age} s old");
        eprintln!("{threads} threads: {records} records, {missing} missing in {} gaps, {age:.3} s", device.gaps.len());
        fs::remove_file(&capture).unwrap();
    }
}

#[test]
fn a_session_ends_while_its_threads_are_busy() {
    if_child(|| {
        for threads in [2, 6] {
            let path = out().with_extension(threads.to_string());
            let session = stream_to(&path);
            busy_threads(threads);
            eventually("something is recorded", || has_devices(&path));
            session.end().unwrap();
            let read = open(&path).unwrap();
            assert!(!read.health.cut_off);
            check_log(&read);
        }
    });
    let dir = tempfile::tempdir().unwrap();
    let mut command = child::command(&[]);
    child::ended(command.env("TEST_OUT", dir.path().join("a.memtrace"))).well();
}

#[test]
fn a_caught_panic_returns_while_other_threads_are_busy() {
    if_child(|| {
        let dump = out().with_extension("txt").display().to_string();
        let builder = memtrace::builder().min_size(4096).stream(out().display().to_string());
        let session = builder.dump_on_panic(true).dump_to(dump).start().unwrap();
        busy_threads(4);
        assert!(std::panic::catch_unwind(|| panic!("on purpose")).is_err());
        session.end().unwrap();
        check_log(&open(out()).unwrap());
    });
    let dir = tempfile::tempdir().unwrap();
    let mut command = child::command(&[]);
    child::ended(command.env("TEST_OUT", dir.path().join("a.memtrace"))).well();
    assert!(dir.path().join("a.txt").exists());
}

#[test]
fn a_program_that_closes_all_descriptors_keeps_its_own_files_and_its_capture() {
    if_child(|| {
        let session = stream_to(&out());
        let mine = out().with_extension("mine");
        // One descriptor for each number that memtrace's might have.
        let mut files = Vec::new();
        for round in 0..3 {
            files.drain(..).for_each(std::mem::forget::<File>);
            // SAFETY: the session is the only object of this process with a descriptor.
            assert_eq!(unsafe { close_range(3, u32::MAX, 0) }, 0);
            for _ in 0..1000 {
                let mut file = File::options().append(true).create(true).open(&mine).unwrap();
                file.write_all(b"mine\n").unwrap();
                files.push(file);
            }
            let kept = vec![round as u8; 5000];
            session.flush();
            std::mem::forget(kept);
        }
        session.end().unwrap();
        assert_eq!(fs::read(&mine).unwrap(), b"mine\n".repeat(3000));
        // memtrace closed none of them.
        assert!(files.iter().all(|file| file.metadata().is_ok()));
        let read = open(out()).unwrap();
        check_log(&read);
        let kept = read.device(Device::Cpu).unwrap().live.iter().filter(|block| block.size == 5000).count();
        assert_eq!((kept, read.health.cut_off), (3, false));
        files.into_iter().for_each(std::mem::forget::<File>);
    });
    let dir = tempfile::tempdir().unwrap();
    let mut command = child::command(&[]);
    child::ended(command.env("TEST_OUT", dir.path().join("a.memtrace"))).well();
}

/// Whether a child of this process finds the file's record lock taken by this process.
fn is_locked(file: &File) -> bool {
    // SAFETY: a lock is plain data.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    // SAFETY: the child makes system calls only.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: the descriptor is open.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &mut lock) };
        // SAFETY: ends the child.
        unsafe { libc::_exit((lock.l_type == libc::F_WRLCK as libc::c_short).into()) };
    }
    let mut status = 0;
    // SAFETY: the status is a local variable.
    unsafe { libc::waitpid(child, &mut status, 0) };
    libc::WEXITSTATUS(status) == 1
}

#[test]
fn a_stream_keeps_no_file_of_the_program_open_and_unlocks_none() {
    if_child(|| {
        let threads = || fs::read_dir("/proc/self/task").unwrap().count();
        let others = threads();
        let file = File::create(out().with_extension("locked")).unwrap();
        // SAFETY: a lock is plain data.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = libc::F_WRLCK as libc::c_short;
        // SAFETY: the descriptor is open.
        assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &lock) }, 0);
        for round in 0..3 {
            let (mut reader, writer) = std::io::pipe().unwrap();
            let session = stream_to(&out().with_extension(format!("{round}.memtrace")));
            drop(writer);
            // At the end of the data, which comes when the last writer is gone.
            assert_eq!(reader.read(&mut [0]).unwrap(), 0);
            assert!(is_locked(&file));
            session.end().unwrap();
            assert!(is_locked(&file));
        }
        // The threads go with the last session, of whose end the background thread hears at its next turn.
        eventually("memtrace's threads end", || threads() == others);
    });
    let dir = tempfile::tempdir().unwrap();
    let mut command = child::command(&[]);
    child::ended(command.env("TEST_OUT", dir.path().join("a"))).well();
}

#[test]
fn a_small_disk_keeps_the_beginning_of_a_capture() {
    const ROOM: u64 = 150_000;
    if_child(|| {
        const RLIMIT_FSIZE: i32 = 1;
        let (sigxfsz, ignore) = (25, 1);
        // SAFETY: ignores a signal of this process.
        unsafe { signal(sigxfsz, ignore) };
        // SAFETY: limits this process's files.
        assert_eq!(unsafe { setrlimit(RLIMIT_FSIZE, &[ROOM, ROOM]) }, 0);
        let session = stream_to(&out());
        for _ in 0..100 {
            (0..500).for_each(|_| drop(black_box(vec![0u8; 5000])));
            session.flush();
        }
        assert!(session.end().is_err());
    });
    let dir = tempfile::tempdir().unwrap();
    let capture = dir.path().join("a.memtrace");
    let mut command = child::command(&[]);
    child::ended(command.env("TEST_OUT", &capture)).well();
    let read = open(&capture).unwrap();
    check_log(&read);
    let (length, records) = (fs::metadata(&capture).unwrap().len(), read.device(Device::Cpu).unwrap().records.len());
    assert!(length > ROOM / 2 && length <= ROOM && records > 5000, "{length} bytes, {records} records");
    assert_eq!((read.health.cut_off, read.health.unread_bytes), (true, 0));
}

#[test]
fn a_removed_capture_is_an_error_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    in_child(&[("TEST_OUT", dir.path().to_str().unwrap())], || {
        let mut ends = ["deleted", "shorter"].map(|how| {
            let path = out().join(format!("{how}.memtrace"));
            let session = stream_to(&path);
            let _kept = black_box(vec![0u8; 5000]);
            session.flush();
            match how {
                "deleted" => std::fs::remove_file(&path).unwrap(),
                _ => std::fs::File::options().write(true).open(&path).unwrap().set_len(10).unwrap(),
            }
            // A failed flush reverts its own writes, and no more.
            drop(black_box(vec![0u8; 5000]));
            session.flush();
            session.end()
        });
        let said = ends.each_mut().map(|end| end.as_mut().unwrap_err().to_string());
        assert!(said[0].contains("the file was deleted") && said[1].contains("the file was truncated"), "{said:?}");
    });
}
