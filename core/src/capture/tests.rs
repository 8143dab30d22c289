//! Round trips of captures, and errors for damaged, foreign and hostile bytes.

use std::num::NonZeroU64;

use super::*;
use crate::snapshot::testing::{self, LINE_7, LINE_9, Story, WORKER};
use crate::snapshot::{
    Action, BlockIdle, BlockName, BlockUse, BlockUses, CallTime, Category, ContextId, CudaHooks, CudaState, DeadWrite,
    Device, DeviceThreads, Gap, GpuTotals, GpuWork, GraphMemory, GraphNode, GraphNodeKind, HostMemory, IdleTime,
    KernelId, LocalMemory, Mapping, MappingKind, Mappings, MemoryKind, OlderRow, OlderTime, Operands, Process,
    ResidentMemory, SnapshotData, Spans, StackId, SystemMemory, ThreadId, UnifiedMemory, UnseenCalls,
};

pub(super) fn bytes_of(data: &SnapshotData) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(data, usize::MAX, &mut bytes).unwrap();
    bytes
}

/// A recording of every block with every kind of data.
fn sample() -> SnapshotData {
    let mut trace = two_lines_of_many_kinds();
    trace.pool(Pool {
        used: 1,
        used_high: 20,
        reserved: 300,
        reserved_high: 4000,
        release_threshold: u64::MAX,
        used_before: None,
    });
    let graphs = Some(GraphMemory { used: 1, used_high: 2, reserved: 3, reserved_high: 4 });
    let pools = DeviceMemory { own_pools: 1, own_pools_used: 6, own_pools_reserved: 7, ..Default::default() };
    trace.memory_of_device(DeviceMemory { free: 10, total: 20, graphs, ..pools });
    let growing = CallTime { growing: 1, growing_ns: 300, ..Default::default() };
    trace.driver_took(CallTime { stack: LINE_7, allocs: 3, alloc_ns: 400, ..growing });
    trace.driver_took(CallTime { context: ContextId(1), frees: 2, free_ns: 60, ..Default::default() });
    let mut data = trace.build();
    let device = &mut data.devices[0];
    device.ooms.last_mut().unwrap().device_total = Some(5);
    device.segment_records.last_mut().unwrap().estimated = true;
    device.lost_names = 3;
    let thread = ThreadId(1);
    let node = GraphNode { time_ns: 9, thread, place: 0, kind: GraphNodeKind::View, bytes: 400, block: None };
    let block = NonZeroU64::new(2);
    device.graph_nodes = vec![node, GraphNode { place: 1, kind: GraphNodeKind::Result, block, ..node }];
    data.process.rank = Some(0);
    data.process.memory = Some(host_memory());
    data.process.mappings = Some(mappings(7, 5));
    data.health = health();
    data
}

fn mappings(time_ns: u64, resident: u64) -> Mappings {
    let (kind, path) = (MappingKind::File, "/m.safetensors".to_owned());
    let file = Mapping { kind, start: 1 << 63, size: 90, resident, count: 2, path, stack: StackId::NONE };
    Mappings { time_ns, below_threshold: 3, own: 4, rows: vec![file, Mapping::default()] }
}

fn host_memory() -> HostMemory {
    HostMemory { time_ns: 9, resident: 8, resident_high: 70, files: 6, files_high: 50, swapped: 4 }
}

/// Two lines and a temporary, with data of CUDA devices.
fn two_lines_of_many_kinds() -> Story {
    let mut trace = Story::cpu();
    trace.before(1024).below_threshold(128);
    trace.at(0).refused(1 << 40, Some(0)).on(LINE_7);
    trace.at(4).thread(3).enter("forward");
    trace.at(5).segment_alloc(0x7f00_0000_0000, 32 << 20).on(WORKER);
    trace.at(7).segment_free(0x7f00_0000_0000);
    trace.at(8).leave("forward");
    trace.at(9).thread(1).refused(1 << 40, Some(0)).on(LINE_7);
    trace.at(900).enter("forward");
    trace.at(1_000).alloc("input", 2000).on(LINE_7).memory(MemoryKind::Graph);
    trace.at(2_000).alloc("weights", 1000).on(LINE_7).memory(MemoryKind::Imported);
    trace.named("weights f32[250]", Category::Parameter);
    trace.at(2_500).leave("forward");
    trace.at(3_000).alloc("worker's", 500).on(WORKER).memory(MemoryKind::Imported);
    trace.at(4_000).free("weights");
    trace.at(5_000).alloc("temporary", 64).on(LINE_9).memory(MemoryKind::Imported);
    trace.at(6_000).free("temporary");
    trace
}

