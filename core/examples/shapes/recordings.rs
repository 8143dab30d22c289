//! Shapes of captures.

use std::num::NonZeroU64;

use memtrace_core::snapshot::{
    BlockName, ContextId, Gap, Mapping, MappingKind, Mappings, OutOfMemory, Record, RecordKind, Segment, SegmentRecord,
    StackId, Thread, ThreadId,
};
use memtrace_core::{Category, Device, Rules, SnapshotData};

use super::recording::{APART, Beside, FIRST, SIZE, add, alloc, contexts, frame, free, mark, program, stacks};

const GPU: Device = Device::Cuda(0);
/// Scopes within scopes that the reader accepts, nearly.
const DEEP: u64 = 4000;

type MakeRecording = fn(u64) -> SnapshotData;

pub(super) const SHAPES: &[(&str, MakeRecording)] = &[
    ("segments", |n| of_segments(n, true)),
    ("released-segments", |n| {
        let released = |at| segment_record(at, FIRST + at * APART, RecordKind::Free, n + at);
        let reserved = (0..n).map(|at| segment_record(at, FIRST + at * APART, RecordKind::Alloc, at));
        let segment_records = reserved.chain((0..n).map(released)).collect();
        one(GPU, allocs(n), Beside { segment_records, ..Beside::default() })
    }),
    ("reserved-segments", |n| of_segments(n, false)),
    ("deep-stack", |n| {
        let frames: Vec<_> = (0..n).map(|at| frame(&format!("f{at}"), "src/main.rs", 10)).collect();
        let numbers: Vec<u32> = (0..n as u32).collect();
        let mut data = program();
        data.stacks = stacks(frames, &[&numbers]);
        add(&mut data, Device::Cpu, allocs(100), Beside::default());
        data
    }),
    ("inlined", |n| {
        let mut data = program();
        data.stacks = stacks((0..n).map(|at| frame(&format!("f{at}"), "src/main.rs", 5)).collect(), &[&[0]]);
        data.stacks.addresses.truncate(1);
        data.stacks.addresses[0].frames = 0..n as u32;
        add(&mut data, Device::Cpu, allocs(100), Beside::default());
        data
    }),
    ("stacks", |n| of_stacks(n, |at| frame(&format!("f{at}"), "src/main.rs", at as u32 % 100_000 + 1))),
    ("lines-of-one-function", |n| of_stacks(n, |at| frame("net::f", "src/main.rs", at as u32 + 1))),
    ("nested-scopes", |n| {
        let mut data = program();
        contexts(&mut data, 0..DEEP as u32, |at| format!("s{at}"));
        let records = (0..n).map(|at| Record { context: ContextId(1 + (at % DEEP) as u32), ..alloc(at) }).collect();
        add(&mut data, Device::Cpu, records, Beside::default());
        data
    }),
    ("mappings", |n| {
        let mut data = one(Device::Cpu, allocs(1000), Beside::default());
        let kinds = MappingKind::ALL.into_iter().cycle();
        let mapping = |(at, kind): (u64, MappingKind)| Mapping {
            kind,
            start: FIRST + at * APART,
            size: SIZE,
            resident: SIZE,
            count: 1,
            path: format!("/files/{at}"),
            stack: StackId(1),
        };
        let rows = (0..n).zip(kinds).map(mapping).collect();
        data.process.mappings = Some(Mappings { time_ns: 1 << 30, rows, ..Mappings::default() });
        data
    }),
    ("scopes", |n| of_scopes(n, "s")),
    ("steps", |n| of_scopes(n, "step ")),
    ("never-left", |n| {
        let marks = (0..n).map(|at| mark(10 * at, 1, true)).collect();
        in_one_scope("s", 1000, marks)
    }),
    ("left-in-order", |n| {
        let mut data = program();
        contexts(&mut data, (0..n).map(|_| 0), |at| format!("s{at}"));
        let entered = (0..n).map(|at| mark(10 * at, 1 + at, true));
        let marks = entered.chain((0..n).map(|at| mark(10 * (n + at), 1 + at, false))).collect();
        add(&mut data, Device::Cpu, allocs(1000), Beside { marks, ..Beside::default() });
        data
    }),
    ("threads-with-scopes", |n| {
        let marks =
            (0..n).map(|at| memtrace_core::snapshot::Mark { thread: ThreadId(at as u32), ..mark(10 * at, 1, true) });
        in_one_scope("s", 1000, marks.collect())
    }),
    ("loops", |n| {
        let mut data = program();
        contexts(&mut data, (0..n / 8).map(|_| 0), |at| format!("loop {}", letters(at)));
        let pass = |loop_of: u64| (0..4).flat_map(move |at| [true, false].map(|enter| (loop_of, at, enter)));
        let marks = (0..n / 8).flat_map(pass).enumerate();
        let marks = marks.map(|(at, (of, _, enter))| mark(1000 * at as u64, 1 + of, enter)).collect();
        add(&mut data, Device::Cpu, allocs(n), Beside { marks, ..Beside::default() });
        data
    }),
    ("threads", |n| {
        let mut data = program();
        let thread = |at: u64| Thread { number: ThreadId(at as u32), os_id: at as u32, name: format!("t{at}") };
        data.process.threads = (0..n).map(thread).collect();
        let records = (0..n).map(|at| Record { thread: ThreadId(at as u32), ..alloc(at) }).collect();
        add(&mut data, Device::Cpu, records, Beside::default());
        data
    }),
    ("streams", |n| one(GPU, (0..n).map(|at| Record { stream: at as u32, ..alloc(at) }).collect(), Beside::default())),
    ("devices", |n| {
        let mut data = program();
        for ordinal in 0..1000 {
            add(&mut data, Device::Cuda(ordinal), allocs(n.div_ceil(1000)), Beside::default());
        }
        data
    }),
    ("modules", |n| {
        let mut data = program();
        contexts(&mut data, (0..n).map(|_| 0), |at| format!("m{at}"));
        data.contexts.iter_mut().skip(1).for_each(|node| node.module = true);
        let records = (0..n).map(|at| Record { context: ContextId(1 + at as u32), ..alloc(at) }).collect();
        add(&mut data, Device::Cpu, records, Beside::default());
        data
    }),
    ("names", |n| {
        let mut data = one(Device::Cpu, allocs(n), Beside::default());
        let name = |seq| BlockName { seq, name: format!("n{seq}"), category: Category::Unknown };
        data.devices[0].names = (1..=n).filter_map(NonZeroU64::new).map(name).collect();
        data
    }),
    ("long-function", |n| {
        let mut data = program();
        data.stacks = stacks(vec![frame(&"A".repeat(n as usize), "src/main.rs", 10)], &[&[0]]);
        add(&mut data, Device::Cpu, allocs(100), Beside::default());
        data
    }),
    ("long-scope", |n| in_one_scope(&"B".repeat(n as usize), 1000, Vec::new())),
    ("long-scope-many-times", |n| {
        let marks = (0..n / 2).flat_map(|at| [mark(20 * at, 1, true), mark(20 * at + 10, 1, false)]);
        in_one_scope(&"B".repeat(1000), n, marks.collect())
    }),
    ("long-thread", |n| {
        let mut data = one(Device::Cpu, allocs(1000), Beside::default());
        data.process.threads = vec![Thread { number: ThreadId(0), os_id: 0, name: "C".repeat(n as usize) }];
        data
    }),
    ("one-address", |n| {
        one(Device::Cpu, (0..n).map(|at| Record { address: FIRST, ..alloc(at) }).collect(), Beside::default())
    }),
    ("in-turn", |n| {
        let pair = |at| [alloc(at), free(&alloc(at), 1000 * at + 1)];
        one(Device::Cpu, (0..n / 2).flat_map(pair).collect(), Beside::default())
    }),
    ("overlapping", |n| {
        let block = |at| Record { address: FIRST + at, size: 1 << 20, ..alloc(at) };
        one(Device::Cpu, (0..n).map(block).collect(), Beside::default())
    }),
    ("growing", |n| {
        one(Device::Cpu, (0..n).map(|at| Record { size: SIZE + at, ..alloc(at) }).collect(), Beside::default())
    }),
    ("operator", |n| of_operator("matmul", allocs(n))),
    ("chain", |n| {
        let next = |at: u64| {
            [Some(alloc(at)), at.checked_sub(1).map(|before| free(&alloc(before), 1000 * at + 1))].into_iter().flatten()
        };
        of_operator("relu", (0..n / 2).flat_map(next).collect())
    }),
    ("operator-on-threads", |n| {
        let of = |at: u64, thread: u64| Record { thread: ThreadId((thread % (n / 4).max(1)) as u32), ..alloc(at) };
        let allocs = (0..n / 2).map(|at| of(at, at));
        let frees = (0..n / 2).map(|at| free(&of(at, at), 1000 * (n + at)));
        of_operator("relu", allocs.chain(frees).collect())
    }),
    ("refused", |n| {
        let mut data = one(GPU, allocs(1), Beside::default());
        let refused = |at| OutOfMemory { time_ns: 10 * at, size: SIZE, ..OutOfMemory::default() };
        data.devices[0].ooms = (0..n).map(refused).collect();
        data
    }),
    ("gaps", |n| {
        let mut data = one(Device::Cpu, allocs(n), Beside::default());
        let gap = |at| Gap { at: at as usize, records: 1, from_ns: 1000 * at, to_ns: 1000 * at };
        data.devices[0].gaps = (0..n).map(gap).collect();
        data
    }),
    ("rules", |n| {
        let mut data = one(Device::Cpu, allocs(100), Beside::default());
        let mut rules = Rules::default();
        // As many as a program may add.
        let lines: String = (0..n.min(500)).map(|at| format!("step foo{at}\n")).collect();
        rules.add(&lines).expect("rules");
        data.settings.rules = rules;
        data
    }),
];

