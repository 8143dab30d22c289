//! What a recording contains after reading snapshots of each version and kind.

use std::num::{NonZeroU32, NonZeroU64};

use super::fixtures::{Python, block, dict, entry, frame, segment, snapshot, stack};
use crate::ReadOptions;
use crate::analysis::Key;
use crate::attribute::{AllocationSite, Attribution, allocation_site, operator};
use crate::export::{Export, Pickle};
use crate::recording::DeviceView;
use crate::snapshot::{Category, Device, DeviceSnapshot, RecordKind, Replay, SnapshotData, StackId};

const MIB: u64 = 1 << 20;

/// Reads a snapshot in three protocols, and reads again what is written from it.
fn read(snapshot: &Python) -> SnapshotData {
    let data = ReadOptions::default().parse(&snapshot.pickled(4)).unwrap();
    for protocol in [0, 2] {
        assert!(ReadOptions::default().parse(&snapshot.pickled(protocol)).unwrap() == data, "protocol {protocol}");
    }
    check(&data);
    data
}

/// Checks what holds for every recording.
pub(super) fn check(data: &SnapshotData) {
    for device in &data.devices {
        let mut replay = Replay::at_log_start(device);
        device.records.iter().for_each(|record| replay.apply(record));
        assert_eq!(replay.blocks(), device.live, "{}", device.device);
        assert_eq!(device.stats.allocated_bytes.current, replay.bytes());
        assert!(device.records.is_sorted_by_key(|record| record.time_ns));
        assert_eq!(device.peak.blocks.iter().map(|block| block.size).sum::<u64>(), device.peak.bytes);
    }
    let mut capture = Vec::new();
    crate::capture::write(data, usize::MAX, &mut capture).unwrap();
    assert!(crate::ReadOptions::default().parse(&capture).unwrap() == *data, "a capture of it differs");
    let again = written_and_read(data);
    let plain = |data: &SnapshotData| (data.devices.clone(), data.stacks.clone(), data.contexts.clone());
    assert_eq!(plain(&again), plain(data));
}

pub(super) fn written_and_read(data: &SnapshotData) -> SnapshotData {
    let mut out = Vec::new();
    Pickle::default().write(data, &mut out).unwrap();
    ReadOptions::default().parse(&out).unwrap()
}

fn seq(number: u64) -> Option<NonZeroU64> {
    NonZeroU64::new(number)
}

fn notes(data: &SnapshotData) -> String {
    data.health.import_notes.join("\n")
}

fn refusal(snapshot: &Python) -> String {
    ReadOptions::default().parse(&snapshot.pickled(4)).unwrap_err().to_string()
}

fn actions(device: &DeviceSnapshot) -> Vec<(RecordKind, u64)> {
    device.records.iter().map(|record| (record.kind, record.size)).collect()
}

/// A complete log: two blocks, of which one is freed, and a refused allocation.
fn complete() -> Python {
    let oom = entry("oom", 0, 8 * MIB, 6).without("addr").with("device_free", 5u64);
    let trace = vec![
        entry("segment_alloc", 0x10000, 4 * MIB, 0),
        entry("alloc", 0x10000, MIB - 1, 1),
        entry("alloc", 0x10000 + MIB, 2 * MIB, 2).with("stream", 0x7f00u64),
        entry("free_requested", 0x10000, MIB - 1, 3),
        entry("free_completed", 0x10000, MIB - 1, 4),
        oom,
        entry("snapshot", 0, 0, 7),
    ];
    let blocks = vec![block(0x10000, MIB, 0, "inactive"), block(0x10000 + MIB, 2 * MIB, 2 * MIB, "active_allocated")];
    snapshot(vec![segment(0, 0x10000, 4 * MIB, blocks)], vec![trace])
}