fn operands(block: u64, of: &[u64]) -> Operands {
    let (mut operands, number) = (Operands::default(), |number| NonZeroU64::new(number).unwrap());
    of.iter().for_each(|operand| operands.add(number(block), number(*operand)));
    operands
}

/// A recording with uses of a freed block, and with a block that nothing used.
fn with_uses() -> SnapshotData {
    let mut data = two_lines_of_many_kinds().build();
    let used = |operation, kernel| BlockUse {
        operation,
        time_ns: 10 * operation,
        after_alloc: 2,
        frees_after: 1,
        stack: LINE_7,
        kernel: KernelId(kernel),
        stream: 3,
    };
    let idle = IdleTime { operations: 4, from_ns: 10, to_ns: 60, from_alloc: 2, to_alloc: 3 };
    let many = operands(9, &[1, 2, 3, 4, 5, 6, 7]);
    let unused = BlockUses { operands: many, ..BlockUses::new(NonZeroU64::MIN, 0) };
    let freed = BlockUses {
        freed_at: Some(7),
        count: 2,
        reads: 1,
        writes: 1,
        first: Some(used(1, 0)),
        last: Some(used(6, 1)),
        idle: Some(idle),
        opaque_first: true,
        operands: operands(2, &[1, 3]),
        dead_write: Some(DeadWrite { bytes: 8, first: KernelId(1), second: KernelId(0), stack: LINE_9 }),
        ..BlockUses::new(NonZeroU64::new(2).unwrap(), 1)
    };
    data.devices[0].uses =
        vec![unused, freed, BlockUses { escaped: true, ..BlockUses::new(NonZeroU64::new(3).unwrap(), 8) }];
    let seq = NonZeroU64::new(2).unwrap();
    let times = [idle, IdleTime { operations: 20, from_ns: 70, to_ns: 900, from_alloc: 3, to_alloc: 5 }];
    data.devices[0].idle = times.map(|time| BlockIdle { seq, time }).to_vec();
    data.settings.uses = true;
    let totals = GpuTotals { operations: 9, launches: 8, laid_out: 7, copies: 1, last_opaque: 0, ..Default::default() };
    let kernels = vec!["add".to_owned(), "cuMemcpyDtoH_v2".to_owned()];
    let local = vec![LocalMemory { kernel: KernelId(0), bytes: 1168, stack: LINE_9 }];
    data.gpu_work = Some(GpuWork { kernels, totals, opaque: vec![(KernelId(0), 1)], local });
    data
}

/// An opaque launch may have used a live block after the block's uses were written.
#[test]
fn a_live_block_may_have_been_used_by_what_came_after_its_uses_were_written() {
    let mut data = with_uses();
    data.gpu_work.as_mut().unwrap().totals.last_opaque = 8;
    let read = read(&bytes_of(&data)).unwrap().data;
    let opaque: Vec<u64> = read.devices[0].uses.iter().map(|uses| uses.last_opaque).collect();
    assert_eq!(opaque, [8, 0, 0], "the second was freed, the third came later");
    assert!(!read.devices[0].uses[0].is_unused());
}

fn health() -> Health {
    let unseen = UnseenCalls { function: "cuMemCreate".into(), calls: 3 };
    Health {
        unreadable_objects: vec!["libx.so: the file is gone".into()],
        unknown_frees: 7,
        refused_frees: 9,
        cuda: CudaHooks {
            state: CudaState::Active,
            imports: 31,
            refused_imports: 1,
            looked_up: 12,
            unseen_calls: vec![unseen],
        },
        ..Health::default()
    }
}

