//! Captures cut from arbitrary input, and all uses of a readable capture: for `tests/hostile.rs` and the fuzz targets.

use std::io;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use memtrace::analysis::Key;
use memtrace::export::{
    CategoriesJson, CategoriesRaw, Export, ExportOperators, Folded, Json, Measure, OperatorsJson, Pickle,
    parse_operators,
};
use memtrace::snapshot::{Block, DeviceSnapshot, Replay};
use memtrace::{DeviceView, Snapshot, SnapshotData, analysis};
use tempfile::TempDir;

/// The number of valid tags. The cutter takes the first byte modulo this number and a few more.
const TAGS: u8 = 48;
const COMMIT: u8 = 17;
const PART: u8 = 44;
/// Flamegraphs are drawn only for captures up to this size, because inferno's time is not under test.
const SMALL: usize = 1 << 12;

/// A capture whose chunks come from the input: a tag, two bytes of length, and a payload, repeatedly. The header and
/// the checksums are valid, and a commit at the end makes the chunks count.
pub fn capture_of(input: &[u8]) -> Vec<u8> {
    capture_from(b"memtrace\x01\0\0\0".to_vec(), input)
}

/// Two parts of a stream, the older one first. The first two bytes of the input are the length of the older part's
/// chunks.
pub fn parts_of(input: &[u8]) -> [Vec<u8>; 2] {
    let (length, chunks) = input.split_first_chunk().unwrap_or((&[0, 0], &[]));
    let (older, newest) = chunks.split_at(usize::from(u16::from_le_bytes(*length)).min(chunks.len()));
    [(1, older), (2, newest)].map(|(number, chunks)| {
        let mut part = b"memtrace\x01\0\0\0".to_vec();
        chunk(&mut part, PART, &[7, number]);
        capture_from(part, chunks)
    })
}

fn capture_from(mut capture: Vec<u8>, input: &[u8]) -> Vec<u8> {
    let mut rest = input;
    while let Some((&[tag, low, high], after)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_le_bytes([low, high])).min(after.len());
        let (payload, next) = after.split_at(length);
        chunk(&mut capture, tag % TAGS, payload);
        rest = next;
    }
    chunk(&mut capture, COMMIT, &[0; 12]);
    capture
}

/// The input from which [`capture_of`] makes this capture, for seeds from real captures. The number of a stream's part
/// is lost.
pub fn input_of(capture: &[u8]) -> Vec<u8> {
    let (mut input, mut rest) = (Vec::new(), capture.get(12..).unwrap_or_default());
    while let Some((head, after)) = rest.split_first_chunk::<13>() {
        let length = u64::from_le_bytes(head[1..9].try_into().unwrap()) as usize;
        let (payload, next) = after.split_at(length.min(after.len()));
        let shown = payload.len().min(usize::from(u16::MAX));
        if head[0] != PART {
            input.push(head[0]);
            input.extend_from_slice(&(shown as u16).to_le_bytes());
            input.extend_from_slice(&payload[..shown]);
        }
        rest = next;
    }
    input
}

fn chunk(out: &mut Vec<u8>, tag: u8, payload: &[u8]) {
    let length = (payload.len() as u64).to_le_bytes();
    let front = [&[tag][..], &length].concat();
    out.extend_from_slice(&front);
    let sum = crc32fast::hash(&[&front, payload].concat());
    out.extend_from_slice(&sum.to_le_bytes());
    out.extend_from_slice(payload);
}

/// Reads a capture and, if it is accepted, uses it.
pub fn read_and_use(bytes: &[u8]) {
    if let Ok(snapshot) = Snapshot::parse(bytes) {
        use_all(&snapshot, bytes.len() <= SMALL);
    }
}

