//! Parts of a stream, made by cutting a log at arbitrary places, compared with the log itself.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use proptest::prelude::*;

use super::*;
use crate::snapshot::{
    CodeAddress, ContextId, ContextNode, Device, DeviceSnapshot, Frame, Mark, ObjectSpans, Record, RecordKind, Replay,
    StackId, ThreadId,
};

const DEVICE: Device = Device::Cpu;

/// A log. Each step is an alloc of a new block or the free of a live one.
fn log(steps: &[(bool, u8, u8)]) -> Vec<Record> {
    let (mut live, mut records, mut seq) = (Vec::new(), Vec::new(), 0);
    for (time_ns, (is_alloc, size, stack)) in (10..).zip(steps) {
        if *is_alloc || live.is_empty() {
            seq += 1;
            let (size, stack) = (u64::from(*size) + 1, StackId(u32::from(*stack % 5)));
            // Addresses of freed blocks are reused.
            let address = 1000 * (seq % 7 + 1) + (1 << 20) * live.len() as u64;
            let taken = live.iter().any(|block: &Block| block.address == address);
            let address = if taken { (1 << 40) + seq * 1000 } else { address };
            let block = Block { address, size, seq: NonZeroU64::new(seq), time_ns, stack, ..Block::default() };
            live.push(block);
            records.push(Record::alloc_of(&block));
        } else {
            let block = live.swap_remove(usize::from(*size) % live.len());
            let alloc = Record::alloc_of(&block);
            records.push(Record { kind: RecordKind::Free, time_ns, stack: StackId::NONE, ..alloc });
        }
    }
    records
}

/// A naive ledger of a device after some records.
#[derive(Clone, Default)]
struct State {
    live: BTreeMap<u64, Block>,
    bytes: u64,
    peak: Peak,
    allocated: u64,
}

impl State {
    fn after(records: &[Record]) -> Self {
        let mut state = Self::default();
        for record in records {
            match record.kind {
                RecordKind::Alloc => {
                    state.live.insert(record.address, record.block());
                    (state.bytes, state.allocated) = (state.bytes + record.size, state.allocated + record.size);
                }
                RecordKind::Free => {
                    state.live.remove(&record.address);
                    state.bytes -= record.size;
                }
            }
            if state.bytes > state.peak.bytes {
                let blocks = state.live();
                let (time_ns, seq) = (record.time_ns, record.alloc_seq);
                state.peak = Peak { bytes: state.bytes, time_ns, seq, blocks, ..Peak::default() };
            }
        }
        state
    }

    fn live(&self) -> Vec<Block> {
        by_seq(self.live.values().copied().collect())
    }

    fn counters(&self) -> Counters {
        let mut stats = MemoryStats::default();
        (stats.allocated_bytes.current, stats.allocated_bytes.allocated) = (self.bytes, self.allocated);
        stats.allocated_bytes.peak = self.peak.bytes;
        Counters { peak: Peak { blocks: Vec::new(), ..self.peak.clone() }, stats, ..Counters::default() }
    }
}

/// The part with the records from `from` to `to`. Parts with odd numbers number their stacks from the end of the list,
/// so that each part has numbers of its own.
fn part(records: &[Record], from: usize, to: usize, number: u64) -> Vec<u8> {
    let is_odd = number % 2 == 1;
    let renumbered = |stack: StackId| if is_odd && stack.0 > 0 { StackId(5 - stack.0) } else { stack };
    let blocks = |blocks: &[Block]| -> Vec<Block> {
        blocks.iter().map(|block| Block { stack: renumbered(block.stack), ..*block }).collect()
    };
    let before = State::after(&records[..from]);
    let mut file = Encoder::begin(Vec::new()).unwrap();
    file.part(StreamPart { run: 9, number }).unwrap();
    let addresses = [100u64, 200, 300, 400];
    file.addresses(addresses.into_iter()).unwrap();
    let mut stacks: Vec<Vec<u32>> = (0..4).map(|stack| vec![stack, 3 - stack]).collect();
    if is_odd {
        stacks.reverse();
    }
    file.stacks(stacks.iter().map(Vec::as_slice)).unwrap();
    if from > 0 {
        file.gap(DEVICE, from as u64).unwrap();
        file.log_start(DEVICE, 0, records[from - 1].time_ns).unwrap();
        file.live(DEVICE, &blocks(&before.live())).unwrap();
        file.peak(DEVICE, &blocks(&before.peak.blocks)).unwrap();
        file.counters(DEVICE, &before.counters()).unwrap();
        file.commit(&Commit::default()).unwrap();
    }
    let own: Vec<Record> = records[from..to]
        .iter()
        .map(|record| Record {
            stack: renumbered(record.stack),
            alloc_stack: renumbered(record.alloc_stack),
            ..*record
        })
        .collect();
    file.records(DEVICE, &own).unwrap();
    file.counters(DEVICE, &State::after(&records[..to]).counters()).unwrap();
    file.commit(&Commit::default()).unwrap();
    std::mem::take(file.out())
}

