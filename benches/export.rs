//! Export benchmark: milliseconds, memory and file sizes from a recording to files, for logs of 10,000, 100,000 and
//! 1,000,000 records.
//!
//! ```text
//! cargo bench --bench export [-- RECORDS…]     the table; all three sizes by default
//! cargo bench --bench export -- --keep FILE    makes a capture of 1,000,000 records only, for scripts/bench-formats
//! cargo test --benches                         a small log, to see that it runs
//! ```
//!
//! # Conditions
//! - The recordings are real: blocks of 16 bytes to 4 KiB, 10,000 of them live, allocated through 1,024 call chains of 20
//!   functions (so at least 1,024 stacks) in scopes that are nested two deep.
//! - The first snapshot of the process resolves symbols with the program's debug information; later ones find them in the
//!   cache. The first row is a single run, the others are the minimum of several.
//! - Files are written to a temporary folder, synced, and removed. The times include `sync`, as in a program.
//! - Memory is the high-water mark of memtrace's own memory beyond the snapshot, in requested bytes, counted below its
//!   allocator.

#[path = "shared/counted.rs"]
mod counted;

use std::hint::black_box;
use std::path::{Path, PathBuf};

use counted::{Cost, Counted, measured};
use memtrace::export::{ChromeTrace, Dhat, MemoryLayout};
use memtrace::{Session, Snapshot, scope};

#[global_allocator]
static ALLOC: memtrace::Alloc<Counted> = memtrace::Alloc::new(Counted);

const LIVE: usize = 10_000;
/// There are 2 to the power of this many call chains.
const TURNS: u32 = 10;
const SCOPES: [&str; 8] = ["load", "embed", "attention", "mlp", "norm", "loss", "backward", "step"];

/// Writes one file of a snapshot.
type Export = fn(&Snapshot, &Path) -> Result<PathBuf, memtrace::Error>;

/// The rows of the table: name, file name, writer.
const EXPORTS: [(&str, &str, Export); 11] = [
    ("JSON report", "report.json", |snapshot, path| snapshot.write(path)),
    ("PyTorch pickle", "snapshot.pickle", |snapshot, path| snapshot.write(path)),
    ("Chrome timeline", "kept.trace.json", |snapshot, path| snapshot.write(path)),
    ("Chrome timeline, no budget", "timeline.trace.json", |snapshot, path| {
        snapshot.write_as(path, &ChromeTrace { max_bytes: None, ..ChromeTrace::default() })
    }),
    ("memory layout, 20 steps", "memory.layout.json", |snapshot, path| {
        snapshot.write_as(path, &MemoryLayout { max_steps: 20, ..MemoryLayout::default() })
    }),
    ("pprof", "peak.pb.gz", |snapshot, path| snapshot.write(path)),
    ("DHAT", "run.dhat.json", |snapshot, path| snapshot.write_as(path, &Dhat::default())),
    ("capture, written", "whole.memtrace", |snapshot, path| snapshot.write(path)),
    ("text report", "report.txt", |snapshot, path| snapshot.write(path)),
    ("folded stacks", "peak.folded", |snapshot, path| snapshot.write(path)),
    ("flamegraph", "peak.svg", |snapshot, path| snapshot.write(path)),
];

fn random(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    (*state >> 33) as usize
}

/// Allocates at the end of the chain of calls that the bits of `path` choose.
#[inline(never)]
fn chain<const SIDE: bool>(turns: u32, path: usize, size: usize) -> Vec<u8> {
    let block = match (turns, path & 1) {
        (0, _) => Vec::with_capacity(size),
        (_, 0) => via::<false, SIDE>(turns - 1, path >> 1, size),
        _ => via::<true, SIDE>(turns - 1, path >> 1, size),
    };
    // Code after a call keeps the frame, and makes the two functions differ.
    black_box(SIDE);
    block
}

#[inline(never)]
fn via<const SIDE: bool, const FROM: bool>(turns: u32, path: usize, size: usize) -> Vec<u8> {
    let block = chain::<SIDE>(turns, path, size);
    black_box(FROM);
    block
}

/// Makes a recording with this many records.
fn record(records: usize) -> Session {
    let session = memtrace::builder().min_size(16).max_entries(records).start().expect("no other session");
    let mut slots: Vec<Vec<u8>> = Vec::with_capacity(LIVE);
    let mut state = 99;
    let mut left = records;
    while left > 0 {
        let step = random(&mut state);
        scope(SCOPES[step % SCOPES.len()], || {
            scope(SCOPES[step / 8 % SCOPES.len()], || left = exchange(&mut slots, &mut state, left));
        });
    }
    // The blocks must be live in the snapshot.
    std::mem::forget(slots);
    session
}