#[test]
fn a_complete_log_is_all_there() {
    let data = read(&complete());
    let device = &data.devices[0];
    assert_eq!((device.device, device.overwritten, data.process.duration_ns), (Device::Cuda(0), 0, 7000));
    assert_eq!(
        actions(device),
        [(RecordKind::Alloc, MIB - 1), (RecordKind::Alloc, 2 * MIB), (RecordKind::Free, MIB - 1)]
    );
    assert_eq!(device.records.iter().map(|record| record.stream).collect::<Vec<_>>(), [0, 1, 0]);
    assert_eq!((device.peak.bytes, device.peak.time_ns, device.peak.seq), (3 * MIB - 1, 2000, seq(2)));
    assert_eq!((device.stats.reserved_bytes.current, device.segments.len()), (4 * MIB, 1));
    assert_eq!((device.ooms[0].size, device.ooms[0].device_free, device.stats.num_ooms), (8 * MIB, Some(5), 1));
    assert_eq!(data.process.program, "train.py");
    assert_eq!(notes(&data), "");
}

#[test]
fn frames_tell_of_lines_functions_and_operators() {
    let data = read(&complete());
    let stack = data.devices[0].records[0].stack;
    let attribution = Attribution::new(&data);
    let AllocationSite::User(line) = allocation_site(&attribution, stack) else { panic!("no user line") };
    assert_eq!((line.function_or_empty(), line.file_or_empty()), ("forward", "/home/u/net/model.py"));
    assert_eq!(line.line, NonZeroU32::new(1));
    assert_eq!(operator(&Attribution::new(&data), stack).unwrap().to_string(), "mm");
    assert_eq!(data.devices[0].records[2].alloc_stack, stack);
    assert_ne!(data.devices[0].records[2].stack, stack);
}

#[test]
fn blocks_from_before_the_log_are_said_to_be() {
    let trace = vec![
        entry("free_requested", 0x10000, MIB, 0),
        entry("free_completed", 0x10000, MIB, 1),
        entry("alloc", 0x10000, MIB / 2, 2),
    ];
    let blocks =
        vec![block(0x10000, MIB, MIB / 2, "active_allocated"), block(0x10000 + MIB, MIB, MIB - 3, "active_allocated")];
    let data = read(&snapshot(vec![segment(0, 0x10000, 2 * MIB, blocks)], vec![trace]));
    let device = &data.devices[0];
    assert_eq!((device.overwritten, device.records[0].alloc_seq, device.records[1].alloc_seq), (2, seq(1), seq(4)));
    assert_eq!((device.live[0].seq, device.live[0].size, device.live[0].time_ns), (seq(2), MIB - 3, 0));
    assert_eq!((device.peak.bytes, device.peak.seq), (2 * MIB - 3, None));
    assert_ne!(device.live[0].stack, StackId::NONE);
    // The freed block has no frames, so it has no line.
    let lines = DeviceView::of(&data, device).by(Key::Line).clone();
    let of = |label| lines.rows.iter().find(|row| row.label == label).map(|row| row.bytes);
    assert!(notes(&data).contains("512.0 KiB more than they asked for"), "{}", notes(&data));
    assert_eq!((of(crate::analysis::BEFORE_RECORDING), of("(no stack)")), (Some(MIB), None));
    assert!(
        notes(&data).contains("2 blocks existed before; it frees 1 of them, and 1 are still live"),
        "{}",
        notes(&data)
    );
}