fn joined(parts: &[Vec<u8>]) -> SnapshotData {
    let (newest, older) = parts.split_last().unwrap();
    read_parts(newest, older.iter().rev().cloned()).unwrap().data
}

/// Blocks with the addresses of their stacks instead of the stacks' numbers.
fn named(data: &SnapshotData, blocks: &[Block]) -> Vec<(u64, u64, u64, u64, Vec<u64>)> {
    let stack = |id| data.stacks.addresses(id).map(|address| address.address).collect();
    blocks.iter().map(|b| (b.raw_seq(), b.address, b.size, b.time_ns, stack(b.stack))).collect()
}

fn check_log(device: &DeviceSnapshot) {
    let mut replay = Replay::at_log_start(device);
    device.records.iter().for_each(|record| replay.apply(record));
    let seqs = |blocks: &[Block]| blocks.iter().map(|block| block.seq).collect::<Vec<_>>();
    assert_eq!(seqs(&replay.blocks()), seqs(&device.live));
}

fn check(records: &[Record], cuts: &[usize], missing: Option<usize>) {
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut % records.len()).filter(|cut| *cut > 0).collect();
    places.extend([0, records.len()]);
    places.sort_unstable();
    places.dedup();
    let spans: Vec<(usize, usize)> = places.windows(2).map(|pair| (pair[0], pair[1])).collect();
    let mut parts: Vec<Vec<u8>> =
        spans.iter().zip(0..).map(|(span, number)| part(records, span.0, span.1, number)).collect();
    let whole = read(&part(records, 0, records.len(), 0)).unwrap().data;
    let lost = missing.map(|at| at % parts.len()).filter(|at| at + 1 < parts.len());
    if let Some(lost) = lost {
        parts.remove(lost);
    }
    let data = joined(&parts);
    let (device, expected) = (&data.devices[0], &whole.devices[0]);
    assert_eq!(named(&data, &device.live), named(&whole, &expected.live));
    assert_eq!(named(&data, &device.peak.blocks), named(&whole, &expected.peak.blocks));
    assert_eq!(
        (device.peak.bytes, device.peak.time_ns, device.stats),
        (expected.peak.bytes, expected.peak.time_ns, expected.stats)
    );
    check_log(device);
    assert_eq!(data.stacks.each_calls().count(), whole.stacks.each_calls().count());
    let length = |span: (usize, usize)| (span.1 - span.0) as u64;
    match lost.map(|lost| (lost, length(spans[lost]))) {
        None => {
            let blocks = |records: &[Record]| records.iter().map(Record::block).collect::<Vec<_>>();
            assert_eq!(named(&data, &blocks(&device.records)), named(&whole, &blocks(&expected.records)));
            assert_eq!((device.overwritten, device.gaps.len()), (0, 0));
        }
        Some((0, length)) => assert_eq!((device.overwritten, device.gaps.len()), (length, 0)),
        Some((_, length)) => {
            assert_eq!((device.overwritten, device.gaps.len()), (0, 1));
            assert_eq!(device.gaps[0].records, length);
        }
    }
}

proptest! {
    #[test]
    fn parts_are_their_log(
        steps in prop::collection::vec((any::<bool>(), any::<u8>(), any::<u8>()), 2..120),
        cuts in prop::collection::vec(any::<usize>(), 0..6),
        missing in prop::option::of(0..6usize),
    ) {
        check(&log(&steps), &cuts, missing);
    }
}

