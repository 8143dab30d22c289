//! Property tests: random programs on four threads, compared with a naive account (the oracle).
//!
//! Invariants for every program and every size of the log:
//! 1. The live set, the counters and the peak with its live set equal the oracle's, to the byte.
//! 2. The log, replayed from its start, passes through the oracle's states and ends in the live set.
//! 3. While no record was overwritten, the largest state of the replay is the peak.
//! 4. The rows of every breakdown add up to the peak.
//!
//! So it is at the end and at moments before, in snapshots and in the file of a stream.

mod oracle;
mod program;

use std::collections::BTreeMap;

use memtrace::analysis::Key;
use memtrace::snapshot::{Block, DeviceSnapshot, RecordKind, Replay};
use memtrace::{Device, DeviceView, Session, SnapshotData, analysis};
use proptest::prelude::*;

use self::oracle::{Known, Oracle};
use self::program::{Program, Step, step};
use crate::support::{MIB, Reader, alone, cpu};
use crate::ticks::Ticks;

fn known(data: &SnapshotData, blocks: &[Block]) -> Vec<Known> {
    blocks.iter().map(|block| (block.address, block.size, data.context_path(block.context))).collect()
}

/// What happens beside the program.
#[derive(Clone, Debug)]
struct Beside {
    /// During so many steps another thread holds the ledger much of the time. Events wait from then on, because they come from
    /// several threads.
    contended: usize,
    /// After so many steps each time there is a look at the recording.
    looks: usize,
    /// Ten thousand signals a second interrupt each of the program's threads.
    signals: bool,
}

fn beside() -> impl Strategy<Value = Beside> {
    let (contended, looks) = (prop::sample::select(vec![0usize, 8, 100]), prop::sample::select(vec![7usize, 100]));
    (contended, looks, any::<bool>()).prop_map(|(contended, looks, signals)| Beside { contended, looks, signals })
}

fn check(steps: Vec<Step>, max_entries: usize, beside: &Beside) {
    check_with(memtrace::builder().max_entries(max_entries), steps, max_entries, beside, |session| {
        (*session.snapshot()).clone()
    });
}

/// The program with this recording; `look` says what is known of it.
fn check_with(
    options: memtrace::Builder,
    steps: Vec<Step>,
    max_entries: usize,
    beside: &Beside,
    look: impl Fn(&Session) -> SnapshotData,
) {
    let _alone = alone();
    let _ticks = beside.signals.then(Ticks::begin);
    let mut program = Program::new(beside.signals);
    let session = options.min_size(MIB).start().unwrap();
    let base = memtrace::stats(Device::Cpu).allocated_bytes.current;
    let mut reader = (beside.contended > 0).then(Reader::begin);
    for (number, step) in (1..).zip(steps) {
        reader = reader.filter(|_| number <= beside.contended);
        program.step(step);
        if number % beside.looks == 0 {
            check_data(&look(&session), &program.oracle, base, max_entries);
        }
    }
    drop(reader);
    check_data(&look(&session), &program.oracle, base, max_entries);
    program.finish();
}

fn check_data(data: &SnapshotData, oracle: &Oracle, base: u64, max_entries: usize) {
    let device = cpu(data);
    assert_eq!(known(data, &device.live), oracle.live);
    assert_eq!(device.not_recorded, base - oracle.old_freed);
    check_peak(data, device, oracle, base);
    check_stats(device, oracle, base);
    check_log(device, oracle, base, max_entries);
    check_breakdowns(data, device, oracle);
}

fn check_peak(data: &SnapshotData, device: &DeviceSnapshot, oracle: &Oracle, base: u64) {
    let (bytes, blocks, old_freed) = &oracle.peak;
    assert_eq!(device.peak.bytes, base.checked_add_signed(*bytes).unwrap());
    assert_eq!(known(data, &device.peak.blocks), *blocks);
    assert_eq!(device.peak.not_recorded, base - old_freed);
    let recorded: u64 = blocks.iter().map(|block| block.1).sum();
    assert_eq!(device.peak.bytes - device.peak.not_recorded, recorded);
}