fn allocs(n: u64) -> Vec<Record> {
    (0..n).map(alloc).collect()
}

fn one(device: Device, records: Vec<Record>, beside: Beside) -> SnapshotData {
    let mut data = program();
    add(&mut data, device, records, beside);
    data
}

/// A block outside of each of these segments, which are there at the end or were reserved in the log.
fn of_segments(n: u64, are_told: bool) -> SnapshotData {
    let told = |at| Segment { address: FIRST + at * APART + SIZE, size: 1024, ..Segment::default() };
    let told: Vec<Segment> = (0..n).map(told).collect();
    let reserved = |(at, segment): (u64, &Segment)| SegmentRecord {
        size: segment.size,
        ..segment_record(at, segment.address, RecordKind::Alloc, at)
    };
    let segment_records = if are_told { Vec::new() } else { (0..).zip(&told).map(reserved).collect() };
    one(GPU, allocs(n), Beside { told, segment_records, ..Beside::default() })
}

fn segment_record(_: u64, address: u64, kind: RecordKind, time: u64) -> SegmentRecord {
    let (stack, context, thread) = (StackId::NONE, ContextId::ROOT, ThreadId(0));
    SegmentRecord { time_ns: 1000 * time, address, size: SIZE, kind, estimated: false, stack, context, thread }
}