fn records() -> Vec<Record> {
    log(&[(true, 9, 1), (true, 5, 2), (false, 0, 0), (true, 7, 3), (true, 1, 4), (false, 1, 0)])
}

#[test]
fn a_part_that_does_not_lead_to_the_next_ends_the_log() {
    let records = records();
    let last = part(&records, 3, 6, 2);
    // This part has more records than the run had.
    let long = part(&records, 0, 4, 1);
    let data = joined(&[long.clone(), last.clone()]);
    assert_eq!((data.devices[0].overwritten, data.devices[0].records.len()), (3, 3));
    assert_eq!(data.health.unread_bytes, long.len() as u64);
    // This part's scopes are not those of the run.
    let mut other = Encoder::begin(Vec::new()).unwrap();
    other.part(StreamPart { run: 9, number: 1 }).unwrap();
    let scope = ContextNode { parent: ContextId::ROOT, name: "other".into(), module: false };
    other.contexts(&[scope]).unwrap();
    other.commit(&Commit::default()).unwrap();
    let data = joined(&[std::mem::take(other.out()), last.clone()]);
    assert!(data.health.unread_bytes > 0 && data.devices[0].overwritten == 3);
    // This part has no commit.
    let data = joined(&[part(&records, 0, 3, 1)[..40].to_vec(), last]);
    assert_eq!(data.devices[0].overwritten, 3);
}

/// Marks are missing later in the newer part, and in the second case between the parts, too. At each of these places,
/// all open scopes are left.
#[test]
fn scopes_that_are_open_where_marks_are_missing_are_left_there() {
    let mark = |time_ns, context| Mark { time_ns, thread: ThreadId(0), context: ContextId(context), enter: true };
    let part = |number, fill: &dyn Fn(&mut Encoder<Vec<u8>>) -> std::io::Result<()>| {
        let mut file = Encoder::begin(Vec::new()).unwrap();
        file.part(StreamPart { run: 9, number }).unwrap();
        let scope = |name: &str| ContextNode { parent: ContextId::ROOT, name: name.into(), module: false };
        file.contexts(&["a", "b", "c"].map(scope)).unwrap();
        fill(&mut file).unwrap();
        file.counters(DEVICE, &Counters::default()).unwrap();
        file.commit(&Commit::default()).unwrap();
        std::mem::take(file.out())
    };
    let older = part(1, &|file| file.marks(DEVICE, &[mark(10, 1)]));
    let marks = |before: u64| {
        let newer = part(2, &|file| {
            file.gap(DEVICE, 0)?;
            file.log_start(DEVICE, before, 30)?;
            file.live(DEVICE, &[])?;
            file.marks(DEVICE, &[mark(35, 2)])?;
            file.skipped(DEVICE, 0, 4, 40)?;
            file.live(DEVICE, &[])?;
            file.marks(DEVICE, &[mark(50, 3)])
        });
        let data = joined(&[older.clone(), newer]);
        data.devices[0].marks.iter().map(|mark| (mark.context.0, mark.enter)).collect::<Vec<_>>()
    };
    assert_eq!(marks(1), [(1, true), (2, true), (2, false), (1, false), (3, true)]);
    assert_eq!(marks(3), [(1, true), (1, false), (2, true), (2, false), (3, true)]);
}

/// In the older part, all calls are to one address with long names.
#[test]
fn parts_with_far_more_text_than_bytes_are_refused() {
    let part = |number, calls: usize| {
        let mut file = Encoder::begin(Vec::new()).unwrap();
        file.part(StreamPart { run: 9, number }).unwrap();
        file.addresses([100u64].into_iter()).unwrap();
        file.stacks([&vec![0; calls][..]].into_iter()).unwrap();
        let frame = Frame { function: Some("x".repeat(1 << 20)), ..Frame::default() };
        let address = CodeAddress { frames: 0..1, ..CodeAddress::in_objects(100, &[], &ObjectSpans::of(&[])) };
        let stacks = Stacks { addresses: vec![address], frames: vec![frame], ..Stacks::default() };
        let mut bytes = std::mem::take(file.out());
        bytes.extend(encode::names(&stacks, &[AddressKind::default()]).unwrap());
        let mut commit = Encoder::begin(Vec::new()).unwrap();
        commit.commit(&Commit::default()).unwrap();
        bytes.extend(&commit.out()[HEADER..]);
        bytes
    };
    let read = |calls| read_parts(&part(2, 1), std::iter::once(part(1, calls)));
    assert!(read(3000).is_ok(), "both files' bytes count");
    assert!(read(6000).unwrap_err().contains("more text"));
}

