//! Limits: a full disk, a budget that live blocks fill, and a long run.

use std::fs;
use std::time::{Duration, Instant};

use memtrace::analysis::{Growth, Key};
use memtrace::{DeviceView, Snapshot};

use super::{Folder, Oracle, SMALL, check_log};
use crate::child::in_child;
use crate::support::{MIB, Raw, alone, cpu};

#[expect(unsafe_code, reason = "`setrlimit` is a C function")]
fn limit_files_to(bytes: u64) {
    // SAFETY: it reads the structure only.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &libc::rlimit { rlim_cur: bytes, rlim_max: u64::MAX }) };
    assert_eq!(set, 0);
}

#[test]
fn a_disk_that_is_full_for_a_while_costs_a_gap() {
    let _alone = alone();
    let child = in_child(&[], || {
        let folder = Folder::new();
        let path = folder.stream().display().to_string();
        let builder = memtrace::builder().min_size(MIB).max_entries(64).stream(path);
        let session = builder.stream_budget(SMALL).start().unwrap();
        let mut oracle = Oracle::default();
        let mut kept = vec![oracle.new_block(5)];
        let mut count = |oracle: &mut Oracle, rounds: usize| {
            for _ in 0..rounds {
                oracle.come_and_go(10);
                kept.push(oracle.new_block(1));
                oracle.free(kept.swap_remove(0));
                session.flush();
            }
        };
        count(&mut oracle, 100);
        // Too little for a commit.
        for rounds in [vec![1; 60], vec![100]].concat() {
            let before = folder.files();
            limit_files_to(100);
            count(&mut oracle, rounds);
            assert!(folder.files().iter().all(|file| before.contains(file)), "nothing half-written stays");
            limit_files_to(u64::MAX);
            count(&mut oracle, 1);
        }
        count(&mut oracle, 20);
        std::thread::sleep(Duration::from_millis(1100));
        count(&mut oracle, 20);
        let read = folder.read();
        oracle.check(cpu(&read));
        check_log(cpu(&read));
        // Of the 2200 records all but those that fit into the ring buffer are missing.
        let missing: u64 = cpu(&read).gaps.iter().map(|gap| gap.records).sum();
        assert!(missing > 2000, "{:?}", cpu(&read).gaps);
        session.end().unwrap();
        oracle.check(cpu(&folder.read()));
    });
    assert!(child.said("cannot write"), "{child}");
}

/// Somebody's file has the next part's name, so a part is due when the disk is full already.
#[test]
fn a_beginning_that_the_disk_has_no_room_for_leaves_no_file() {
    let _alone = alone();
    let child = in_child(&[], || {
        let folder = Folder::new();
        let session = folder.begin(SMALL);
        let mut oracle = Oracle::default();
        std::fs::write(folder.part(2), "somebody's").unwrap();
        while folder.part(1).metadata().unwrap().len() < SMALL / 8 {
            oracle.come_and_go(20);
            session.flush();
        }
        limit_files_to(100);
        std::thread::sleep(Duration::from_millis(1100));
        session.flush();
        assert!(!folder.part(3).exists(), "half of a part");
        limit_files_to(u64::MAX);
        std::thread::sleep(Duration::from_millis(1100));
        session.flush();
        assert!(folder.part(3).exists());
        fs::remove_file(folder.part(2)).unwrap();
        oracle.check(cpu(&folder.read()));
        session.end().unwrap();
    });
    assert!(child.said("cannot create") && child.said("cannot write"), "{child}");
}

#[test]
fn live_blocks_that_need_more_than_half_of_the_budget_stop_the_log_until_there_are_fewer() {
    let _alone = alone();
    let child = in_child(&[], || {
        let folder = Folder::new();
        let path = folder.stream().display().to_string();
        let session = memtrace::builder().min_size(1024).stream(path).stream_budget(SMALL).start().unwrap();
        let many: Vec<Raw> = (0..20_000).map(|_| Raw::new(1024)).collect();
        for _ in 0..20 {
            session.flush();
            assert!(folder.bytes() <= SMALL);
        }
        let stopped = folder.read();
        assert!(cpu(&stopped).live.len() < 20_000, "all {} are there", cpu(&stopped).live.len());
        check_log(cpu(&stopped));
        drop(many);
        let kept = Raw::new(4 * MIB);
        let live = |read: &Snapshot| cpu(read).live.iter().any(|block| block.size == 4 * MIB as u64);
        std::thread::sleep(Duration::from_millis(1100));
        session.flush();
        assert!(!live(&folder.read()), "the peak's blocks are still too many");
        assert!(folder.bytes() <= SMALL);
        drop((session, kept));
    });
    assert!(child.said("has no room"), "{child}");
}