/// Up to a hundred allocs, with frees once enough blocks are live.
fn exchange(slots: &mut Vec<Vec<u8>>, state: &mut u64, mut left: usize) -> usize {
    for _ in 0..100 {
        if left == 0 {
            break;
        }
        let size = 16 << (random(state) % 9);
        let block = chain::<false>(TURNS, random(state) % (1 << TURNS), size);
        left -= 1;
        if slots.len() < LIVE {
            slots.push(block);
        } else if left > 0 {
            let slot = random(state) % LIVE;
            slots[slot] = block;
            left -= 1;
        } else {
            std::mem::forget(block);
        }
    }
    left
}

fn least(runs: usize, mut run: impl FnMut() -> Cost) -> Cost {
    let costs: Vec<Cost> = (0..runs).map(|_| run()).collect();
    costs.into_iter().min_by(|a, b| a.seconds.total_cmp(&b.seconds)).expect("at least one run")
}

fn row(name: &str, cost: Cost, file: Option<u64>, records: usize) {
    let (milliseconds, mebibytes) = (1e3 * cost.seconds, cost.memory as f64 / (1 << 20) as f64);
    let file = file
        .map_or(format!("{:>12} {:>9}", "", ""), |bytes| format!("{bytes:>12} {:>9.1}", bytes as f64 / records as f64));
    println!("{name:<26} {milliseconds:>10.1} {mebibytes:>9.1} {file}");
}

fn export(snapshot: &Snapshot, path: &Path, export: Export) -> Cost {
    let _ = std::fs::remove_file(path);
    let (written, cost) = measured(|| export(snapshot, path));
    written.expect("a folder to write to");
    cost
}

fn table(records: usize, runs: usize, first: &str, folder: &Path) {
    let session = record(records);
    let (snapshot, cost) = measured(|| session.snapshot());
    let logged: usize = snapshot.devices.iter().map(|device| device.records.len()).sum();
    let (stacks, live) = (snapshot.stacks.len(), snapshot.devices[0].live.len());
    assert!(logged >= records * 9 / 10 && live >= LIVE.min(records / 4), "{logged} records, {live} live");
    println!("\n{logged} records, {stacks} stacks, {live} live blocks");
    println!("{:<26} {:>10} {:>9} {:>12} {:>9}", "", "ms", "MiB", "file, bytes", "a record");
    row(first, cost, None, logged);
    row("snapshot, symbols cached", least(runs, || measured(|| session.snapshot()).1), None, logged);
    let serve = || measured(|| session.snapshot().write_pprof(std::io::sink()).expect("a sink takes all")).1;
    row("a server's pprof", least(runs, serve), None, logged);
    session.end().expect("nothing is written at the end");
    for (name, file, write) in EXPORTS {
        let path: PathBuf = folder.join(file);
        let cost = least(runs, || export(&snapshot, &path, write));
        row(name, cost, std::fs::metadata(&path).ok().map(|file| file.len()), logged);
    }
    let read = || measured(|| memtrace::open(folder.join("whole.memtrace")).expect("it was just written")).1;
    row("capture, read", least(runs, read), None, logged);
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    // `cargo bench` passes --bench; `cargo test --benches` does not.
    let quick = !arguments.iter().any(|a| a == "--bench") || arguments.iter().any(|a| a == "--test");
    if let Some(at) = arguments.iter().position(|argument| argument == "--keep") {
        let path = arguments.get(at + 1).expect("--keep FILE");
        record(1_000_000).snapshot().write(Path::new(path)).expect("a file to write to");
        return;
    }
    let named: Vec<usize> = arguments.iter().filter_map(|argument| argument.parse().ok()).collect();
    let sizes = match (quick, named.is_empty()) {
        (true, _) => vec![1000],
        (false, true) => vec![10_000, 100_000, 1_000_000],
        (false, false) => named,
    };
    let runs = if quick { 1 } else { 5 };
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (round, records) in sizes.into_iter().enumerate() {
        let first = if round == 0 { "snapshot, with symbols" } else { "snapshot, first of its log" };
        table(records, runs, first, folder.path());
    }
}