/// A block by each of these stacks.
fn of_stacks(n: u64, frame: impl Fn(u64) -> memtrace_core::snapshot::Frame) -> SnapshotData {
    let mut data = program();
    let numbers: Vec<[u32; 1]> = (0..n as u32).map(|at| [at]).collect();
    let of_frames: Vec<&[u32]> = numbers.iter().map(<[u32; 1]>::as_slice).collect();
    data.stacks = stacks((0..n).map(frame).collect(), &of_frames);
    let stack = |at: u64| StackId(1 + at as u32);
    let records = (0..n).map(|at| Record { stack: stack(at), alloc_stack: stack(at), ..alloc(at) }).collect();
    add(&mut data, Device::Cpu, records, Beside::default());
    data
}

/// Scopes of one thread, one after the other, with a block in each.
fn of_scopes(n: u64, name: &str) -> SnapshotData {
    let mut data = program();
    contexts(&mut data, (0..n).map(|_| 0), |at| format!("{name}{at}"));
    let records = (0..n).map(|at| Record { context: ContextId(1 + at as u32), ..alloc(at) }).collect();
    let both = |at| [mark(1000 * at, 1 + at, true), mark(1000 * at + 5, 1 + at, false)];
    add(&mut data, Device::Cpu, records, Beside { marks: (0..n).flat_map(both).collect(), ..Beside::default() });
    data
}

fn in_one_scope(name: &str, blocks: u64, marks: Vec<memtrace_core::snapshot::Mark>) -> SnapshotData {
    let mut data = program();
    contexts(&mut data, std::iter::once(0), |_| name.to_owned());
    let records = (0..blocks).map(|at| Record { context: ContextId(1), ..alloc(at) }).collect();
    add(&mut data, Device::Cpu, records, Beside { marks, ..Beside::default() });
    data
}

/// All records by one operator that one line calls.
fn of_operator(name: &str, records: Vec<Record>) -> SnapshotData {
    let mut data = program();
    let operator = frame(&format!("candle_core::tensor::Tensor::{name}"), "candle_core/src/tensor.rs", 10);
    data.stacks = stacks(vec![operator, frame("main", "src/main.rs", 20)], &[&[0, 1]]);
    add(&mut data, Device::Cpu, records, Beside::default());
    data
}

/// A name without digits, which would be one loop with the others.
fn letters(number: usize) -> String {
    format!("{number}").chars().map(|digit| char::from(b'a' + digit as u8 - b'0')).collect()
}
