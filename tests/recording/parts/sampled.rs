//! A stream with a budget of a recording that samples: what was counted, and the sample's estimates, are the whole run's.

use memtrace::snapshot::DeviceSnapshot;

use super::{Folder, SMALL, check_log};
use crate::support::{MIB, Raw, alone, cpu};

/// Addresses with the bytes and the number of blocks that each stands for.
fn weights(device: &DeviceSnapshot) -> [Vec<(u64, String)>; 2] {
    let of = |(block, weight): (&memtrace::snapshot::Block, _)| (block.address, format!("{weight:?}"));
    [device.live_weights().map(of).collect(), device.peak_weights().map(of).collect()]
}

#[test]
fn estimates_are_those_of_the_whole_run() {
    let _alone = alone();
    let folder = Folder::new();
    let path = folder.stream().display().to_string();
    let builder = memtrace::builder().min_size(MIB / 4).sample_interval(MIB).stream(path);
    let session = builder.stream_budget(SMALL).start().unwrap();
    let early: Vec<Raw> = (0..60).map(|n| Raw::new(MIB / 4 + n * 10_007)).collect();
    drop(early);
    let mut kept = Vec::new();
    for n in 0..20_000 {
        let block = Raw::new(MIB / 4 + n * 7919 % MIB);
        if n % 1000 == 0 {
            kept.push(block);
            session.flush();
        }
    }
    let snapshot = session.snapshot();
    session.end().unwrap();
    let read = folder.read();
    let (whole, read) = (cpu(&snapshot), cpu(&read));
    assert!(!folder.part(1).exists() && read.overwritten > 0);
    assert_eq!(weights(read), weights(whole));
    assert_eq!((read.stats, &read.sampling), (whole.stats, &whole.sampling));
    assert!(weights(whole)[1].len() > 10 && whole.peak.bytes > 20 << 20, "the peak is the early one");
    check_log(read);
    drop(kept);
}
