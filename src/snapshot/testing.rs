//! Small snapshots made by hand, for tests of what lies right of here.

use super::{
    Block, BlockName, Category, CodeAddress, ContextId, ContextNode, Counted, Device, DeviceSnapshot, Frame, Health,
    Mark, MemoryKind, MemoryStats, Module, Peak, Process, Record, RecordKind, Sampling, ScopeStats, Settings,
    SnapshotData, StackId, Stacks, Stat, Thread, ThreadId, segments,
};

const FORWARD: ContextId = ContextId(1);

/// Nothing was recorded at all.
pub(crate) fn empty() -> SnapshotData {
    SnapshotData {
        process: Process::default(),
        settings: Settings::default(),
        devices: Vec::new(),
        stacks: Stacks { starts: vec![0], ..Stacks::default() },
        contexts: vec![ContextNode { parent: ContextId::ROOT, name: String::new(), module: false }],
        modules: Vec::new(),
        health: Health::default(),
    }
}

/// Two blocks of 2,000 and 1,000 bytes from line 7 in scope `forward`, one of 500 from a worker
/// without a user line, a temporary of 64 from line 9, 1,024 bytes from before the recording and 128
/// below the threshold. The peak is after the third block; the second one has a name and was freed since.
pub(crate) fn two_lines_and_a_temporary() -> SnapshotData {
    let line_7 = block(0x1000, 2000, 1, StackId(1), FORWARD);
    let line_7_again = block(0x2000, 1000, 2, StackId(1), FORWARD);
    let worker = block(0x3000, 500, 3, StackId(2), ContextId::ROOT);
    let temporary = block(0x4000, 64, 4, StackId(3), ContextId::ROOT);
    let records = vec![
        record(RecordKind::Alloc, &line_7, 1_000),
        record(RecordKind::Alloc, &line_7_again, 2_000),
        record(RecordKind::Alloc, &worker, 3_000),
        record(RecordKind::Free, &line_7_again, 4_000),
        record(RecordKind::Alloc, &temporary, 5_000),
        record(RecordKind::Free, &temporary, 6_000),
    ];
    let live = vec![line_7, worker];
    let peak = Peak {
        bytes: 4524,
        time_ns: 3_000,
        seq: 3,
        blocks: vec![line_7, line_7_again, worker],
        not_recorded: 1024,
        below_threshold: 128,
    };
    let mark = |time_ns, enter| Mark { time_ns, context: FORWARD, thread: ThreadId(1), enter };
    let forward = ScopeStats {
        context: FORWARD,
        calls: 1,
        allocations: 2,
        allocated_bytes: 3000,
        own_peak: 3000,
        total_peak: Some(4024),
    };
    let device = DeviceSnapshot {
        device: Device::Cpu,
        sampling: Sampling::default(),
        ooms: Vec::new(),
        pool: None,
        memory: None,
        segment_records: Vec::new(),
        calls: Vec::new(),
        segments: segments::cover(&records, &live, &[], &[]),
        records,
        overwritten: 0,
        live,
        not_recorded: 1024,
        below_threshold: 128,
        peak,
        stats: stats(),
        scopes: vec![forward],
        marks: vec![mark(900, true), mark(2_500, false)],
        names: vec![BlockName { seq: 2, name: "weights f32[250]".into(), category: Category::Parameter }],
        lost_names: 0,
    };
    let process = Process {
        program: "net".into(),
        host: "box".into(),
        pid: 42,
        rank: None,
        working_dir: "/home/u/net".into(),
        started_unix_us: 1_790_000_000_000_000,
        duration_ns: 2_000_000,
        threads: vec![Thread { number: ThreadId(1), os_id: 42, name: "net".into() }],
    };
    let contexts = vec![
        ContextNode { parent: ContextId::ROOT, name: String::new(), module: false },
        ContextNode { parent: ContextId::ROOT, name: "forward".into(), module: false },
    ];
    let module = Module { path: "/home/u/net/net".into(), build_id: vec![0xab, 1], base: 0x100, range: 0x100..0x900 };
    SnapshotData { process, devices: vec![device], stacks: stacks(), contexts, modules: vec![module], ..empty() }
}