#[test]
fn torch_2_0_has_histories_instead_of_addresses_and_no_times() {
    let history = dict! { "addr": 0x10000, "real_size": 777u64, "frames": stack(1) };
    let older = dict! { "addr": 0x10000, "real_size": 900u64, "frames": stack(2) };
    let blocks = vec![
        dict! { "size": 1024u64, "requested_size": 777u64, "state": "active_allocated", "history": vec![history.clone(), older] },
        dict! { "size": 512u64, "state": "inactive" },
        dict! { "size": 512u64, "state": "active_allocated", "history": vec![history] },
    ];
    let old = segment(0, 0x10000, 2048, Vec::new()).with("blocks", blocks).without("frames").without("segment_pool_id");
    let refused = snapshot(vec![old.clone()], vec![]);
    assert!(refusal(&refused).contains("smaller than what was asked for"));
    let smaller = dict! { "addr": 0x10600, "real_size": 500u64, "frames": stack(3) };
    let Python::Dict(mut fields) = old else { panic!() };
    for (key, value) in &mut fields {
        if let ("blocks", Python::List(blocks)) = (*key, value) {
            blocks[2] = dict! { "size": 512u64, "state": "active_allocated", "history": vec![smaller.clone()] };
        }
    }
    let entry = dict! { "action": "free_completed", "addr": 0x10400u64, "size": 100u64, "stream": 0 };
    let traces: Vec<Python> = vec![vec![entry].into()];
    let data = read(&dict! { "segments": vec![Python::Dict(fields)], "device_traces": traces });
    let live: Vec<(u64, u64)> = data.devices[0].live.iter().map(|block| (block.address, block.size)).collect();
    assert_eq!(live, [(0x10000, 777), (0x10600, 500)]);
    assert!(notes(&data).contains("has no times"), "{}", notes(&data));
    let line = data.stacks.frames(data.devices[0].live[1].stack).nth(2).unwrap().line;
    assert_eq!(line, NonZeroU32::new(3));
}

#[test]
fn expandable_segments_come_and_go_in_whole_pieces() {
    let trace = vec![
        entry("segment_map", 0x200000, 2 * MIB, 0),
        entry("segment_map", 0x400000, 2 * MIB, 1),
        entry("alloc", 0x200000, 3 * MIB, 2),
        entry("free_requested", 0x200000, 3 * MIB, 3),
        entry("free_completed", 0x200000, 3 * MIB, 4),
        entry("segment_unmap", 0x300000, 3 * MIB, 5),
    ];
    let left = segment(0, 0x200000, MIB, Vec::new()).with("is_expandable", 1);
    let before = segment(0, 0x900000, 2 * MIB, Vec::new());
    let data = read(&snapshot(vec![left, before], vec![trace]));
    let device = &data.devices[0];
    let pieces: Vec<(RecordKind, u64, u64)> =
        device.segment_records.iter().map(|segment| (segment.kind, segment.address, segment.size)).collect();
    let (alloc, free) = (RecordKind::Alloc, RecordKind::Free);
    let mapped = [(alloc, 0x200000, MIB), (alloc, 0x300000, MIB), (alloc, 0x400000, 2 * MIB)];
    let unmapped = [(free, 0x300000, MIB), (free, 0x400000, 2 * MIB)];
    assert_eq!(pieces, [&mapped[..], &unmapped].concat());
    assert_eq!((device.stats.reserved_bytes.current, device.stats.reserved_bytes.peak), (3 * MIB, 6 * MIB));
}

#[test]
fn devices_pools_and_host_memory_are_told_apart() {
    let host = vec![entry("alloc", 0x7000_0000, 4096, 3)];
    let pinned = segment(0, 0x7000_0000, 8192, vec![block(0x7000_0000, 4096, 4096, "active_allocated")]);
    let graph = segment(2, 0x90000, MIB, vec![block(0x90000, 512, 100, "active_pending_free")])
        .with("segment_pool_id", Python::Pair(0, 3));
    let traces = vec![vec![], vec![entry("alloc", 0x90000, 100, 1), entry("free_requested", 0x90000, 100, 2)]];
    let traces = [vec![vec![]], traces].concat();
    let all = snapshot(vec![graph], traces).with("host_segments", vec![pinned]).with("host_traces", host);
    let data = read_without_writing(&all);
    let devices: Vec<(Device, usize)> = data.devices.iter().map(|device| (device.device, device.live.len())).collect();
    assert_eq!(devices, [(Device::Cuda(2), 1), (Device::Pinned, 1)]);
    assert!(notes(&data).contains("1 segments of cuda:2 (1.000 MiB) belong to private pools"), "{}", notes(&data));
    assert!(
        notes(&data).contains("1 blocks of cuda:2 (100 B) are freed and still used by another stream"),
        "{}",
        notes(&data)
    );
}

