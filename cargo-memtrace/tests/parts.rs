//! A stream in parts, as a user reads it: named by its path, by any of its parts, or by their folder.

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroU64;
use std::path::Path;
use std::process::Command;

use memtrace_core::capture::{Commit, Counters, Encoder, StreamPart, end_mark, part_path, stream_name};
use memtrace_core::snapshot::{
    Block, DeviceSnapshot, MemoryKind, MemoryStats, Peak, Record, RecordKind, SnapshotData, StackId, Stat,
};
use memtrace_core::{Device, open};

const REQUESTS: u64 = 3200;
const LARGE: u64 = 1 << 20;

/// A service that holds 1 MiB at first, and then keeps 1 KiB of every fourth request. Two stacks.
fn service() -> (SnapshotData, Vec<Record>) {
    let mut data = open(Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/everything.memtrace")).unwrap();
    data.process.duration_ns = REQUESTS * 1_000_000;
    data.health = Default::default();
    let mut records = Vec::new();
    let free = |block: &Block, time_ns| {
        let alloc = Record::alloc_of(block);
        Record { kind: RecordKind::Free, time_ns, stack: StackId::NONE, ..alloc }
    };
    for number in 1..=REQUESTS {
        let (seq, time_ns) = (NonZeroU64::new(number), 1_000_000 * number - 1);
        let (size, stack) = if number == 1 { (LARGE, StackId(2)) } else { (1024, StackId(1)) };
        let block =
            Block { address: LARGE * number, size, seq, time_ns, stack, memory: MemoryKind::Pool, ..Block::default() };
        records.push(Record::alloc_of(&block));
        if number % 4 != 0 {
            records.push(free(&block, time_ns));
        }
    }
    (data, records)
}

/// Live blocks, and the peak with its blocks, after each record.
#[derive(Clone, Default)]
struct State {
    live: BTreeMap<u64, Block>,
    peak: Peak,
    stats: MemoryStats,
}

impl State {
    fn apply(&mut self, record: &Record) {
        let (bytes, count) = (&mut self.stats.allocated_bytes, &mut self.stats.allocations);
        match record.kind {
            RecordKind::Alloc => {
                self.live.insert(record.address, record.block());
                (bytes.current, bytes.allocated) = (bytes.current + record.size, bytes.allocated + record.size);
                (count.current, count.allocated) = (count.current + 1, count.allocated + 1);
            }
            RecordKind::Free => {
                self.live.remove(&record.address);
                (bytes.current, bytes.freed) = (bytes.current - record.size, bytes.freed + record.size);
                (count.current, count.freed) = (count.current - 1, count.freed + 1);
            }
        }
        let raise = |stat: &mut Stat| stat.peak = stat.peak.max(stat.current);
        raise(bytes);
        raise(count);
        if self.stats.allocated_bytes.current > self.peak.bytes {
            let blocks = self.live.values().copied().collect();
            let (bytes, time_ns, seq) = (self.stats.allocated_bytes.current, record.time_ns, record.alloc_seq);
            self.peak = Peak { bytes, time_ns, seq, blocks, ..Peak::default() };
        }
    }
}

/// Writes the parts of a stream, `count` of them, and the file that names it.
fn write_parts(folder: &Path, name: &str, data: &SnapshotData, records: &[Record], count: usize) {
    let (stream, device, run) = (folder.join(name), Device::Cuda(0), 77);
    fs::write(&stream, [stream_name(run).unwrap(), end_mark()].concat()).unwrap();
    let (mut state, mut before) = (State::default(), 0);
    for (part, number) in records.chunks(records.len().div_ceil(count)).zip(1..) {
        let mut file = Encoder::begin(Vec::new()).unwrap();
        file.part(StreamPart { run, number }).unwrap();
        file.process(&data.process).unwrap();
        file.settings(&data.settings).unwrap();
        file.objects(&data.objects).unwrap();
        file.addresses(data.stacks.addresses.iter().map(|address| address.address)).unwrap();
        let place =
            |address: u64| data.stacks.addresses.iter().position(|known| known.address == address).unwrap() as u32;
        let calls = |id| data.stacks.addresses(StackId(id)).map(|call| place(call.address)).collect::<Vec<u32>>();
        file.stacks([calls(1), calls(2)].iter().map(Vec::as_slice)).unwrap();
        file.contexts(&data.contexts[1..]).unwrap();
        file.gap(device, before).unwrap();
        file.log_start(device, 0, part[0].time_ns).unwrap();
        file.live(device, &state.live.values().copied().collect::<Vec<_>>()).unwrap();
        file.peak(device, &state.peak.blocks).unwrap();
        let counters = |state: &State| Counters {
            peak: Peak { blocks: Vec::new(), ..state.peak.clone() },
            stats: state.stats,
            ..Counters::default()
        };
        file.counters(device, &counters(&state)).unwrap();
        file.records(device, part).unwrap();
        part.iter().for_each(|record| state.apply(record));
        file.counters(device, &counters(&state)).unwrap();
        file.commit(&Commit { duration_ns: part[part.len() - 1].time_ns + 1, ..Commit::default() }).unwrap();
        if before as usize + part.len() == records.len() {
            file.end().unwrap();
        }
        fs::write(part_path(&stream, number), file.out()).unwrap();
        before += part.len() as u64;
    }
}

/// Exit code and standard output.
fn memtrace(folder: &Path, arguments: &[&str]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-memtrace"));
    command.arg("memtrace").args(arguments).current_dir(folder).env_remove("COLUMNS").env("NO_COLOR", "1");
    let output = command.output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn all_commands_read_the_parts_as_one_recording() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, (data, records)) = (dir.path(), service());
    write_parts(folder, "run.memtrace", &data, &records, 5);
    let whole = open(folder.join("run.memtrace")).unwrap();
    assert_eq!(whole.devices[0].records, records);
    // The large block is freed at once; then 800 blocks of 1 KiB are kept, which is less.
    let device: &DeviceSnapshot = &whole.devices[0];
    assert_eq!((device.peak.bytes, device.peak.blocks.len(), device.live.len()), (LARGE, 1, 800));
    assert_eq!((device.overwritten, device.gaps.len()), (0, 0));
    let (code, growth) = memtrace(folder, &["growth", "run.memtrace"]);
    assert_eq!(code, 1, "{growth}");
    // The large block's part is deleted.
    fs::remove_file(folder.join("run.1.memtrace")).unwrap();
    for name in ["run.memtrace", "run.3.memtrace", "."] {
        let (code, report) = memtrace(folder, &["report", name]);
        assert!(code == 0 && report.contains("Peak 1.000 MiB"), "{name}: {report}");
        // Of 3,200 allocs and 2,400 frees a fifth is gone.
        assert!(report.contains("4,480 records, 1,120 older ones not kept"), "{name}: {report}");
        let (code, growth) = memtrace(folder, &["growth", name]);
        assert!(code == 3 && growth.contains("the log lacks its beginning"), "{name}: {growth}");
        assert_eq!(memtrace(folder, &["check", name, "--peak", "1 MiB"]).0, 0, "{name}");
        assert_eq!(memtrace(folder, &["check", name, "--peak", "1023 KiB"]).0, 1, "{name}");
    }
    let (code, top) = memtrace(folder, &["top", "run.memtrace", "--once"]);
    assert!(code == 0 && top.contains("800.0 KiB live, peak 1.000 MiB"), "{top}");
    let (code, page) = memtrace(folder, &["view", "run.memtrace", "-o", "a.html"]);
    assert!(code == 0 && folder.join("a.html").exists(), "{page}");
    assert_eq!(open(folder.join("run.5.memtrace")).unwrap(), open(folder.join("run.memtrace")).unwrap());
}

