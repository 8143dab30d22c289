//! Single cases of the format, one for each limit and field that other tests do not vary.

use std::num::NonZeroU64;

use super::bytes::{Ids, Payload, Reader};
use super::codec::{device, device_number};
use super::gaps::{Skip, bridge, close_scopes};
use super::limits::{Budget, DEEPEST, MOST_DEVICES, paths, stacks};
use super::*;
use crate::snapshot::testing::{frame, stacks as table};
use crate::snapshot::{
    Block, BlockName, Category, ContextId, ContextNode, Device, DeviceSnapshot, Gap, LONGEST_NAME, Launcher, Mark,
    Operands, Process, Record, RecordKind, ScopeStats, Settings, SnapshotData, StackId, Thread, ThreadId,
};

/// A file that `fill` writes, with a commit at the end.
fn written(fill: impl FnOnce(&mut Encoder<Vec<u8>>) -> std::io::Result<()>) -> SnapshotData {
    let mut encoder = Encoder::begin(Vec::new()).unwrap();
    fill(&mut encoder).unwrap();
    encoder.commit(&Commit::default()).unwrap();
    read(encoder.out()).unwrap().data
}

fn block(seq: u64, address: u64, time_ns: u64) -> Block {
    Block { address, size: 10, seq: NonZeroU64::new(seq), time_ns, ..Block::default() }
}

#[test]
fn every_device_has_a_number_of_its_own() {
    let devices = [Device::Cpu, Device::Cuda(0), Device::Cuda(1023), Device::Pinned, Device::Managed, Device::Imported];
    assert_eq!(devices.map(device_number), [0, 1, 1024, 1025, 1026, 1027]);
    assert_eq!(devices.map(|it| device(device_number(it)).ok()), devices.map(Some));
}

#[test]
fn a_process_may_have_1024_devices() {
    let devices = (0..=1022).map(Device::Cuda).chain([Device::Cpu, Device::Pinned]);
    let read = |count| {
        let mut encoder = Encoder::begin(Vec::new()).unwrap();
        devices.clone().take(count).for_each(|device| encoder.live(device, &[]).unwrap());
        encoder.commit(&Commit::default()).unwrap();
        read(encoder.out()).map(|capture| capture.data.devices.len()).map_err(|error| error.to_string())
    };
    assert_eq!(read(MOST_DEVICES), Ok(1024));
    assert!(read(MOST_DEVICES + 1).unwrap_err().contains("more devices"));
}

#[test]
fn paths_of_scopes_take_the_bytes_that_they_have_and_are_4096_deep() {
    let child = |name: &str, parent| ContextNode { parent: ContextId(parent), name: name.into(), module: false };
    let contexts = [child("", 0), child("ab", 0), child("cde", 1)];
    // `ab` and `ab > cde`, each name with four bytes.
    assert!(paths(&contexts, &mut Budget::exactly(6 + 13)).is_ok());
    assert!(paths(&contexts, &mut Budget::exactly(6 + 12)).is_err());
    let chain = |depth| [0].into_iter().chain(0..depth).map(|parent| child("", parent)).collect::<Vec<_>>();
    assert!(paths(&chain(DEEPEST), &mut Budget::exactly(usize::MAX)).is_ok());
    assert!(paths(&chain(DEEPEST + 1), &mut Budget::exactly(usize::MAX)).is_err());
}

#[test]
fn stacks_take_the_bytes_of_their_names() {
    let frames = vec![frame("abc", "de", 0), frame(&"x".repeat(200), "", 0)];
    let data = SnapshotData { stacks: table(frames, [&[0][..], &[0, 1]]), ..SnapshotData::default() };
    let check =
        |any, bytes| stacks(&data, &StoredNames { any, ..StoredNames::default() }, &mut Budget::exactly(bytes)).is_ok();
    let known = 21 + 21 + 216;
    assert!(check(true, known) && !check(true, known - 1));
    let unknown = 160 + 160 + 216;
    assert!(check(false, unknown) && !check(false, unknown - 1));
}

