//! Scale benchmark: milliseconds, memory and file sizes from a recording of a million records to a pickle, a timeline and a
//! flamegraph. The program is the example resnet without its command line.
//!
//! ```text
//! cargo bench --bench scale [-- RECORDS]       the table; a million records by default
//! cargo bench --bench scale -- --check         the same, checked against limits
//! cargo test --benches                         one small iteration, with a check of the size limits
//! ```
//!
//! # Conditions
//! - ResNet-50 trains on images of 96 x 96 pixels until the log has the records; it records blocks of every size.
//! - The first snapshot of the process resolves the symbols of all stacks; the second one, in a row of its own, does not.
//! - [`Snapshot::write`] writes the files, with its default size limits, and syncs them.
//! - Memory is the high-water mark of memtrace's own memory since the snapshot began, as in the bench `export`. Resident
//!   memory is the kernel's VmHWM, reset before the snapshot, less VmRSS then; it includes the pages of the program's file from
//!   which symbols are read.

#[path = "shared/counted.rs"]
mod counted;
#[path = "../examples/resnet/model.rs"]
mod model;
#[path = "../examples/resnet/sgd.rs"]
mod sgd;

use std::path::Path;

use candle_core::{DType, Device, Tensor};
use candle_nn::{VarBuilder, VarMap};
use counted::{Counted, measured};
use memtrace::export::ChromeTrace;
use memtrace::snapshot::{Record, RecordKind};
use memtrace::{Session, Snapshot, scope};

#[global_allocator]
static ALLOC: memtrace::Alloc<Counted> = memtrace::Alloc::new(Counted);

const MIB: f64 = (1 << 20) as f64;
const FILES: [&str; 3] = ["snapshot.pickle", "timeline.trace.json", "peak.svg"];

/// The limits of `--check` for a million records.
const MOST_SECONDS: f64 = 2.0;
const MOST_MEMORY: u64 = 300_000_000;
const MOST_ENTRY: f64 = 60.0;

struct Wanted {
    records: usize,
    image: usize,
    check: bool,
    quick: bool,
}

impl Wanted {
    fn of(arguments: &[String]) -> Self {
        let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
        // `cargo bench` passes --bench; `cargo test --benches` does not.
        if !has("--bench") || has("--test") {
            return Self { records: 100_000, image: 32, check: false, quick: true };
        }
        let named = arguments.iter().find_map(|argument| argument.parse().ok());
        Self { records: named.unwrap_or(1_000_000), image: 96, check: has("--check"), quick: false }
    }
}

/// Trains until the log has the wanted records.
fn train(wanted: &Wanted) -> candle_core::Result<()> {
    let (variables, device) = (VarMap::new(), Device::Cpu);
    let network = scope("load", || model::ResNet50::new(VarBuilder::from_varmap(&variables, DType::F32, &device)))?;
    let mut optimizer = sgd::SgdMomentum::new(variables.all_vars(), 0.01, 0.9);
    let images = Tensor::randn(0f32, 1f32, (1, 3, wanted.image, wanted.image), &device)?;
    let labels = Tensor::new(&[7u32], &device)?;
    for number in 1.. {
        scope(format!("iteration {number}"), || {
            let logits = scope("forward", || network.forward(&images))?;
            let loss = candle_nn::loss::cross_entropy(&logits, &labels)?;
            let gradients = scope("backward", || loss.backward())?;
            scope("optimizer", || optimizer.step(&gradients))
        })?;
        let blocks = memtrace::stats(memtrace::Device::Cpu).allocations;
        if blocks.allocated + blocks.freed >= wanted.records as u64 {
            break;
        }
    }
    Ok(())
}

/// A field of `/proc/self/status` in bytes; 0 on other systems.
fn resident(what: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(what));
    let kilobytes: Option<u64> = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// A row of the table.
struct Row {
    name: &'static str,
    seconds: f64,
    /// High-water mark since the snapshot began.
    memory: usize,
    file: u64,
}

impl Row {
    fn print(&self) {
        let (milliseconds, mebibytes) = (1e3 * self.seconds, self.memory as f64 / MIB);
        println!("{:<22} {milliseconds:>8.0} {mebibytes:>9.1} {:>13}", self.name, self.file);
    }