/// Does not write a pickle, because written pickles have host memory as a device of its own.
fn read_without_writing(snapshot: &Python) -> SnapshotData {
    ReadOptions::default().parse(&snapshot.pickled(4)).unwrap()
}

#[test]
fn a_log_without_completed_frees_frees_at_requests() {
    let trace =
        vec![entry("alloc", 0x10000, 100, 0), entry("free_requested", 0x10000, 100, 1), entry("alloc", 0x10000, 50, 2)];
    let blocks = vec![block(0x10000, 512, 50, "active_allocated")];
    let data = read(&snapshot(vec![segment(0, 0x10000, 512, blocks)], vec![trace]));
    assert_eq!(actions(&data.devices[0]), [(RecordKind::Alloc, 100), (RecordKind::Free, 100), (RecordKind::Alloc, 50)]);
    assert_eq!(notes(&data), "");
}

#[test]
fn without_a_log_there_is_what_is_live() {
    let blocks = vec![block(0x10000, 512, 500, "active_allocated"), block(0x10200, 512, 400, "active_awaiting_free")];
    let segments = vec![segment(1, 0x10000, 2048, blocks)];
    for without in [snapshot(segments.clone(), vec![]), Python::List(segments)] {
        let data = read(&without);
        let device = &data.devices[0];
        assert_eq!((device.device, device.live.len(), device.peak.bytes), (Device::Cuda(1), 2, 900));
        assert!(notes(&data).contains("cuda:1 has no log"), "{}", notes(&data));
    }
}

#[test]
fn annotations_and_metadata_are_scopes() {
    let annotation = |stage: &str, name: &str, time_us: u64| {
        dict! { "stage": stage, "name": name, "device": 0, "time_us": 1_700_000_000_000_000 + time_us }
    };
    let optimizer = "Optimizer.step#AdamW.step";
    let annotations = vec![
        annotation("START", "iteration", 0),
        annotation("START", optimizer, 10),
        annotation("END", optimizer, 20),
        annotation("END", "iteration", 30),
        annotation("END", "never begun", 31),
    ];
    let trace = vec![
        entry("alloc", 0x10000, 100, 5).with("user_metadata", "attention"),
        entry("alloc", 0x10200, 200, 11),
        entry("alloc", 0x10400, 300, 12),
        entry("free_completed", 0x10400, 300, 13),
        entry("alloc", 0x10600, 400, 40),
    ];
    let blocks = [(0x10000, 100), (0x10200, 200), (0x10600, 400)];
    let at = |(address, size)| segment(0, address, 512, vec![block(address, 512, size, "active_allocated")]);
    let empty = segment(0, 0x10400, 512, vec![]);
    let all = snapshot([blocks.map(at).to_vec(), vec![empty]].concat(), vec![trace])
        .with("external_annotations", annotations);
    let data = read(&all);
    let device = &data.devices[0];
    let paths: Vec<String> = device.records.iter().map(|record| data.context_path(record.context)).collect();
    let step = format!("iteration > {optimizer}");
    assert_eq!(paths, ["iteration > attention", &*step, &*step, &*step, ""]);
    assert_eq!(device.marks.len(), 4);
    let categories = DeviceView::of(&data, device).categories().clone();
    let found = [1, 3, 5].map(|at| categories.get(seq(at)));
    assert_eq!(found, [Category::Unknown, Category::Temporary, Category::Unknown]);
}

