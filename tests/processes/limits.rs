//! Resource limits of the system, and memtrace's own limits.

use std::fs;
use std::hint::black_box;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use memtrace::{Device, open, scope};

use crate::child::in_child;
use crate::support::{MIB, Raw, cpu};
use crate::training::{OUT, out};

/// A block whose stack depends on its number: at each level one of two lines makes the next call.
#[inline(never)]
fn at(number: u64, depth: u32) -> Raw {
    match (depth, number >> (depth % 64) & 1) {
        (0, _) => Raw::new(5000),
        (_, 0) => black_box(at(number, depth - 1)),
        _ => black_box(at(black_box(number), depth - 1)),
    }
}

#[test]
fn stacks_beyond_the_tables_limit_are_counted_for_their_session() {
    in_child(&[], || {
        let mut found = Vec::new();
        // More stacks than fit into the table, one of those that fit, and a new one.
        for numbers in [0..140_000, 0..1, 200_000..200_001] {
            let session = memtrace::builder().min_size(4096).max_entries(1000).stack_depth(256).start().unwrap();
            let kept = numbers.fold(None, |_, number| Some(at(number << 40, 250)));
            let snapshot = session.snapshot();
            let stack = cpu(&snapshot).live.last().unwrap().stack;
            found.push((snapshot.health.lost_stacks, snapshot.stacks.frames(stack).count() > 200));
            drop(kept);
        }
        assert!(found[0].0 > 0, "{found:?}");
        assert_eq!(found[1..], [(0, true), (1, false)]);
    });
}

fn set_limit(resource: libc::__rlimit_resource_t, bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the limit is a valid struct.
    assert_eq!(unsafe { libc::setrlimit(resource, &raw const limit) }, 0);
}

static SIGNALS: AtomicU64 = AtomicU64::new(0);

/// Counts signals of this kind.
fn count_signals(signal: i32) {
    extern "C" fn count(_: i32) {
        SIGNALS.fetch_add(1, Relaxed);
    }
    // SAFETY: the handler increments a number.
    unsafe { libc::signal(signal, count as *const () as libc::sighandler_t) };
}

fn files() -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(out()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_limit_on_the_size_of_files_costs_the_files_and_not_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let child = in_child(&[(OUT, dir.path().to_str().unwrap())], || {
        let [stream, dump] = ["streamed.memtrace", "dump.pickle"].map(|name| out().join(name).display().to_string());
        let session = memtrace::builder().min_size(0).stream(stream).dump_to(dump).dump_at_end(true).start().unwrap();
        set_limit(libc::RLIMIT_FSIZE, 8192);
        let kept: Vec<Raw> = (1..2000).map(Raw::new).collect();
        // At the end of `main`, as most programs do.
        std::mem::forget((session, kept));
    });
    assert!(child.said("cannot write"), "{child}");
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["streamed.memtrace"], "{child}");
    let _ = open(dir.path().join("streamed.memtrace")).unwrap();
}

#[test]
fn a_program_gets_the_signals_for_its_own_files_that_are_too_large_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    in_child(&[(OUT, dir.path().to_str().unwrap())], || {
        count_signals(libc::SIGXFSZ);
        let session = memtrace::builder().min_size(0).start().unwrap();
        let _kept: Vec<Raw> = (1..2000).map(Raw::new).collect();
        set_limit(libc::RLIMIT_FSIZE, 8192);
        let error = session.snapshot().write(out().join("a.pickle")).unwrap_err().to_string();
        assert!(error.contains("too large"), "{error}");
        assert_eq!((SIGNALS.load(Relaxed), files()), (0, vec![]));
        let mut own = fs::File::create(out().join("own")).unwrap();
        assert!(own.write_all(&[0; 10_000]).is_err());
        assert_eq!(SIGNALS.load(Relaxed), 1);
    });
}

/// The size of this process's address space in bytes.
fn address_space() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').next().unwrap().parse::<u64>().unwrap() * 4096
}

/// Records with a dump on a failed allocation, in a limited address space.
fn record_within(room: usize) -> memtrace::Session {
    // Symbols are read before the limit applies.
    drop(memtrace::start().unwrap().snapshot());
    set_limit(libc::RLIMIT_AS, address_space() + room as u64);
    let session = memtrace::builder().max_entries(1000).dump_on_oom(true);
    session.dump_to(out().join("dump.memtrace").display().to_string()).start().unwrap()
}

/// Takes all memory in small steps.
fn take_all() -> Vec<Vec<u8>> {
    let mut taken = Vec::new();
    loop {
        let mut next = Vec::new();
        if next.try_reserve_exact(4 * MIB).is_err() {
            return taken;
        }
        taken.push(next);
    }
}