fn check_stats(device: &DeviceSnapshot, oracle: &Oracle, base: u64) {
    let (bytes, blocks) = (device.stats.allocated_bytes, device.stats.allocations);
    let (allocated, freed): (u64, u64) = (oracle.allocs.iter().sum(), oracle.frees.iter().sum());
    assert_eq!((bytes.allocated, bytes.freed), (allocated, freed + oracle.old_freed));
    assert_eq!((bytes.current, bytes.peak), (base + allocated - freed - oracle.old_freed, device.peak.bytes));
    assert_eq!((blocks.allocated, blocks.freed), (oracle.allocs.len() as u64, oracle.frees.len() as u64));
    assert_eq!((blocks.current, blocks.peak), (oracle.live.len() as u64, oracle.most_blocks as u64));
}

fn check_log(device: &DeviceSnapshot, oracle: &Oracle, base: u64, max_entries: usize) {
    let pushed = oracle.states.len() - 1;
    let overwritten = pushed.saturating_sub(max_entries);
    assert_eq!((device.records.len(), device.overwritten), (pushed - overwritten, overwritten as u64));
    let mut replay = Replay::at_log_start(device);
    let (mut old_freed, mut most) = (0, base);
    for (index, state) in oracle.states[overwritten..].iter().enumerate() {
        if let Some(record) = index.checked_sub(1).map(|before| device.records[before]) {
            replay.apply(&record);
            let old = record.kind == RecordKind::Free && record.alloc_seq.is_none();
            old_freed += if old { record.size } else { 0 };
            most = most.max(base + replay.bytes() - old_freed);
        }
        assert_eq!(replay.blocks().iter().map(|b| (b.address, b.size)).collect::<Vec<_>>(), *state);
        assert_eq!(replay.bytes(), state.iter().map(|block| block.1).sum::<u64>());
    }
    assert_eq!(replay.blocks(), device.live);
    assert!(overwritten > 0 || most == device.peak.bytes, "{most} is not {}", device.peak.bytes);
}

fn check_breakdowns(data: &SnapshotData, device: &DeviceSnapshot, oracle: &Oracle) {
    for breakdown in [Key::Line, Key::Function, Key::Scope].map(|by| DeviceView::of(data, device).by(by).clone()) {
        assert_eq!(breakdown.total, device.peak.total());
        assert_eq!(breakdown.rows.iter().map(|row| row.bytes).sum::<u64>(), breakdown.total);
    }
    let scopes = analysis::scopes(&DeviceView::of(data, device));
    let used = scopes.iter().filter(|row| row.allocations > 0);
    assert_eq!(used.map(|row| (row.path.clone(), row.own_peak)).collect::<BTreeMap<_, _>>(), oracle.own_peaks);
}

proptest! {
    #![proptest_config(crate::random::programs(60))]

    #[test]
    fn a_recording_agrees_with_the_naive_account(
        steps in prop::collection::vec(step(), 0..60),
        beside in beside(),
    ) {
        check(steps, 1 << 20, &beside);
    }

    #[test]
    fn a_log_that_overwrote_its_oldest_records_agrees_too(
        steps in prop::collection::vec(step(), 0..60),
        max_entries in prop::sample::select(vec![1usize, 2, 7]),
        beside in beside(),
    ) {
        check(steps, max_entries, &beside);
    }
}

proptest! {
    // Each look reads the file with its names.
    #![proptest_config(crate::random::programs(8))]

    #[test]
    fn a_stream_agrees_at_every_flush(steps in prop::collection::vec(step(), 0..60), beside in beside()) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("stream.memtrace");
        check_with(memtrace::builder().stream(file.to_string_lossy()), steps, 1 << 20, &beside, |session| {
            session.flush();
            (*memtrace::open(&file).unwrap()).clone()
        });
    }
}