/// The same as a sample: of blocks below 1 KiB some were recorded, and stand for others.
pub(crate) fn a_sample() -> SnapshotData {
    let mut data = two_lines_and_a_temporary();
    (data.settings.min_size, data.settings.sample_interval) = (0, 1024);
    let sampling = data.settings.sampling(Device::Cpu);
    let device = &mut data.devices[0];
    device.sampling = sampling;
    (device.below_threshold, device.peak.below_threshold) = (0, 0);
    let sum = |blocks: &[Block]| blocks.iter().map(|block| sampling.bytes(block.size)).sum::<u64>();
    let parts = |blocks: &[Block]| blocks.iter().map(|block| sampling.parts(block.size)).sum::<u64>();
    let (at_peak, live, lines) = (&device.peak.blocks, &device.live, &device.peak.blocks[..2]);
    let (peak, current, temporary) = (1024 + sum(at_peak), 1024 + sum(live), (sampling.bytes(64), sampling.parts(64)));
    let (allocated, count) = (sum(at_peak) + temporary.0, parts(at_peak) + temporary.1);
    let bytes = Stat { current, peak, allocated, freed: allocated + 1024 - current };
    let [now, most, all] = [parts(live), parts(at_peak), count].map(Sampling::whole);
    device.stats = MemoryStats {
        allocated_bytes: bytes,
        active_bytes: bytes,
        reserved_bytes: bytes,
        allocations: Stat { current: now, peak: most, allocated: all, freed: Sampling::whole(count - parts(live)) },
        counted: Some(Counted { now: 4200, at_peak: 5300, before: 70 }),
        ..MemoryStats::default()
    };
    let (own, calls) = (sum(lines), Sampling::whole(parts(lines)));
    device.scopes[0] = ScopeStats {
        allocations: calls,
        allocated_bytes: own,
        own_peak: own,
        total_peak: Some(1024 + own),
        ..device.scopes[0]
    };
    device.peak.bytes = peak;
    data
}

fn stats() -> MemoryStats {
    let bytes = Stat { current: 3524, peak: 4524, allocated: 3564, freed: 1064 };
    MemoryStats {
        num_ooms: 0,
        num_alloc_retries: 0,
        allocated_bytes: bytes,
        active_bytes: bytes,
        reserved_bytes: bytes,
        allocations: Stat { current: 2, peak: 3, allocated: 4, freed: 2 },
        below_threshold: 128,
        counted: None,
    }
}

fn block(address: u64, size: u64, seq: u64, stack: StackId, context: ContextId) -> Block {
    Block {
        address,
        size,
        seq,
        time_ns: seq * 1000,
        stack,
        context,
        thread: ThreadId(1),
        stream: 0,
        memory: MemoryKind::Heap,
    }
}

fn record(kind: RecordKind, block: &Block, time_ns: u64) -> Record {
    let stack = if kind == RecordKind::Alloc { block.stack } else { StackId::NONE };
    Record {
        time_ns,
        address: block.address,
        size: block.size,
        stack,
        alloc_stack: block.stack,
        context: block.context,
        thread: block.thread,
        alloc_seq: block.seq,
        stream: block.stream,
        kind,
        memory: block.memory,
    }
}

/// 1: candle below `Net::forward` (line 7) below `main`; 2: rayon alone; 3: `main` with an array type
/// whose name has a semicolon.
fn stacks() -> Stacks {
    let registry = "/home/u/.cargo/registry/src/index-1";
    let frame = |function: &str, file: String, line| Frame { function: function.into(), file, line, inlined: false };
    let frames = vec![
        frame("candle_core::tensor::Tensor::relu", format!("{registry}/candle-core-0.11.1/src/tensor.rs"), 700),
        frame("net::Net::forward", "/home/u/net/src/model.rs".into(), 7),
        frame("net::main", "/home/u/net/src/main.rs".into(), 3),
        frame("rayon_core::join::join", format!("{registry}/rayon-core-1.13.0/src/join/mod.rs"), 130),
        frame("net::pad::<[f32; 4]>", "/home/u/net/src/main.rs".into(), 9),
        frame("std::rt::lang_start", "/rustc/1234/library/std/src/rt.rs".into(), 206),
    ];
    let address = |n: u32| CodeAddress {
        address: 0x200 + u64::from(n),
        module: Some(0),
        offset: 0x100 + u64::from(n),
        frames: n..n + 1,
    };
    let calls = vec![0, 1, 2, 5, 3, 4, 2, 5];
    Stacks { starts: vec![0, 0, 4, 5], calls, addresses: (0..6).map(address).collect(), frames }
}