#[test]
fn running_out_of_memory_in_small_steps_writes_a_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let child = in_child(&[(OUT, dir.path().to_str().unwrap())], || {
        let session = record_within(1500 * MIB);
        let taken = scope("takes all", take_all);
        set_limit(libc::RLIMIT_AS, libc::RLIM_INFINITY);
        let read = open(out().join("dump.memtrace")).unwrap();
        let device = read.device(Device::Cpu).unwrap();
        let live = device.live.iter().filter(|block| block.size == 4 * MIB as u64).count();
        assert_eq!(live, taken.len());
        assert!(live > 100, "{live}");
        drop(session);
    });
    assert!(child.said("after an allocation of 4.000 MiB failed"), "{child}");
}

#[test]
fn a_heap_that_runs_out_is_explained() {
    let child = in_child(&[], || {
        let session = memtrace::start().unwrap();
        let kept = vec![1_u8; 64 * MIB];
        // A request that no machine could fulfil is a mistake: it is not explained.
        assert!(Vec::<u8>::new().try_reserve_exact(1 << 46).is_err());
        set_limit(libc::RLIMIT_AS, address_space() + 600 * MIB as u64);
        assert!(Vec::<u8>::new().try_reserve_exact(2000 * MIB).is_err());
        assert!(Vec::<u8>::new().try_reserve_exact(3000 * MIB).is_err());
        let snapshot = session.snapshot();
        let device = snapshot.device(Device::Cpu).unwrap();
        assert_eq!(device.ooms.iter().map(|oom| oom.size).collect::<Vec<_>>(), [2000 * MIB as u64, 3000 * MIB as u64]);
        assert!(device.ooms[0].device_free.unwrap() <= 600 * MIB as u64);
        drop(kept);
    });
    for expected in ["the heap is out of memory", "2,097,152,000 bytes", "ulimit -v", "64.00 MiB", "limits.rs"] {
        assert!(child.said(expected), "{expected}: {child}");
    }
    assert_eq!(child.errors.matches("is out of memory").count(), 1, "{child}");
}

#[test]
fn a_dump_without_room_is_written_at_a_later_failure() {
    let dir = tempfile::tempdir().unwrap();
    let child = in_child(&[(OUT, dir.path().to_str().unwrap())], || {
        // Too little to set an emergency reserve aside.
        let _session = record_within(100 * MIB);
        let taken = take_all();
        assert_eq!(files(), [""; 0]);
        let _more = take_all();
        drop(taken);
        set_limit(libc::RLIMIT_AS, libc::RLIM_INFINITY);
        for _ in 0..2 {
            assert!(Vec::<u8>::new().try_reserve_exact(1 << 46).is_err());
        }
        assert_eq!(files(), ["dump.memtrace"]);
    });
    assert!(child.said("after an allocation of 64.00 TiB failed"), "{child}");
    assert_eq!(child.errors.matches("too little memory is left").count(), 1, "{child}");
}

#[test]
fn a_dump_that_fails_is_retried_several_times() {
    let dir = tempfile::tempdir().unwrap();
    let child = in_child(&[(OUT, dir.path().to_str().unwrap())], || {
        let is_refused = || assert!(Vec::<u8>::new().try_reserve_exact(1 << 46).is_err());
        let (in_the_way, dump) = (out().join("folder"), out().join("folder/dump.memtrace"));
        let record = || {
            let session = memtrace::builder().dump_on_oom(true).dump_to(dump.display().to_string()).start().unwrap();
            fs::write(&in_the_way, "").unwrap();
            session
        };
        let session = record();
        (0..10).for_each(|_| is_refused());
        drop(session);
        fs::remove_file(&in_the_way).unwrap();
        let _session = record();
        is_refused();
        fs::remove_file(&in_the_way).unwrap();
        is_refused();
        assert!(dump.exists());
    });
    assert_eq!(child.errors.matches("the snapshot is lost").count(), 4, "{child}");
}

#[test]
fn messages_have_visible_names() {
    let dir = tempfile::tempdir().unwrap();
    let variables = [(OUT, dir.path().to_str().unwrap()), ("MEMTRACE_\u{1b}\n::error::a", "1")];
    let child = in_child(&variables, || {
        let dump = out().join("b\u{1b}[2J\n::error::c\u{202e}.memtrace");
        let session = memtrace::builder().dump_on_oom(true).dump_to(dump.display().to_string()).start().unwrap();
        assert!(Vec::<u8>::new().try_reserve_exact(1 << 45).is_err());
        drop(session);
    });
    let path = "b\\u{1b}[2J\\n::error::c\\u{202e}.memtrace after an allocation";
    assert!(child.said("MEMTRACE_\\u{1b}\\n::error::a") && child.said(path), "{child}");
    assert!(!child.errors.contains(['\u{1b}', '\u{202e}']), "{child}");
    assert!(!child.errors.lines().any(|line| line.starts_with("::")), "{child}");
}