    fn together(rows: &[Self]) -> Self {
        let seconds = rows.iter().map(|row| row.seconds).sum();
        let memory = rows.iter().map(|row| row.memory).max().unwrap_or(0);
        Self { name: "together", seconds, memory, file: rows.iter().map(|row| row.file).sum() }
    }
}

/// The snapshot, and a row for it and each of its files.
fn export(session: &Session, folder: &Path) -> (Snapshot, Vec<Row>) {
    let (snapshot, first) = measured(|| session.snapshot());
    let mut rows = vec![Row { name: "snapshot, with symbols", seconds: first.seconds, memory: first.memory, file: 0 }];
    for name in FILES {
        let path = folder.join(name);
        let (written, cost) = measured(|| snapshot.write(&path));
        written.expect("a folder to write to");
        let file = std::fs::metadata(&path).expect("it was just written").len();
        rows.push(Row { name, seconds: cost.seconds, memory: first.kept + cost.memory, file });
    }
    (snapshot, rows)
}

/// Entries of `device_traces`: a free is requested and completed.
fn entries(snapshot: &Snapshot) -> usize {
    let frees = |record: &&Record| record.kind == RecordKind::Free;
    let records = || snapshot.devices.iter().flat_map(|device| &device.records);
    records().count() + records().filter(frees).count()
}

/// Prints the table; true if it is within the limits.
fn report(snapshot: &Snapshot, rows: &[Row], resident: Option<u64>) -> bool {
    let records: usize = snapshot.devices.iter().map(|device| device.records.len()).sum();
    let (entries, stacks, addresses) = (entries(snapshot), snapshot.stacks.len(), snapshot.stacks.addresses.len());
    println!("{records} records, {stacks} stacks of {addresses} unique addresses, {entries} entries");
    println!("{:<22} {:>8} {:>9} {:>13}", "", "ms", "MiB", "file, bytes");
    rows.iter().for_each(Row::print);
    let all = Row::together(rows);
    all.print();
    match resident {
        Some(bytes) => println!("VmHWM added: {:.1} MiB", bytes as f64 / MIB),
        None => println!("VmHWM could not be reset"),
    }
    let entry = rows[1].file as f64 / entries as f64;
    println!("bytes a pickle entry: {entry:.1}");
    let memory = resident.unwrap_or(0).max(all.memory as u64);
    all.seconds <= MOST_SECONDS && memory <= MOST_MEMORY && entry <= MOST_ENTRY
}

fn main() {
    let wanted = Wanted::of(&std::env::args().collect::<Vec<_>>());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let session = memtrace::builder().min_size(0).max_entries(wanted.records).start().expect("no other session");
    train(&wanted).expect("random images suit the network");
    // Resets VmHWM.
    let is_back = std::fs::write("/proc/self/clear_refs", "5").is_ok();
    let before = resident("VmRSS:");
    let (snapshot, rows) = export(&session, folder.path());
    let added = is_back.then(|| resident("VmHWM:").saturating_sub(before));
    // The difference is the cost of symbols.
    let again = measured(|| session.snapshot()).1;
    session.end().expect("nothing is written at the end");
    let within = report(&snapshot, &rows, added);
    println!("a second snapshot, symbols cached: {:.0} ms, {:.1} MiB", 1e3 * again.seconds, again.memory as f64 / MIB);
    if wanted.quick {
        half_a_timeline_is_at_most_half(&snapshot, folder.path());
    }
    if wanted.check {
        println!("{}", if within { "ok" } else { "FAIL: more than 2 s, 300 MB or 60 bytes an entry" });
        std::process::exit(i32::from(!within));
    }
}

fn half_a_timeline_is_at_most_half(snapshot: &Snapshot, folder: &Path) {
    let max = std::fs::metadata(folder.join(FILES[1])).expect("it was just written").len() / 2;
    let path = folder.join("half.trace.json");
    let options = ChromeTrace { max_bytes: Some(max), ..ChromeTrace::default() };
    snapshot.write_as(&path, &options).expect("a folder to write to");
    let half = std::fs::metadata(&path).expect("it was just written").len();
    assert!(half <= max && half > max / 10 * 8, "{half} of at most {max} bytes");
}