#[test]
fn what_is_known_of_a_process_stays_if_it_is_described_again() {
    let launcher = Launcher { world_size: Some(8), ..Launcher::default() };
    let process = Process {
        threads: vec![Thread { number: ThreadId(1), os_id: 5, name: "main".into() }],
        launcher,
        ..Process::default()
    };
    let again = Process { program: "later".into(), ..Process::default() };
    let data = written(|to| {
        to.process(&process)?;
        to.threads(&process.threads)?;
        to.process(&again)
    });
    assert_eq!((&data.process.threads, &data.process.launcher), (&process.threads, &process.launcher));
    assert_eq!(data.process.program, "later");
}

/// A list that claims one operand too many is refused, even if the file has only as many as it may have.
#[test]
fn operands_are_at_most_as_many_as_a_block_may_have() {
    let read = |claimed: usize| {
        let mut p = Payload::default();
        p.raw(claimed as u64);
        (0..Operands::MOST).for_each(|_| p.step(0, 0));
        let mut r = Reader::new(&p.bytes, Ids::default());
        r.get::<Operands>().is_ok()
    };
    assert!(read(Operands::MOST) && !read(Operands::MOST + 1));
}

/// Only the newest records are written. A gap keeps its place among them.
#[test]
fn gaps_keep_their_places_if_older_records_are_left_out() {
    let records: Vec<Record> = (1..=6).map(|seq| Record::alloc_of(&block(seq, 100 * seq, seq))).collect();
    let gap = |at| Gap { at, records: 7, from_ns: 2, to_ns: 3 };
    let device = DeviceSnapshot { records, gaps: vec![gap(1), gap(4)], ..DeviceSnapshot::default() };
    let mut bytes = Vec::new();
    write(&SnapshotData { devices: vec![device], ..SnapshotData::default() }, 4, &mut bytes).unwrap();
    let read = &read(&bytes).unwrap().data.devices[0];
    assert_eq!((read.records.len(), &read.gaps), (4, &vec![gap(2)]));
}

#[test]
fn a_gap_may_be_at_the_end_of_the_log_and_without_duration() {
    let gap = |at, from_ns| Gap { at, records: 7, from_ns, to_ns: 3 };
    let read = |gap| {
        let device = DeviceSnapshot {
            records: vec![Record::alloc_of(&block(1, 100, 1))],
            gaps: vec![gap],
            ..DeviceSnapshot::default()
        };
        let mut bytes = Vec::new();
        write(&SnapshotData { devices: vec![device], ..SnapshotData::default() }, 4, &mut bytes).unwrap();
        read(&bytes).is_ok()
    };
    assert!(read(gap(1, 3)) && read(gap(0, 2)) && !read(gap(2, 3)) && !read(gap(1, 4)));
}

/// If a log lacks records, statistics of scopes do not follow from it.
#[test]
fn scopes_of_a_log_that_lacks_records_stay_if_records_follow() {
    let scope = ScopeStats { context: ContextId(1), calls: 5, ..ScopeStats::default() };
    let read = |skips: bool, overwritten| {
        let data = written(|to| {
            to.contexts(&[ContextNode { parent: ContextId::ROOT, name: "a".into(), module: false }])?;
            to.gap(Device::Cpu, overwritten)?;
            to.live(Device::Cpu, &[])?;
            if skips {
                to.skipped(Device::Cpu, 9, 0, 1)?;
                to.live(Device::Cpu, &[])?;
            }
            to.scopes(Device::Cpu, &[scope])?;
            to.records(Device::Cpu, &[Record::alloc_of(&block(1, 100, 5))])?;
            to.counters(Device::Cpu, &Counters::default())
        });
        data.devices[0].scopes == [scope]
    };
    assert!(read(true, 0) && read(false, 3) && !read(false, 0));
}

/// The program freed its only block after the peak, and the log has no records.
#[test]
fn the_peak_of_a_sample_may_have_more_blocks_than_the_log_and_its_end() {
    let settings = Settings { sample_interval: NonZeroU64::new(1 << 20), ..Settings::default() };
    let mut counters = Counters::default();
    counters.peak.bytes = settings.sampling(Device::Cpu).bytes(10);
    let data = written(|to| {
        to.settings(&settings)?;
        to.gap(Device::Cpu, 2)?;
        to.live(Device::Cpu, &[])?;
        to.peak(Device::Cpu, &[block(1, 100, 5)])?;
        to.counters(Device::Cpu, &counters)
    });
    assert_eq!((data.devices[0].peak.blocks.len(), data.devices[0].live.len()), (1, 0));
}

