//! Streams on a disk that is full at each call in turn, with a budget and without.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use memtrace::{Device, Error, Snapshot};

use super::{Folder, Oracle, SMALL, check_log};
use crate::disk::Disk;
use crate::full_disk::Failing;
use crate::support::{MIB, Raw, cpu};

/// Records a program that flushes often; the error of the start, or that of the end.
fn recorded(folder: &Folder, budget: Option<u64>, oracle: &mut Oracle, kept: &mut Vec<Raw>) -> Result<(), Error> {
    let builder = memtrace::builder().min_size(MIB).stream(folder.stream().display().to_string());
    let builder = budget.into_iter().fold(builder, |builder, budget| builder.stream_budget(budget));
    let session = builder.start()?;
    for _ in 0..8 {
        oracle.come_and_go(if budget.is_some() { 100 } else { 20 });
        kept.push(oracle.new_block(1));
        session.flush();
    }
    session.end()
}

/// What the stream has, or the newest part of it alone, without names; `None` if no file is there.
fn read(folder: &Folder) -> Option<Snapshot> {
    let number = |path: &PathBuf| path.display().to_string().rsplit('.').nth(1).and_then(|n| n.parse::<u64>().ok());
    let newest = folder.files().into_iter().max_by_key(number)?;
    Some(Snapshot::parse(&fs::read(newest).unwrap()).unwrap())
}

/// What is in the file at a moment that the oracle has passed; at the end, if only syncing it failed.
fn check_beginning(read: &Snapshot, oracle: &Oracle) {
    if !read.health.cut_off {
        return oracle.check(cpu(read));
    }
    // Before the first flush there is none.
    let Some(device) = read.device(Device::Cpu) else { return };
    check_log(device);
    let live: u64 = device.live.iter().map(|block| block.size).sum();
    assert_eq!(live + device.not_recorded, device.stats.allocated_bytes.current);
    assert!(device.stats.allocations.allocated <= oracle.allocs);
}

/// Checks what is there after a run, and says what that is.
fn checked(ended: Result<(), Error>, read: Option<Snapshot>, oracle: &Oracle, case: &str) -> &'static str {
    let Err(error) = ended else {
        let read = read.expect(case);
        oracle.check(cpu(&read));
        check_log(cpu(&read));
        assert!(!read.health.cut_off, "{case}");
        return "whole";
    };
    let text = error.to_string();
    assert!(text.contains("/run.") && text.contains("No space left"), "{case}");
    match read {
        Some(read) => check_beginning(&read, oracle),
        None => assert_eq!(oracle.allocs, 0, "{case}"),
    }
    if oracle.allocs == 0 { "refused" } else { "beginning" }
}

/// The outcomes of all numbers of the call that fails.
fn sweep(disk: &Disk, budget: Option<u64>, failing: Failing) -> BTreeMap<&'static str, u64> {
    let mut outcomes = BTreeMap::new();
    for number in 1.. {
        let (folder, mut oracle, mut kept) = (Folder::new(), Oracle::default(), Vec::new());
        disk.fails(folder.0.path(), number, failing);
        let ended = recorded(&folder, budget, &mut oracle, &mut kept);
        let failed = disk.works() > 0;
        let case = format!("budget {budget:?}, {failing:?}, call {number}: {ended:?}");
        let read = read(&folder);
        assert!(oracle.allocs > 0 || read.is_none(), "{case}: a file that says nothing is left");
        *outcomes.entry(checked(ended, read, &oracle, &case)).or_default() += 1;
        if !failed {
            return outcomes;
        }
    }
    unreachable!("a disk is full at some call only")
}

#[test]
fn a_disk_that_is_full_at_any_call_costs_a_stream_nothing_that_was_there() {
    Disk::in_child(|disk| {
        for budget in [None, Some(SMALL)] {
            let once = sweep(disk, budget, Failing::Once);
            let for_ever = sweep(disk, budget, Failing::FromThenOn);
            eprintln!("budget {budget:?}: full once {once:?}, from then on {for_ever:?}");
            // A flush that failed is made up for by the next one.
            assert!(once["whole"] >= 5 && for_ever["whole"] == 1 && for_ever["beginning"] >= 5);
        }
    });
}

#[test]
fn an_interrupted_stream_is_whole() {
    Disk::in_child(|disk| {
        for budget in [None, Some(SMALL)] {
            let (folder, mut oracle, mut kept) = (Folder::new(), Oracle::default(), Vec::new());
            disk.fails(folder.0.path(), 1, Failing::Interrupted);
            recorded(&folder, budget, &mut oracle, &mut kept).unwrap();
            disk.works();
            let read = folder.read();
            oracle.check(cpu(&read));
            assert!(!read.health.cut_off && cpu(&read).gaps.is_empty());
        }
    });
}