/// Reads a stream of these parts and, if it is accepted, uses it.
pub fn read_and_use_parts(parts: &[Vec<u8>; 2]) -> Option<Snapshot> {
    let folder = tempfile::tempdir_in(FOLDER.path()).expect("a folder");
    let path = |number: usize| folder.path().join(format!("run.{number}.memtrace"));
    (1..).zip(parts).for_each(|(number, part)| std::fs::write(path(number), part).expect("a part is written"));
    let snapshot = memtrace::open(path(2)).ok()?;
    use_all(&snapshot, parts.iter().all(|part| part.len() <= SMALL));
    Some(snapshot)
}

fn use_all(snapshot: &Snapshot, draw: bool) {
    sums(snapshot);
    analyses(snapshot);
    exports(snapshot, draw);
    round_trip(snapshot);
}

fn sums(data: &SnapshotData) {
    for device in &data.devices {
        let recorded: u64 = device.peak_weights().map(|(_, weight)| weight.bytes).sum();
        assert_eq!(recorded + device.peak.not_recorded, device.peak.bytes);
        let mut replay = Replay::at_log_start(device);
        device.records.iter().for_each(|record| replay.apply(record));
        assert_eq!(sum(device, &replay.blocks()), replay.bytes());
    }
}

/// The sum of the blocks' weights.
fn sum(device: &DeviceSnapshot, blocks: &[Block]) -> u64 {
    blocks.iter().map(|block| device.sampling.bytes(block.size)).sum()
}

fn analyses(data: &SnapshotData) {
    for device in &data.devices {
        let by =
            [Key::Line, Key::Function, Key::Scope, Key::Name].map(|by| DeviceView::of(data, device).by(by).clone());
        by.iter().for_each(|breakdown| assert_eq!(breakdown.total, device.peak.total()));
        let recorded: u64 = device.live_weights().map(|(_, weight)| weight.bytes).sum();
        let live = recorded + device.not_recorded + device.below_threshold;
        assert_eq!(DeviceView::of(data, device).at_end().by(Key::Line).total, live);
        analysis::scopes(&DeviceView::of(data, device));
        analysis::temporaries(&DeviceView::of(data, device));
        analysis::category_timeline(&DeviceView::of(data, device)).steps().for_each(drop);
        let operators = analysis::operators(&DeviceView::of(data, device));
        let mut out = Vec::new();
        OperatorsJson::default().write_operators(&operators, &mut out).unwrap();
        assert_eq!(parse_operators(&out).unwrap(), operators);
    }
}

fn exports(snapshot: &Snapshot, draw: bool) {
    let _ = snapshot.report().to_string();
    assert!(!snapshot.file_name("txt").contains('/'));
    let small = Some(512);
    let formats: [&dyn Export; 8] = [
        &Json::default(),
        &Json { max_bytes: small, compact: true },
        &Pickle::default(),
        &Pickle { max_bytes: small, device: None },
        &Folded { measure: Measure::Bytes, all_frames: true, ..Default::default() },
        &Folded { measure: Measure::Count, all_frames: true, ..Default::default() },
        &CategoriesJson::default(),
        &CategoriesRaw::default(),
    ];
    formats.iter().for_each(|format| _ = format.write(snapshot, &mut io::sink()).unwrap());
    if draw {
        // Fails if nothing is live, or without the feature for flamegraphs.
        let path = new_file("svg");
        let _ = snapshot.write(&path);
        let _ = std::fs::remove_file(path);
    }
}

/// Checks that an accepted capture can be written and read again, and is then equal.
fn round_trip(snapshot: &Snapshot) {
    let path = new_file("memtrace");
    snapshot.write(&path).unwrap();
    let again = memtrace::open(&path).unwrap();
    let _ = std::fs::remove_file(&path);
    assert_eq!(**snapshot, *again);
}

/// A path without a file, which is unique among any number of processes.
fn new_file(end: &str) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    FOLDER.path().join(format!("{}.{end}", NEXT.fetch_add(1, Ordering::Relaxed)))
}

/// The folder is in memory if possible. The fuzzer is killed at its end and leaves the folder behind.
static FOLDER: LazyLock<TempDir> =
    LazyLock::new(|| tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a temporary folder"));