/// The first records are skipped, so only the blocks that are live after them are known.
#[test]
fn a_log_may_begin_with_skipped_records() {
    let data = written(|to| {
        to.skipped(Device::Cpu, 9, 0, 5)?;
        to.live(Device::Cpu, &[block(3, 100, 4)])?;
        to.counters(Device::Cpu, &Counters::default())
    });
    assert_eq!(data.devices[0].records, [Record::alloc_of(&block(3, 100, 4))]);
}

#[test]
fn a_second_gap_adds_the_records_before_it() {
    let records = [1, 2].map(|seq| Record::alloc_of(&block(seq, 100 * seq, seq)));
    let data = written(|to| {
        to.gap(Device::Cpu, 5)?;
        to.live(Device::Cpu, &[])?;
        to.records(Device::Cpu, &records)?;
        to.gap(Device::Cpu, 3)?;
        to.live(Device::Cpu, &[])
    });
    assert_eq!((data.devices[0].overwritten, data.devices[0].records.len()), (10, 0));
}

#[test]
fn names_have_up_to_256_bytes_and_lost_ones_count_alone() {
    let name = |length| BlockName { seq: NonZeroU64::MIN, name: "x".repeat(length), category: Category::Unknown };
    let data = written(|to| to.names(Device::Cpu, &[name(LONGEST_NAME)], 0));
    assert_eq!(data.devices[0].names, [name(256)]);
    let data = written(|to| to.names(Device::Cpu, &[], 3));
    assert_eq!((data.devices[0].lost_names, data.devices[0].names.len()), (3, 0));
}

#[test]
fn a_peak_at_the_start_has_no_blocks_of_the_log() {
    let data = written(|to| {
        to.live(Device::Cpu, &[])?;
        to.records(Device::Cpu, &[Record::alloc_of(&block(1, 100, 5))])?;
        let mut counters = Counters::default();
        (counters.peak.bytes, counters.peak.not_recorded) = (50, 50);
        to.counters(Device::Cpu, &counters)
    });
    assert_eq!((data.devices[0].peak.bytes, data.devices[0].peak.blocks.len()), (50, 0));
}

/// Of skipped records only the live blocks behind them are known.
#[test]
fn a_gap_frees_what_is_gone_and_allocates_what_is_new() {
    let (gone, stayed) = (Block { stack: StackId(7), ..block(1, 100, 10) }, block(2, 200, 20));
    let (reused, old) = (block(4, 100, 45), block(3, 300, 15));
    let skip = |live| Skip { at: 2, marks_at: 0, records: 9, marks: 0, to_ns: 50, live: Some(live) };
    let records = [gone, stayed].map(|block| Record::alloc_of(&block));
    let (log, gaps) = bridge(&records, &[skip(vec![old, stayed, reused])], &[], 0);
    assert_eq!(gaps, [Gap { at: 2, records: 9, from_ns: 20, to_ns: 50 }]);
    let [.., free, first, second] = &log[..] else { panic!("{log:?}") };
    assert_eq!((free.kind, free.address, free.time_ns), (RecordKind::Free, 100, 20));
    assert_eq!((free.stack, free.alloc_stack), (StackId::NONE, StackId(7)));
    assert_eq!((first.address, first.time_ns, second.address, second.time_ns), (300, 20, 100, 45));
}

#[test]
fn skipped_marks_close_the_open_scopes_inside_out() {
    let mark = |time_ns, context, enter| Mark { time_ns, context: ContextId(context), thread: ThreadId(1), enter };
    let marks = [mark(1, 1, true), mark(2, 2, true), mark(3, 3, true), mark(4, 3, false), mark(90, 1, true)];
    let skip = |marks| Skip { at: 0, marks_at: 4, records: 1, marks, to_ns: 50, live: None };
    let gap = Gap { at: 0, records: 1, from_ns: 40, to_ns: 50 };
    let closed = close_scopes(&marks, &[skip(1)], &[gap]);
    assert_eq!(closed, [&marks[..4], &[mark(40, 2, false), mark(40, 1, false), marks[4]]].concat());
    assert_eq!(close_scopes(&marks, &[skip(0)], &[gap]), marks);
    // A scope cannot be left before it was entered.
    let closed = close_scopes(&marks, &[skip(1)], &[Gap { from_ns: 0, ..gap }]);
    assert_eq!(closed[4..6], [mark(2, 2, false), mark(1, 1, false)]);
}
