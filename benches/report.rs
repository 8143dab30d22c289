//! Cost of a report: seconds and memory of reading a capture of a million records, and of ten million, and of the report
//! that is made from it; then of its replay through each model of an allocator.
//!
//! ```text
//! cargo bench --bench report                   a million records, then ten million
//! cargo bench --bench report -- --check        the same, checked against limits
//! cargo test --benches                         ten thousand and a hundred thousand
//! ```
//!
//! # Conditions
//! - One iteration of ResNet-50 is recorded with blocks of every size. The capture repeats it until it has the records;
//!   each repetition ends with the frees of what it left.
//! - Each capture is read by a process of its own, which does what `cargo memtrace report` does. Its times are those of
//!   its thread on a CPU, so that other programs do not count. Its memory is the kernel's VmHWM: the program, the file's
//!   bytes, the recording and the report.

#[path = "../examples/resnet/model.rs"]
mod model;
#[path = "../examples/resnet/sgd.rs"]
mod sgd;

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::num::NonZeroU64;
use std::path::Path;
use std::process::{Command, Stdio};

use candle_core::{DType, Device, Tensor};
use candle_nn::{VarBuilder, VarMap};
use memtrace::analysis::AllocatorModel;
use memtrace::export::{Capture, Export};
use memtrace::scope;
use memtrace::snapshot::{Block, DeviceSnapshot, Mark, Record, RecordKind, SnapshotData};

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

/// How much longer reading and the report of a million records may take than reading alone. Of the report, two fifths are
/// categories, and one sixth are the lifetimes that they need; the rest is one pass over the log for temporaries, one for blocks
/// that are live twice, and the names in tables.
const MOST_TIMES_READING: f64 = 3.0;
/// Bytes of the process that reports a million records.
const MOST_MEMORY: u64 = 400_000_000;
/// Ten times the records may take this much longer, and this much more memory.
const MOST_TIMES_FOR_TEN: f64 = 11.5;
/// Milliseconds that a million records take in a model of an allocator.
const MOST_REPLAY_MS: f64 = 2000.0;

/// One iteration of training, with the blocks that were freed after it.
fn recording() -> SnapshotData {
    let session = memtrace::builder().min_size(0).start().expect("no other session");
    let device = Device::Cpu;
    let variables = VarMap::new();
    let train = || -> candle_core::Result<()> {
        let build = VarBuilder::from_varmap(&variables, DType::F32, &device);
        let network = scope("load", || model::ResNet50::new(build))?;
        let mut optimizer = sgd::SgdMomentum::new(variables.all_vars(), 0.01, 0.9);
        let images = Tensor::randn(0f32, 1f32, (1, 3, 32, 32), &device)?;
        let labels = Tensor::new(&[7u32], &device)?;
        scope("iteration 1", || {
            let logits = scope("forward", || network.forward(&images))?;
            let loss = candle_nn::loss::cross_entropy(&logits, &labels)?;
            let gradients = scope("backward", || loss.backward())?;
            scope("optimizer", || optimizer.step(&gradients))
        })
    };
    train().expect("random images suit the network");
    let mut path = std::env::temp_dir();
    path.push(format!("memtrace-bench-{}.memtrace", std::process::id()));
    session.snapshot().write(&path).expect("a folder to write to");
    let data = memtrace_core_data(&path);
    let _ = std::fs::remove_file(&path);
    data
}

fn memtrace_core_data(path: &Path) -> SnapshotData {
    memtrace_core::open(path).expect("it was just written")
}

/// The recording, repeated until its CPU log has so many records.
fn repeated(mut data: SnapshotData, records: usize) -> SnapshotData {
    let end = data.process.duration_ns + 1;
    let device = data.devices.iter_mut().find(|device| device.device == memtrace::Device::Cpu).expect("the CPU");
    let known = device.records.iter().filter(|record| record.kind == RecordKind::Alloc).map(|record| record.raw_seq());
    let known: HashSet<u64> = known.collect();
    let once: Vec<Record> = device.records.iter().filter(|record| known.contains(&record.raw_seq())).copied().collect();
    let frees: Vec<Record> = device.live.iter().map(|block| free(block, end - 1)).collect();
    let seqs = once.iter().map(Record::raw_seq).max().unwrap_or(0) + 1;
    let marks = std::mem::take(&mut device.marks);
    device.records.clear();
    let times = records.div_ceil(once.len() + frees.len()).max(1) as u64;
    for time in 0..times {
        let shifted = |record: &Record| shift(*record, time * end, time * seqs);
        device.records.extend(once.iter().map(shifted));
        device.marks.extend(marks.iter().map(|mark| Mark { time_ns: mark.time_ns + time * end, ..*mark }));
        if time + 1 < times {
            device.records.extend(frees.iter().map(shifted));
        }
    }
    let last = times - 1;
    for block in &mut device.live {
        *block = later(*block, last * end, last * seqs);
    }
    end_of(device, times);
    data.process.duration_ns = times * end;
    data
}

/// Totals of the repeated log. Its peak is that of the first repetition.
fn end_of(device: &mut DeviceSnapshot, times: u64) {
    let stats = &mut device.stats;
    for stat in [&mut stats.allocated_bytes, &mut stats.active_bytes, &mut stats.reserved_bytes, &mut stats.allocations]
    {
        stat.freed = stat.freed * times + (times - 1) * stat.current;
        stat.allocated *= times;
    }
}