#[test]
fn entries_that_do_not_fit_are_counted() {
    let trace = vec![
        entry("alloc", 0x10000, 100, 0),
        entry("alloc", 0x10000, 200, 1),
        entry("free_completed", 0x10000, 200, 2),
        entry("free_completed", 0x10000, 200, 3),
        entry("alloc", 0x10200, 300, 4),
    ];
    let blocks = vec![block(0x10000, 512, 70, "active_allocated")];
    let data = read(&snapshot(vec![segment(0, 0x10000, 1024, blocks)], vec![trace]));
    let device = &data.devices[0];
    assert_eq!(device.live.iter().map(|block| block.size).collect::<Vec<_>>(), [70]);
    assert!(notes(&data).contains("4 entries of the log of cuda:0 do not fit"), "{}", notes(&data));
}

fn one_alloc(address: u64, size: u64) -> Python {
    snapshot(vec![], vec![vec![entry("alloc", address, size, 0)]])
}

#[test]
fn the_largest_sizes_that_are_read_can_be_written_as_a_capture() {
    for snapshot in [one_alloc(1, (1 << 58) - 1), one_alloc((1 << 62) - 3, 1)] {
        let data = crate::ReadOptions::default().parse(&snapshot.pickled(4)).unwrap();
        let mut capture = Vec::new();
        crate::capture::write(&data, usize::MAX, &mut capture).unwrap();
        assert!(crate::ReadOptions::default().parse(&capture).unwrap() == data);
    }
}

#[test]
fn what_is_no_snapshot_is_refused() {
    let overlapping = snapshot(vec![segment(0, 0x10000, 1024, vec![]), segment(0, 0x10200, 1024, vec![])], vec![]);
    let outside = vec![block(0x10000, 512, 500, "active_allocated"), block(0x20000, 512, 500, "active_allocated")];
    let twice = vec![block(0x10000, 512, 5, "active_allocated"), block(0x10000, 512, 5, "active_allocated")];
    let segment_of =
        |blocks: Vec<Python>| snapshot(vec![segment(0, 0x10000, 1024, vec![]).with("blocks", blocks)], vec![]);
    let huge = entry("alloc", 1, u64::MAX, 0);
    let many = vec![entry("alloc", 1, (1 << 62) - 1, 0), entry("alloc", 2, (1 << 62) - 1, 0)];
    for (wrong, why) in [
        (dict! { "model": 1 }, "no memory snapshot"),
        (Python::List(vec![]), "no memory snapshot"),
        (Python::Int(5), "no memory snapshot"),
        (overlapping, "overlap"),
        (segment_of(outside), "outside of its segment"),
        (segment_of(twice), "on another block"),
        (segment_of(vec![block(0x10000, 512, 5, "strange")]), "unknown state"),
        (snapshot(vec![], vec![vec![huge]]), "`size` is no number"),
        (snapshot(vec![], vec![many]), "more than any device has"),
        (one_alloc(1, 1 << 61), "beyond any memory"),
        (one_alloc((1 << 62) - 2, 1), "beyond any memory"),
        (snapshot(vec![], vec![vec![entry("alloc", 1, 1, 1 << 60)]]), "far too late"),
        (snapshot(vec![], vec![vec![entry("alloc", 1, 1, 0), frame("f", "f.py", 1)]]), "something else than entries"),
        (snapshot(vec![segment(5000, 0x10000, 512, vec![])], vec![]), "impossible number"),
        (snapshot(vec![], vec![vec![entry("alloc", 1, 1, 0).without("addr")]]), "`addr` is missing"),
    ] {
        let message = refusal(&wrong);
        assert!(message.contains(why), "{message}, not {why}");
    }
}

#[cfg(feature = "gzip")]
#[test]
fn compressed_snapshots_are_recognized() {
    use std::io::Write;

    let mut file = tempfile::NamedTempFile::new().unwrap();
    let mut encoder = flate2::write::GzEncoder::new(&mut file, flate2::Compression::fast());
    encoder.write_all(&complete().pickled(4)).unwrap();
    encoder.finish().unwrap();
    assert!(crate::open(file.path()).unwrap() == read(&complete()));
    assert!(crate::open(file.path()).unwrap() == read(&complete()));
}
