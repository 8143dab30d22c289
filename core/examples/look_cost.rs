//! What a look at a streamed capture costs: `look_cost FILE RECORDS` writes one of so many records, as a program does that runs,
//! and looks at it by some keys. docs/top.md has the figures.

use std::collections::VecDeque;
use std::fs;
use std::num::NonZeroU64;
use std::time::Instant;

use memtrace_core::analysis::{Key, Look, Looks};
use memtrace_core::capture::{Commit, Counters, Encoder};
use memtrace_core::snapshot::{Block, MemoryKind, Peak, Record, RecordKind, StackId};
use memtrace_core::symbol::FoundNames;
use memtrace_core::{Device, ReadOptions, Recording};

/// Blocks that are live at once.
const LIVE: usize = 10_000;
/// Records from one commit to the next.
const COMMIT: u64 = 8192;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, records] = &arguments[..] else { return Err("usage: look_cost FILE RECORDS".into()) };
    fs::write(file, streamed(records.parse()?)?)?;
    println!("{} bytes, {records} records, {LIVE} live blocks", fs::metadata(file)?.len());
    let mut found = FoundNames::default();
    for keys in [&[Key::Line][..], &[Key::Operator], &[Key::Category], &Key::ALL] {
        let begin = Instant::now();
        let data = ReadOptions::default().found(&mut found).open(file)?;
        let read = begin.elapsed().as_secs_f64();
        let looks = Looks::begin(Look::of(&Recording::new(&data), file, None, keys));
        let words: Vec<&str> = keys.iter().map(|key| key.word()).collect();
        let (by, all) = (words.join(", "), begin.elapsed().as_secs_f64());
        println!("{all:.3} s, of that {read:.3} s to read: {} devices, by {by}", looks.last().devices.len());
    }
    Ok(())
}

/// Blocks of one size, each freed when there are [`LIVE`] newer ones.
fn streamed(records: u64) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let small = memtrace_core::open(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/small.memtrace"))?;
    let mut out = Encoder::begin(Vec::new())?;
    out.process(&small.process)?;
    out.settings(&small.settings)?;
    out.addresses(small.stacks.addresses.iter().map(|address| address.address))?;
    let stacks: Vec<[u32; 1]> = (0..small.stacks.addresses.len() as u32).map(|address| [address]).collect();
    out.stacks(stacks.iter().map(|stack| &stack[..]))?;
    let (mut live, mut counters, mut batch) = (VecDeque::<Block>::new(), Counters::default(), Vec::new());
    for number in 1..=records / 2 {
        let stack = StackId(1 + (number % stacks.len() as u64) as u32);
        let (seq, time_ns, memory) = (NonZeroU64::new(number), 1000 * number, MemoryKind::Pool);
        let block = Block { address: number << 12, size: 4096, seq, time_ns, stack, memory, ..Block::default() };
        batch.push(Record::alloc_of(&block));
        live.push_back(block);
        let bytes = 4096 * live.len() as u64;
        if bytes > counters.peak.bytes {
            counters.peak = Peak { bytes, time_ns, seq, ..Peak::default() };
        }
        if live.len() > LIVE {
            let old = live.pop_front().map(|block| Record::alloc_of(&block));
            batch.extend(old.map(|old| Record { kind: RecordKind::Free, time_ns, stack: StackId::NONE, ..old }));
        }
        if number % COMMIT == 0 || number == records / 2 {
            counters.stats.allocated_bytes.current = 4096 * live.len() as u64;
            out.records(Device::Cuda(0), &batch)?;
            out.counters(Device::Cuda(0), &counters)?;
            out.commit(&Commit { duration_ns: time_ns, ..Commit::default() })?;
            batch.clear();
        }
    }
    Ok(std::mem::take(out.out()))
}