#[test]
fn what_is_written_is_read_and_written_again() {
    for data in [sample(), with_uses(), testing::a_sample(), testing::empty()] {
        let bytes = bytes_of(&data);
        let capture = read(&bytes).unwrap();
        assert!(capture.names.any);
        assert_eq!(capture.data, data);
        assert_eq!(bytes_of(&capture.data), bytes);
    }
}

#[test]
fn the_hosts_memory_is_read_again_whatever_of_it_is_known() {
    let (system, process) =
        (SystemMemory { total: 30, available: 20, free: 10 }, ResidentMemory { resident: 5, files: 2 });
    for system in [None, Some(system)] {
        for process in [None, Some(process)] {
            let mut data = sample();
            let unified = Some(UnifiedMemory { system, process });
            let threads = Some(DeviceThreads { count: 270_336, stack: 1168 });
            data.devices[0].memory = Some(DeviceMemory { unified, threads, ..Default::default() });
            assert_eq!(read(&bytes_of(&data)).unwrap().data, data);
        }
    }
    let mut data = sample();
    data.devices[0].memory = Some(DeviceMemory::default());
    let bytes = bytes_of(&data);
    let memory = read(&bytes).unwrap().data.devices[0].memory.unwrap();
    assert_eq!((memory.unified, memory.threads), (None, None), "as in older captures");
}

#[test]
fn the_bytes_of_a_small_capture_are_as_documented() {
    let bytes = bytes_of(&testing::empty());
    assert_eq!(bytes[..12], *b"memtrace\x01\0\0\0");
    // process: six empty fields
    assert_eq!(bytes[12..21], [1, 6, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[21..25], crc32fast::hash(&[&bytes[12..21], &[0; 6]].concat()).to_le_bytes());
    assert_eq!(bytes[25..31], [0; 6]);
    assert_eq!(bytes[31], 2);
}

#[test]
fn a_capture_cut_anywhere_is_refused_or_read_to_its_last_commit() {
    let data = sample();
    let bytes = bytes_of(&data);
    let commit = bytes.len() - CHUNK_HEADER;
    for length in 0..bytes.len() {
        match read(&bytes[..length]) {
            Ok(capture) => {
                assert!(length >= commit && capture.data.health.cut_off, "{length}");
                assert_eq!(capture.data.devices, data.devices);
                assert_eq!(capture.data.health.unread_bytes, (length - commit) as u64);
            }
            Err(error) => assert!(length < commit, "{length}: {error}"),
        }
    }
}

#[test]
fn a_flipped_bit_anywhere_is_noticed() {
    let data = sample();
    let bytes = bytes_of(&data);
    for at in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[at / 8] ^= 1 << (at % 8);
        if let Ok(capture) = read(&damaged) {
            assert!(capture.data.health.unread_bytes > 0 || capture.data.health.cut_off, "bit {at}");
        }
    }
}