/// Resident bytes of this process.
fn resident() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// The log has all records of the newest time, and older ones go.
#[test]
fn a_limit_by_time_keeps_the_newest_records() {
    let _alone = alone();
    let folder = Folder::new();
    let path = folder.stream().display().to_string();
    let kept_for = Duration::from_millis(800);
    let builder = memtrace::builder().min_size(MIB).stream(path).stream_time(kept_for);
    let mut oracle = Oracle::default();
    let session = builder.start().unwrap();
    let early = oracle.new_block(9);
    oracle.free(early);
    let began = Instant::now();
    // On a slow machine several may go at once.
    while (1..4).any(|part| folder.part(part).exists()) {
        oracle.come_and_go(1);
        std::thread::sleep(Duration::from_millis(1));
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", folder.files());
    }
    session.flush();
    let read = folder.read();
    session.end().unwrap();
    oracle.check(cpu(&read));
    check_log(cpu(&read));
    let device = cpu(&read);
    assert!(device.overwritten > 0 && device.gaps.is_empty());
    let age = read.process.duration_ns - device.records[0].time_ns;
    assert!(age >= kept_for.as_nanos() as u64, "{age} ns of {kept_for:?}");
    assert_eq!(device.older.iter().map(|time| time.records).sum::<u64>(), device.overwritten);
    assert_eq!(device.older[0].highest - device.not_recorded, 9 * MIB as u64);
}

#[inline(never)]
fn leaks(kept: &mut Vec<Vec<u8>>) {
    kept.push(vec![1; 1024]);
}

/// `MEMTRACE_TEST_RECORDS` records, by requests of a service that leaks 1 KiB in one of `MEMTRACE_TEST_EVERY` of them.
#[test]
fn a_long_run_stays_within_its_budget_and_its_growth_is_found() {
    let _alone = alone();
    let number = |name: &str, unset: u64| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(unset);
    let (records, budget) = (number("MEMTRACE_TEST_RECORDS", 2_000_000), number("MEMTRACE_TEST_BUDGET", 8 << 20));
    let every = number("MEMTRACE_TEST_EVERY", 500).to_string();
    let variables = [("TEST_EVERY", every), ("TEST_RECORDS", records.to_string()), ("TEST_BUDGET", budget.to_string())];
    let variables: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let child = in_child(&variables, || {
        let (records, budget, every) = (number("TEST_RECORDS", 0), number("TEST_BUDGET", 0), number("TEST_EVERY", 1));
        let folder = Folder::new();
        let path = folder.stream().display().to_string();
        // The log's memory is in use long before the middle of the run.
        let builder = memtrace::builder().max_entries(1 << 18).stream(path);
        let session = builder.stream_budget(budget).start().unwrap();
        let mut kept = Vec::with_capacity((records / every) as usize + 1);
        let early = vec![1u8; 16 * MIB];
        let expected = 16 * MIB as u64;
        drop(std::hint::black_box(early));
        let (mut disk, mut memory, began) = (Vec::new(), Vec::new(), Instant::now());
        for request in 0..records / 2 {
            drop(std::hint::black_box(vec![0u8; 4096]));
            if request % every == 0 {
                leaks(&mut kept);
            }
            // An optimized build fills the ring buffer faster than ten times a second.
            if request % 50_000 == 0 {
                session.flush();
            }
            if request % (records / 40) == 0 {
                disk.push(folder.bytes());
                memory.push(resident());
            }
        }
        println!("{records} records in {:?}", began.elapsed());
        println!("disk {:?} KiB", disk.iter().map(|bytes| bytes >> 10).collect::<Vec<_>>());
        println!("resident {:?} KiB", memory.iter().map(|bytes| bytes >> 10).collect::<Vec<_>>());
        session.end().unwrap();
        assert!(folder.bytes() <= budget && disk.iter().all(|bytes| *bytes <= budget));
        // From the middle on, beside what the program leaks.
        let (middle, last) = (memory[memory.len() / 2], memory[memory.len() - 1]);
        let leaked: u64 = kept.iter().map(|block| block.len() as u64).sum();
        assert!(last < middle + leaked + (4 << 20), "{middle} bytes in the middle, {last} at the end");
        let read = folder.read();
        let device = cpu(&read);
        assert!(device.overwritten > 0);
        let largest = device.peak.blocks.iter().map(|block| block.size).max();
        assert_eq!(largest, Some(expected));
        assert!((expected..expected + (1 << 20)).contains(&device.peak.bytes), "{}", device.peak.bytes);
        let growth = Growth::of(&DeviceView::of(&read, device), Key::Line);
        println!("{} records in the log, {} before it; {:?}", device.records.len(), device.overwritten, growth.rows);
        println!("gaps {:?}", device.gaps);
        if device.gaps.is_empty() {
            let row = growth.rows.first().unwrap();
            assert!(row.label.contains("leaks") && row.label.contains("limits.rs"), "{:?}", growth.rows);
            // The warm-up is the first quarter; the log alone is less.
            assert!(growth.older > 0 && (leaked / 2..leaked).contains(&row.risen), "{leaked}: {growth:?}");
        }
        println!("flat");
    });
    println!("{child}");
    assert!(child.said("flat"), "{child}");
}