fn shift(record: Record, time: u64, seq: u64) -> Record {
    let alloc_seq = record.alloc_seq.and_then(|number| NonZeroU64::new(number.get() + seq));
    Record { time_ns: record.time_ns + time, alloc_seq, ..record }
}

fn later(block: Block, time: u64, seq: u64) -> Block {
    let number = block.seq.and_then(|number| NonZeroU64::new(number.get() + seq));
    Block { time_ns: block.time_ns + time, seq: number, ..block }
}

fn free(block: &Block, time_ns: u64) -> Record {
    Record { kind: RecordKind::Free, time_ns, ..Record::alloc_of(block) }
}

/// What a process of its own measured.
#[derive(Clone, Copy, Debug)]
struct ReportCost {
    records: u64,
    read_ms: f64,
    report_ms: f64,
    memory: u64,
    /// Of the slowest model.
    replay_ms: f64,
}

impl ReportCost {
    /// The best of three processes: others share the caches.
    fn of(file: &Path) -> Self {
        let runs = (0..3).map(|_| Self::once(file));
        runs.reduce(|a, b| if a.read_ms + a.report_ms < b.read_ms + b.report_ms { a } else { b }).expect("three runs")
    }

    fn once(file: &Path) -> Self {
        let program = std::env::current_exe().expect("this program has a file");
        let output =
            Command::new(program).args(["--measure".as_ref(), file.as_os_str()]).stderr(Stdio::inherit()).output();
        let text = String::from_utf8(output.expect("this program runs").stdout).expect("numbers");
        let numbers: Vec<f64> = text.split_whitespace().filter_map(|number| number.parse().ok()).collect();
        let [records, read_ms, report_ms, memory, replay_ms] = numbers[..] else { panic!("{text}") };
        Self { records: records as u64, read_ms, report_ms, memory: memory as u64, replay_ms }
    }

    fn print(self) {
        let Self { records, read_ms, report_ms, memory, replay_ms } = self;
        let (times, mib) = ((read_ms + report_ms) / read_ms, memory as f64 / (1 << 20) as f64);
        println!("{records:>10} {read_ms:>9.0} {report_ms:>9.0} {times:>14.2} {mib:>9.1} {replay_ms:>10.0}");
    }
}

/// The child: reads and reports as `cargo memtrace report` does, and prints the figures.
fn measure(file: &Path) {
    let began = cpu_ms();
    let data = memtrace_core_data(file);
    let read = cpu_ms();
    let text = memtrace::export::Text { width: 100, ..Default::default() }.render(&data).expect("the peak is known");
    let reported = cpu_ms();
    assert!(text.contains("At the peak, by line"));
    let records: usize = data.devices.iter().map(|device| device.records.len()).sum();
    print!("{records} {} {} {}", read - began, reported - read, high_water_mark());
    println!(" {}", slowest_replay(&data));
}

/// Milliseconds of the slowest model of an allocator.
fn slowest_replay(data: &SnapshotData) -> f64 {
    let recording = memtrace::Recording::new(data);
    let device = recording.device_or_main(Some(memtrace::Device::Cpu)).expect("the CPU");
    let replays = AllocatorModel::all().into_iter().map(|model| {
        let began = cpu_ms();
        let found = device.what_if(model, None, 100).expect("no sample");
        assert!(found.reserved_peak >= found.live_peak);
        cpu_ms() - began
    });
    replays.fold(0.0, f64::max)
}

/// Milliseconds that this thread has spent on a CPU.
fn cpu_ms() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux counts them");
    let ns: u64 = text.split_whitespace().next().and_then(|ns| ns.parse().ok()).expect("a number");
    ns as f64 / 1e6
}

/// VmHWM of this process in bytes.
fn high_water_mark() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    if let Some(at) = arguments.iter().position(|argument| argument == "--measure") {
        return measure(Path::new(&arguments[at + 1]));
    }
    let is_quick = !has("--bench") || has("--test");
    let one = if is_quick { 10_000 } else { 1_000_000 };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let recording = recording();
    println!(
        "{:>10} {:>9} {:>9} {:>14} {:>9} {:>10}",
        "records", "read, ms", "report", "times reading", "MiB", "replay, ms"
    );
    let costs = [one, 10 * one].map(|records| {
        let file = folder.path().join("long.memtrace");
        let mut out = BufWriter::new(File::create(&file).expect("a folder to write to"));
        Capture::default().write(&repeated(recording.clone(), records), &mut out).expect("a file to write to");
        out.flush().expect("a file to write to");
        drop(out);
        let cost = ReportCost::of(&file);
        cost.print();
        cost
    });
    let [small, large] = costs;
    let more = large.records as f64 / small.records as f64;
    let times = [
        (large.read_ms + large.report_ms) / (small.read_ms + small.report_ms),
        large.memory as f64 / small.memory as f64,
    ];
    println!("{more:.1} times the records take {:.1} times as long and {:.1} times the memory", times[0], times[1]);
    if has("--check") {
        let within = (small.read_ms + small.report_ms) / small.read_ms <= MOST_TIMES_READING
            && small.memory <= MOST_MEMORY
            && small.replay_ms <= MOST_REPLAY_MS
            && times.iter().all(|times| *times <= MOST_TIMES_FOR_TEN * more / 10.0);
        println!(
            "{}",
            if within { "ok" } else { "FAIL: over 3 times the time of reading, 400 MB, 2 s of a replay, or linear" }
        );
        std::process::exit(i32::from(!within));
    }
}