#[test]
fn other_files_are_refused() {
    let newer = [&MAGIC[..], &7u32.to_le_bytes(), &[0; 40]].concat();
    for (bytes, word) in [(&b""[..], "begin"), (b"\x80\x04}q\x00.", "begin"), (&newer, "version 7")] {
        let error = read(bytes).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
}

/// Chunks with valid checksums and impossible content.
#[test]
fn impossible_content_is_refused() {
    let chunk = |tag: Tag, payload: &[u8]| [&chunk_head(tag as u8, payload), payload].concat();
    let commit = chunk(Tag::Commit, &[0; 12]);
    let file = |chunks: &[u8]| [&MAGIC[..], &VERSION.to_le_bytes(), chunks, &commit].concat();
    assert!(read(&file(&[])).is_ok());
    let context_before_its_parent = chunk(Tag::Contexts, &[1, 10, 1, b'a']);
    let stack_of_no_address = chunk(Tag::Stacks, &[1, 1, 0]);
    let record_of_no_stack = chunk(Tag::Records, &[0, 1, 2, 0, 0, 1, 9, 0, 0, 2, 0]);
    let too_many = chunk(Tag::Addresses, &[0xff, 0xff, 0xff, 0xff, 0x0f]);
    let too_long = chunk(Tag::End, &[1]);
    let unsummed_peak = chunk(Tag::Counters, &[[0, 0, 0, 5].as_slice(), &[0; 23]].concat());
    let gap_without_live = chunk(Tag::Gap, &[0, 3]);
    let skipped_without_live = chunk(Tag::Skipped, &[0, 3, 0, 9]);
    let gap_behind_the_log = chunk(Tag::Gaps, &[0, 1, 2, 3, 0, 0]);
    let no_device = chunk(Tag::Gap, &[0xff, 0xff, 0xff, 0xff, 0xff, 0x0f, 0]);
    let unknown_setting = chunk(Tag::Settings, &[9, 0, 0, 0, 0, 0, 0, 0]);
    let [no_interval, long_interval] = [&[3][..], &[0x80, 0x80, 0x80, 0x80, 8]].map(|n| chunk(Tag::Sampling, n));
    let name_of_no_block = chunk(Tag::Names, &[0, 0, 1, 0, 1, b'a', 7]);
    let long_name = chunk(Tag::Names, &[&[0, 0, 1, 2, 0x81, 2][..], &[b'a'; 257], &[7]].concat());
    let no_category = chunk(Tag::Names, &[0, 0, 1, 2, 1, b'a', 10]);
    let unified_without_memory = chunk(Tag::Unified, &[1, 0, 0]);
    let threads_without_memory = chunk(Tag::DeviceThreads, &[1, 0, 0]);
    let no_rule = chunk(Tag::Settings, &[0, 0, 0, 0, 0, 0, 0, 0, 3, b'n', b'o', b'x']);
    for (bad, word) in [
        (&no_interval, "interval"),
        (&long_interval, "interval"),
        (&name_of_no_block, "without a block"),
        (&long_name, "longer"),
        (&no_category, "category"),
        (&no_rule, "rules"),
        (&unified_without_memory, "without the device's"),
        (&threads_without_memory, "without its memory"),
        (&context_before_its_parent, "parent context"),
        (&stack_of_no_address, "address number"),
        (&record_of_no_stack, "stack number"),
        (&too_many, "count"),
        (&unsummed_peak, "add up"),
        (&gap_without_live, "gap"),
        (&skipped_without_live, "skipped"),
        (&gap_behind_the_log, "outside the log"),
        (&no_device, "device"),
        (&unknown_setting, "setting"),
    ] {
        let error = read(&file(bad)).unwrap_err().to_string();
        assert!(error.contains(word), "{word}: {error}");
    }
    assert!(read(&file(&too_long)).is_err());
}

#[test]
fn chunks_with_unknown_tags_are_skipped() {
    let bytes = bytes_of(&sample());
    let unknown = [&chunk_head(200, b"new")[..], b"new"].concat();
    let with = [&bytes[..HEADER], &unknown, &bytes[HEADER..]].concat();
    assert_eq!(read(&with).unwrap().data, sample());
}

#[test]
fn private_pools_of_segments_come_back() {
    let mut data = sample();
    data.devices[0].segments[0].pool = Some((1, u64::MAX));
    assert_eq!(read(&bytes_of(&data)).unwrap().data, data);
}

/// Readings as in a streamed capture.
#[test]
fn the_last_reading_of_resident_memory_counts_with_the_most_of_files() {
    let mut encoder = Encoder::begin(Vec::new()).unwrap();
    let later = HostMemory { time_ns: 20, resident: 5, files: 1, files_high: 1, ..host_memory() };
    for memory in [host_memory(), later] {
        encoder.host_memory(Some(memory)).unwrap();
        encoder.process(&Process::default()).unwrap();
    }
    encoder.commit(&Commit::default()).unwrap();
    let read = read(encoder.out()).unwrap().data.process.memory;
    assert_eq!(read, Some(HostMemory { files_high: 50, ..later }));
}

#[test]
fn of_readings_of_mappings_the_one_with_most_counts() {
    let mut encoder = Encoder::begin(Vec::new()).unwrap();
    for (time_ns, resident) in [(1, 5), (2, 50), (3, 4)] {
        encoder.mappings(&mappings(time_ns, resident)).unwrap();
        encoder.process(&Process::default()).unwrap();
    }
    encoder.commit(&Commit::default()).unwrap();
    assert_eq!(read(encoder.out()).unwrap().data.process.mappings, Some(mappings(2, 50)));
}

#[test]
fn names_come_in_parts_and_the_last_one_counts() {
    let named = |seq, name: &str| BlockName {
        seq: NonZeroU64::new(seq).unwrap(),
        name: name.into(),
        category: Category::Activation,
    };
    let mut encoder = Encoder::begin(Vec::new()).unwrap();
    encoder.names(Device::Cpu, &[named(9, "nine"), named(4, "four")], 2).unwrap();
    encoder.names(Device::Cuda(1), &[named(4, "elsewhere")], 0).unwrap();
    encoder.names(Device::Cpu, &[named(4, "4")], 1).unwrap();
    encoder.commit(&Commit::default()).unwrap();
    let data = read(encoder.out()).unwrap().data;
    assert_eq!(
        (data.devices[0].names.as_slice(), data.devices[0].lost_names),
        (&[named(4, "4"), named(9, "nine")][..], 3)
    );
    assert_eq!(
        (data.devices[1].name(NonZeroU64::new(4)), data.devices[1].name(NonZeroU64::new(9))),
        (Some("elsewhere"), None)
    );
}

#[test]
fn a_capture_of_fewer_records_has_the_newest() {
    let data = sample();
    let mut bytes = Vec::new();
    write(&data, 2, &mut bytes).unwrap();
    let read = read(&bytes).unwrap().data;
    let (all, few) = (&data.devices[0], &read.devices[0]);
    assert_eq!((few.records.as_slice(), few.overwritten), (&all.records[4..], 4));
    assert_eq!((&few.peak, &few.live, &few.scopes), (&all.peak, &all.live, &all.scopes));
}

/// Live blocks, the peak's blocks and the scopes follow from the records alone, as in a streamed capture.
#[test]
fn a_device_without_lists_is_replayed() {
    for data in [sample(), testing::a_sample()] {
        replayed_alone(&data);
    }
}

fn replayed_alone(data: &SnapshotData) {
    let device = &data.devices[0];
    let mut encoder = Encoder::begin(Vec::new()).unwrap();
    encoder.settings(&data.settings).unwrap();
    encoder.contexts(&data.contexts[1..]).unwrap();
    encoder.addresses(data.stacks.addresses.iter().map(|address| address.address)).unwrap();
    encoder.stacks(data.stacks.each_calls().skip(1)).unwrap();
    encoder.records(device.device, &device.records).unwrap();
    encoder.marks(device.device, &device.marks).unwrap();
    encoder.counters(device.device, &Counters::of(device)).unwrap();
    encoder.commit(&Commit::default()).unwrap();
    let capture = read(encoder.out()).unwrap();
    assert!(!capture.names.any && capture.data.health.cut_off);
    let replayed = &capture.data.devices[0];
    assert_eq!((&replayed.live, &replayed.peak), (&device.live, &device.peak));
    assert_eq!((&replayed.scopes, &replayed.segments), (&device.scopes, &device.segments));
}

/// Without the chunk, older readers can read the recording.
#[test]
fn a_recording_of_every_block_has_no_chunk_about_sampling() {
    let has = |data: &SnapshotData, tag: Tag| {
        let (bytes, empty) = (bytes_of(data), chunk_head(tag as u8, &[])[0]);
        let mut rest = &bytes[HEADER..];
        let mut found = false;
        while let Some((head, after)) = rest.split_at_checked(CHUNK_HEADER) {
            found |= head[0] == empty;
            rest = &after[u64::from_le_bytes(head[1..9].try_into().unwrap()) as usize..];
        }
        found
    };
    for tag in [Tag::Sampling, Tag::Counted] {
        assert!(has(&testing::a_sample(), tag) && !has(&sample(), tag));
    }
}

/// Every chunk that a whole capture can have.
fn everything() -> SnapshotData {
    let mut data = sample();
    let device = &mut data.devices[0];
    device.gaps = vec![
        Gap { at: 1, records: 20, from_ns: 1_000, to_ns: 1_500 },
        Gap { at: 3, records: 7, from_ns: 3_000, to_ns: 3_500 },
    ];
    device.total_at_first = Some(24 << 30);
    data.settings.device = Some(Device::Cuda(3));
    data.settings.skip_actions = vec![Action::FreeCompleted, Action::Alloc];
    data.settings.rules.add("framework my_tensors").unwrap();
    data.health.spans = Spans::Silenced;
    data.process.rank = Some(6);
    data
}

/// The newest part of a stream that has deleted others.
fn with_older_times() -> SnapshotData {
    let mut data = everything();
    let device = &mut data.devices[0];
    let row = |stack, least, at_highest| OlderRow { of: StackId(stack), least, at_highest };
    let mut time = OlderTime { to_ns: 400, records: 20, highest: 5000, highest_ns: 300, ..OlderTime::default() };
    time.stacks = vec![row(2, 0, 4000), row(1, 700, 800), row(0, 1, 0)];
    time.scopes = vec![OlderRow { of: ContextId(1), least: 600, at_highest: 4000 }];
    let later = OlderTime { from_ns: 400, to_ns: 400, highest_ns: 400, lacks_records: true, ..OlderTime::default() };
    (device.overwritten, device.older) = (20, vec![time, later]);
    data
}

#[test]
fn older_times_come_back_unless_their_records_are_there() {
    let data = with_older_times();
    let written = bytes_of(&data);
    assert_eq!(read(&written).unwrap().data, data);
    let whole = |overwritten| {
        let mut data = data.clone();
        data.devices[0].overwritten = overwritten;
        read(&bytes_of(&data)).unwrap().data.devices[0].older.len()
    };
    assert_eq!((whole(1), whole(0)), (2, 0));
}

/// A streamed capture with skipped records.
pub(super) fn streamed() -> Vec<u8> {
    let data = sample();
    let device = &data.devices[0];
    let mut encoder = Encoder::begin(Vec::new()).unwrap();
    encoder.process(&data.process).unwrap();
    encoder.contexts(&data.contexts[1..]).unwrap();
    encoder.addresses(data.stacks.addresses.iter().map(|address| address.address)).unwrap();
    encoder.stacks(data.stacks.each_calls().skip(1)).unwrap();
    encoder.records(device.device, &device.records[..1]).unwrap();
    encoder.skipped(device.device, 4, 2, 4_500).unwrap();
    encoder.live(device.device, &device.live).unwrap();
    encoder.records(device.device, &device.records[4..]).unwrap();
    encoder.peak(device.device, &device.peak.blocks).unwrap();
    encoder.counters(device.device, &Counters::of(device)).unwrap();
    encoder.commit(&Commit::default()).unwrap();
    std::mem::take(encoder.out())
}

/// The format does not change: captures of earlier builds can be read, and are written with the same bytes.
#[test]
fn captures_match_their_goldens() {
    for (name, made) in [
        ("everything.memtrace", bytes_of(&everything())),
        ("sampled.memtrace", bytes_of(&testing::a_sample())),
        ("streamed.memtrace", streamed()),
        ("older.memtrace", bytes_of(&with_older_times())),
    ] {
        assert!(read(&made).is_ok(), "{name}");
        crate::export::golden_tests::check(name, &made);
    }
}
