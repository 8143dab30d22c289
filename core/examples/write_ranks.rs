//! Recordings of a job's ranks to measure with: `write_ranks FOLDER RANKS RECORDS [SIZE]`. Blocks of rank 0 have SIZE bytes (1000),
//! those of the next ranks one byte more each. docs/ranks.md has the figures.

use std::collections::VecDeque;
use std::fs::File;
use std::num::NonZeroU64;
use std::path::Path;

use memtrace_core::Device;
use memtrace_core::export::{Capture, Export};
use memtrace_core::snapshot::{
    Block, DeviceMemory, DeviceSnapshot, MemoryKind, Peak, Record, RecordKind, SnapshotData, StackId, Stat,
};

/// Blocks that are live at once.
const LIVE: usize = 1000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (folder, ranks, records, size) = match &arguments[..] {
        [folder, ranks, records] => (folder, ranks, records, "1000"),
        [folder, ranks, records, size] => (folder, ranks, records, &**size),
        _ => return Err("usage: write_ranks FOLDER RANKS RECORDS [SIZE]".into()),
    };
    let (ranks, records, size): (u32, u64, u64) = (ranks.parse()?, records.parse()?, size.parse()?);
    for number in 0..ranks {
        let mut data = memtrace_core::open(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/small.memtrace"))?;
        data.process.pid = 1000 + number;
        data.process.rank = Some(number);
        data.process.launcher.world_size = Some(ranks);
        data.devices = vec![device_of(&data, records / 2, size + u64::from(number))];
        let file = Path::new(folder).join(format!("rank{number}.memtrace"));
        Capture::default().write(&data, &mut File::create(file)?)?;
    }
    Ok(())
}

/// So many blocks of one size, each freed when there are more than [`LIVE`] newer ones.
fn device_of(data: &SnapshotData, blocks: u64, size: u64) -> DeviceSnapshot {
    let stacks = data.stacks.len() as u64 - 1;
    let mut device = DeviceSnapshot::default();
    device.device = Device::Cuda(0);
    device.memory = Some(DeviceMemory { total: 1 << 20, free: 0, ..DeviceMemory::default() });
    let mut live: VecDeque<Block> = VecDeque::new();
    for number in 1..=blocks {
        let (stack, time_ns) = (StackId(1 + (number % stacks) as u32), 1000 * number);
        let (seq, memory) = (NonZeroU64::new(number), MemoryKind::Pool);
        let block = Block { address: 4096 * number, size, seq, time_ns, stack, memory, ..Block::default() };
        device.records.push(Record::alloc_of(&block));
        live.push_back(block);
        if live.len() <= LIVE {
            continue;
        }
        if device.peak.blocks.is_empty() {
            device.peak = Peak {
                bytes: size * live.len() as u64,
                time_ns,
                seq,
                blocks: live.iter().copied().collect(),
                ..Peak::default()
            };
        }
        let old = live.pop_front().map(|block| Record::alloc_of(&block));
        device.records.extend(old.map(|old| Record { kind: RecordKind::Free, time_ns, stack: StackId::NONE, ..old }));
    }
    device.live = live.into();
    let now = device.live.len() as u64;
    let stat = |of: u64| Stat {
        current: of * now,
        peak: of * (LIVE as u64 + 1),
        allocated: of * blocks,
        freed: of * (blocks - now),
    };
    (device.stats.allocated_bytes, device.stats.active_bytes, device.stats.allocations) =
        (stat(size), stat(size), stat(1));
    device
}