#[test]
fn a_folder_with_parts_has_one_rank() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, (mut data, records)) = (dir.path(), service());
    write_parts(folder, "run.memtrace", &data, &records, 5);
    let (code, report) = memtrace(folder, &["report", "."]);
    assert!(code == 0 && report.contains("Peak 1.000 MiB"), "{report}");
    // Without the file that names them, too.
    fs::remove_file(folder.join("run.memtrace")).unwrap();
    let (code, report) = memtrace(folder, &["report", "."]);
    assert!(code == 0 && report.contains("Peak 1.000 MiB"), "{report}");
    // A second rank beside it.
    (data.process.rank, data.process.pid) = (Some(1), data.process.pid + 1);
    write_parts(folder, "other.memtrace", &data, &records, 3);
    let (code, ranks) = memtrace(folder, &["growth", ".", "--json"]);
    let ranks: serde_json::Value = serde_json::from_str(&ranks).unwrap();
    assert_eq!((code, ranks["recordings"].as_array().map(Vec::len)), (1, Some(2)), "{ranks}");
}

#[test]
fn the_parts_of_another_run_are_another_recording() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, (data, records)) = (dir.path(), service());
    write_parts(folder, "run.memtrace", &data, &records, 3);
    let mut other = Encoder::begin(Vec::new()).unwrap();
    other.part(StreamPart { run: 78, number: 4 }).unwrap();
    other.commit(&Commit::default()).unwrap();
    fs::write(folder.join("run.4.memtrace"), other.out()).unwrap();
    let read = open(folder.join("run.memtrace")).unwrap();
    assert_eq!(read.devices[0].records, records);
    assert!(open(folder.join("run.4.memtrace")).unwrap().devices.is_empty());
}
