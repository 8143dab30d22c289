//! Streams with a budget whose program is killed, and read meanwhile, against the states of a known program.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use memtrace::open;
use memtrace::snapshot::{Block, DeviceSnapshot};

use super::{Folder, SMALL, check_log};
use crate::child::{command_of, copy_of_this_program, if_child, test_name};
use crate::known::{KnownProgram, KnownStep};
use crate::support::{MIB, Raw, alone};

/// Runs the program without end, and says on stdout how many of its steps were done, and how many are in the file.
fn runs_until_killed() {
    let path = std::env::var("TEST_OUT").unwrap();
    let session = memtrace::builder().min_size(MIB).stream(path).stream_budget(SMALL).start().unwrap();
    let (mut program, mut blocks, mut done) = (KnownProgram::new(1), Vec::new(), 0u64);
    loop {
        for _ in 0..40 {
            match program.next() {
                KnownStep::Alloc(size) => blocks.push(Raw::new(size * MIB)),
                KnownStep::Free(at) => drop(blocks.swap_remove(at)),
            }
        }
        done += 40;
        println!("done {done}");
        session.flush();
        println!("kept {done}");
    }
}

/// The states of the known program, as far as they were asked for.
struct KnownStates {
    program: KnownProgram,
    records: u64,
    peak: usize,
    at_peak: Vec<usize>,
}

impl KnownStates {
    fn check(&mut self, device: &DeviceSnapshot) -> u64 {
        let stats = device.stats.allocations;
        let records = stats.allocated + stats.freed;
        assert!(records >= self.records, "an older state than before");
        while self.records < records {
            self.records += 1;
            self.program.next();
            let bytes = self.program.sizes.iter().sum();
            if bytes > self.peak {
                (self.peak, self.at_peak) = (bytes, self.program.sizes.clone());
            }
        }
        let sizes = |blocks: &[Block]| {
            let mut sizes: Vec<usize> = blocks.iter().map(|block| block.size as usize / MIB).collect();
            sizes.sort_unstable();
            sizes
        };
        let sorted = |sizes: &[usize]| {
            let mut sizes = sizes.to_vec();
            sizes.sort_unstable();
            sizes
        };
        assert_eq!(sizes(&device.live), sorted(&self.program.sizes), "after {records} records");
        assert_eq!(device.peak.bytes, (self.peak * MIB) as u64);
        assert_eq!(sizes(&device.peak.blocks), sorted(&self.at_peak));
        check_log(device);
        records
    }
}

#[test]
fn a_kill_at_any_moment_loses_at_most_the_last_commit() {
    if_child(runs_until_killed);
    // Files are read whole, which a recording of another test would see.
    let _alone = alone();
    let times = std::env::var("MEMTRACE_TEST_KILLS").ok().and_then(|times| times.parse().ok()).unwrap_or(6u64);
    let programs = tempfile::tempdir().unwrap();
    let (copy, program) = (programs.path().join("copy"), programs.path().join("program"));
    copy_of_this_program(&copy);
    let (mut lost, mut most_lost, mut reads, mut rotated, mut random) = (0, 0, 0, 0, 88172645463325252u64);
    for time in 0..times {
        let folder = Folder::new();
        let out = folder.stream().display().to_string();
        fs::hard_link(&copy, &program).unwrap();
        let mut child = command_of(&program, &test_name());
        let mut child = child.env("TEST_OUT", &out).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.next().is_some(), "the program is loaded");
        // Without it there are no names of functions to look for, so that there are many reads.
        fs::remove_file(&program).unwrap();
        let said = std::thread::spawn(move || {
            let (mut done, mut kept) = (0u64, 0u64);
            for line in lines.map_while(Result::ok) {
                match line.split_once(' ') {
                    Some(("done", number)) => done = number.parse().unwrap(),
                    Some(("kept", number)) => kept = number.parse().unwrap(),
                    _ => {}
                }
            }
            (done, kept)
        });
        let read = || open(&out);
        while read().is_err() {
            assert!(child.try_wait().unwrap().is_none(), "it runs until it is killed");
            std::thread::yield_now();
        }
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let until = Instant::now() + Duration::from_micros(random % 400_000);
        let mut states = KnownStates { program: KnownProgram::new(1), records: 0, peak: 0, at_peak: Vec::new() };
        // However slow the machine is, the first program is killed after a part was deleted.
        while Instant::now() < until || time == 0 && folder.part(1).exists() {
            // The device is in the file with its first record.
            if let Some(device) = read().unwrap().devices.first() {
                states.check(device);
                reads += 1;
            }
            assert!(folder.bytes() <= SMALL);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let (done, kept) = said.join().unwrap();
        let data = read().unwrap();
        let found = data.devices.first().map_or(0, |device| states.check(device));
        for part in folder.parts() {
            // One that had just been created may be empty.
            if memtrace::Snapshot::parse(&fs::read(&part).unwrap()).is_ok() {
                let _ = open(&part).unwrap();
            }
        }
        assert!(found >= kept && found <= done + 40, "{kept} were kept, {found} found, {done} done");
        rotated += u64::from(!folder.part(1).exists());
        lost += done.saturating_sub(found);
        most_lost = most_lost.max(done.saturating_sub(found));
    }
    println!(
        "{times} kills, {rotated} after a part was deleted, {reads} reads meanwhile; lost {lost} records in all, at most \
         {most_lost} by one kill"
    );
    assert!(rotated > 0, "in no run was a part deleted");
}