#[test]
fn a_file_that_names_a_stream_is_no_capture() {
    let error = read(&stream_name(3).unwrap()).unwrap_err();
    assert!(error.contains("only names a stream"), "{error}");
    assert!(has_end(std::io::Cursor::new([stream_name(3).unwrap(), end_mark()].concat())).unwrap());
}

#[test]
fn names_stay_with_the_addresses_that_have_them() {
    let records = records();
    let stacks = |names: [&str; 2]| {
        let frame = |name: &str| Frame { function: Some(name.into()), ..Frame::default() };
        Stacks {
            addresses: [100u64, 200]
                .iter()
                .zip(0..)
                .map(|(address, at)| CodeAddress {
                    frames: at..at + 1,
                    ..CodeAddress::in_objects(*address, &[], &ObjectSpans::of(&[]))
                })
                .collect(),
            frames: names.map(frame).to_vec(),
            ..Stacks::default()
        }
    };
    let small = |number: u64, from: usize, to: usize, addresses: &[u64], names: Option<[&str; 2]>| {
        let before = State::after(&records[..from]);
        let none = |blocks: Vec<Block>| {
            blocks.into_iter().map(|block| Block { stack: StackId(1), ..block }).collect::<Vec<_>>()
        };
        let mut file = Encoder::begin(Vec::new()).unwrap();
        file.part(StreamPart { run: 9, number }).unwrap();
        file.addresses(addresses.iter().copied()).unwrap();
        file.stacks([&[0, 1][..]].into_iter()).unwrap();
        file.gap(DEVICE, from as u64).unwrap();
        file.live(DEVICE, &none(before.live())).unwrap();
        file.peak(DEVICE, &none(before.peak.blocks.clone())).unwrap();
        file.counters(DEVICE, &before.counters()).unwrap();
        let one = |stack: StackId| if stack.0 > 0 { StackId(1) } else { stack };
        let own =
            records[from..to].iter().map(|r| Record { stack: one(r.stack), alloc_stack: one(r.alloc_stack), ..*r });
        file.records(DEVICE, &own.collect::<Vec<_>>()).unwrap();
        file.counters(DEVICE, &State::after(&records[..to]).counters()).unwrap();
        let mut bytes = std::mem::take(file.out());
        if let Some(names) = names {
            bytes.extend(encode::names(&stacks(names), &[AddressKind::default(); 2]).unwrap());
        }
        let mut commit = Encoder::begin(Vec::new()).unwrap();
        commit.commit(&Commit::default()).unwrap();
        bytes.extend(&commit.out()[HEADER..]);
        bytes
    };
    let function = |capture: &DecodedCapture, at: usize| {
        let stacks = &capture.data.stacks;
        let name = stacks.frames_at(&stacks.addresses[at]).first().and_then(|frame| frame.function.clone());
        (stacks.addresses[at].address, name.unwrap_or_default(), capture.names.has(at))
    };
    let newest = small(2, 3, 6, &[100, 200], Some(["a", "b"]));
    let both = read_parts(&newest, std::iter::once(small(1, 0, 3, &[300, 400], Some(["c", "d"])))).unwrap();
    let expected = [(100, "a", true), (200, "b", true), (300, "c", true), (400, "d", true)];
    let found: Vec<_> = (0..4).map(|at| function(&both, at)).collect();
    assert_eq!(found, expected.map(|(address, name, has)| (address, name.to_owned(), has)));
    // The older part has no names, so its addresses can still be looked up in files.
    let one = read_parts(&newest, std::iter::once(small(1, 0, 3, &[300, 200], None))).unwrap();
    let found: Vec<_> = (0..3).map(|at| function(&one, at)).collect();
    let expected = [(100, "a", true), (200, "b", true), (300, "", false)];
    assert_eq!(found, expected.map(|(address, name, has)| (address, name.to_owned(), has)));
    assert!(!one.names.are_final());
}
