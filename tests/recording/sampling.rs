//! Poisson sampling of small blocks: estimates are unbiased and add up, and accounts are exact.
#![cfg(target_os = "linux")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;

use memtrace::analysis::Key;
use memtrace::snapshot::{Block, DeviceSnapshot, MemoryStats, Record, RecordKind, Replay, Sampling, Weight};
use memtrace::{Category, Device, DeviceView, Session, SnapshotData, analysis, open, scope, stats};
use proptest::prelude::*;

use crate::child::in_child;
use crate::support::{MIB, Raw, alone, cpu};

const KIB: usize = 1 << 10;
/// The test harness has no blocks of this size.
const SMALLEST: usize = 256 * KIB;

/// Samples blocks of 256 KiB to 1 MiB, and records larger ones.
fn sampled() -> Session {
    memtrace::builder().min_size(SMALLEST).sample_interval(MIB).start().unwrap()
}

fn sampling() -> Sampling {
    Sampling::every(MIB as u64)
}

/// Bytes in blocks of at least 256 KiB that exist when a recording of every block starts. In a child process these are
/// only the test's; elsewhere another thread's symbols for a backtrace have such sizes, too.
fn before() -> u64 {
    before_of(SMALLEST)
}

fn before_of(size: usize) -> u64 {
    cpu(&memtrace::builder().min_size(size).start().unwrap().snapshot()).not_recorded
}

/// Sizes below and above the interval, in mixed order.
fn mixed(count: usize) -> impl Iterator<Item = usize> + Clone {
    (0..count).map(|n| SMALLEST + (n * 7919 % 1000) * KIB)
}

/// Standard error of the estimate of these blocks' bytes.
fn error_of(sizes: impl Iterator<Item = usize>) -> f64 {
    let variance = |size: usize| (size as f64).powi(2) * (1.0 / sampling().probability(size as u64) - 1.0);
    sizes.map(variance).sum::<f64>().sqrt()
}

fn assert_near(estimate: u64, sizes: impl Iterator<Item = usize> + Clone) {
    let (bytes, error) = (sizes.clone().sum::<usize>() as f64, error_of(sizes));
    assert!((estimate as f64 - bytes).abs() < 5.0 * error, "{estimate} of {bytes} ± {error}");
}

#[inline(never)]
fn one_line(blocks: &mut Vec<Vec<u8>>, size: usize) {
    blocks.push(std::hint::black_box(Vec::with_capacity(size)));
}

#[inline(never)]
fn another_line(blocks: &mut Vec<Vec<u8>>, size: usize) {
    blocks.push(std::hint::black_box(Vec::with_capacity(size)));
}

/// The peak is counted exactly, but blocks after the last sampled one may be missing from it.
#[track_caller]
fn assert_just_below(peak: u64, highest: u64) {
    assert!(peak <= highest && highest - peak < 20 * MIB as u64, "{peak} of {highest}");
}

/// The counters cover the whole process.
#[test]
fn totals_lines_and_flows_are_estimated_without_bias() {
    in_child(&[], estimates_are_near);
}

fn estimates_are_near() {
    const COUNT: usize = 6000;
    let session = sampled();
    let mut blocks = Vec::with_capacity(COUNT);
    let is_one = |(n, _): &(usize, usize)| n % 3 == 0;
    mixed(COUNT).enumerate().for_each(|(n, size)| match is_one(&(n, size)) {
        true => one_line(&mut blocks, size),
        false => another_line(&mut blocks, size),
    });
    let snapshot = session.snapshot();
    let device = cpu(&snapshot);
    assert!(device.sampling == sampling() && device.live.len() < COUNT, "{}", device.live.len());
    assert_just_below(device.peak.bytes, device.not_recorded + mixed(COUNT).sum::<usize>() as u64);
    assert_near(device.stats.allocated_bytes.allocated, mixed(COUNT));
    let lines = DeviceView::of(&snapshot, device).by(Key::Function).clone();
    let of = |name: &str| lines.rows.iter().find(|row| row.label.contains(name)).unwrap();
    let sizes = |one: bool| mixed(COUNT).enumerate().filter(move |row| is_one(row) == one).map(|(_, size)| size);
    assert_near(of("one_line").bytes, sizes(true));
    assert_near(of("another_line").bytes, sizes(false));
    let count = of("another_line").count.unwrap() as f64;
    let spread: f64 = sizes(false).map(|size| 1.0 / sampling().probability(size as u64) - 1.0).sum();
    assert!((count - sizes(false).count() as f64).abs() < 5.0 * spread.sqrt(), "{count}");
    // Live bytes are also counted.
    let counted = device.stats.counted.unwrap();
    assert_eq!((counted.now, counted.before), (device.not_recorded + mixed(COUNT).sum::<usize>() as u64, 0));
    drop(blocks);
    let freed = stats(Device::Cpu);
    assert_eq!(freed.allocated_bytes.current, device.not_recorded);
    assert_eq!(freed.allocations.allocated, freed.allocations.freed);
    assert_eq!(freed.counted.unwrap().now, device.not_recorded);
}

#[derive(Clone, Debug)]
enum Step {
    New(usize),
    Resize(usize, usize),
    Free(usize),
    Scope(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let size = || SMALLEST..3 * MIB;
    prop_oneof![
        5 => size().prop_map(Step::New),
        1 => (0..30usize, size()).prop_map(|(at, size)| Step::Resize(at, size)),
        3 => (0..30usize).prop_map(Step::Free),
        1 => size().prop_map(Step::Scope),
    ]
}

fn apply(blocks: &mut Vec<Raw>, step: Step) {
    match step {
        Step::New(size) => {
            let block = Raw::new(size);
            memtrace::name_as(Device::Cpu, block.address(), "named", Category::Parameter);
            blocks.push(block);
        }
        Step::Resize(at, size) if at < blocks.len() => blocks[at].resize(size),
        Step::Free(at) if at < blocks.len() => drop(blocks.swap_remove(at)),
        Step::Scope(size) => scope("inside", || blocks.push(Raw::new(size))),
        Step::Resize(..) | Step::Free(_) => {}
    }
}

/// Every sum over blocks equals its total, to the byte.
fn check_sums(data: &SnapshotData) {
    let device = cpu(data);
    let (counted, flows) = (device.stats.counted.unwrap(), device.stats.allocated_bytes);
    let sum =
        |weights: &mut dyn Iterator<Item = (&Block, Weight)>| weights.map(|(_, weight)| weight.bytes).sum::<u64>();
    assert_eq!((device.peak.bytes, flows.current), (counted.at_peak, counted.now));
    assert_eq!(sum(&mut device.peak_weights()) + device.peak.not_recorded, device.peak.bytes);
    assert_eq!(sum(&mut device.live_weights()) + device.not_recorded, flows.current);
    let is_large = |block: &Block| !device.sampling.is_sampled(block.size);
    assert!(
        device
            .peak_weights()
            .chain(device.live_weights())
            .all(|(block, weight)| !is_large(block) || weight.bytes == block.size)
    );
    // The log and its derived figures use real sizes.
    let stands_for = |block: &Block| device.sampling.bytes(block.size);
    let (by_sizes, whole) = (device.live.iter().map(stands_for).sum::<u64>(), device.overwritten == 0);
    assert!(!whole || by_sizes == flows.allocated - (flows.freed - unknown_freed(device)));
    for by in
        [Key::Line, Key::Function, Key::Operator, Key::Category, Key::Module, Key::Parameter, Key::Scope, Key::Name]
    {
        let breakdown = DeviceView::of(data, device).by(by).clone();
        assert_eq!(breakdown.total, device.peak.total());
        assert_eq!(breakdown.rows.iter().map(|row| row.bytes).sum::<u64>(), breakdown.total);
    }
    let live = DeviceView::of(data, device).at_end().by(Key::Line).into_owned();
    assert_eq!(live.total, device.stats.allocated_bytes.current + device.below_threshold);
    assert_eq!(live.rows.iter().map(|row| row.bytes).sum::<u64>(), live.total);
    let by_scope = DeviceView::of(data, device).by(Key::Scope).rows.clone();
    assert!(device.scopes.iter().all(|scope| scope.total_peak <= Some(device.peak.bytes)));
    for scope in analysis::scopes(&DeviceView::of(data, device)).iter().filter(|scope| scope.at_peak > 0) {
        assert_eq!(by_scope.iter().find(|row| row.label == scope.path).map(|row| row.bytes), Some(scope.at_peak));
    }
    let timeline = analysis::category_timeline(&DeviceView::of(data, device));
    let last = timeline.steps().last().map_or(timeline.start(), |step| step.bytes);
    assert_eq!(last.total(), device.not_recorded + by_sizes);
    let categories = DeviceView::of(data, device).categories().clone();
    for category in Category::ALL.into_iter().filter(|category| *category != Category::Unknown) {
        let is_of = |block: &&Block| categories.get(block.seq) == category;
        assert_eq!(last.get(category), device.live.iter().filter(is_of).map(stands_for).sum::<u64>());
    }
    let series = analysis::operators(&DeviceView::of(data, device));
    let added: i64 = series.calls.iter().map(|call| call.added).sum();
    let start = timeline.start().total() as i64;
    assert_eq!(start + added + series.added_elsewhere, (device.not_recorded + by_sizes) as i64);
    check_replay(device);
}

/// Bytes of blocks from before the recording whose frees are in the log.
fn unknown_freed(device: &DeviceSnapshot) -> u64 {
    let unknown = |record: &&Record| record.kind == RecordKind::Free && record.alloc_seq.is_none();
    device.records.iter().filter(unknown).map(|record| record.size).sum()
}

fn check_replay(device: &DeviceSnapshot) {
    let mut replay = Replay::at_log_start(device);
    for record in &device.records {
        replay.apply(record);
        if record.kind == RecordKind::Alloc && record.alloc_seq == device.peak.seq {
            let numbers = |blocks: &[Block]| blocks.iter().map(|block| block.seq).collect::<Vec<_>>();
            assert_eq!(numbers(&replay.blocks()), numbers(&device.peak.blocks));
        }
    }
    assert_eq!(replay.blocks(), device.live);
}

/// The maximum of the counted bytes at moments when a block was recorded.
struct Highest {
    recorded: u64,
    bytes: u64,
}

impl Highest {
    fn at_start() -> Self {
        let MemoryStats { allocations, counted, .. } = stats(Device::Cpu);
        Self { recorded: allocations.allocated, bytes: counted.unwrap().now }
    }

    /// Call after every step that records at most one block, and at the end.
    fn look(&mut self) {
        let now = Self::at_start();
        if now.recorded > self.recorded {
            *self = Self { bytes: now.bytes.max(self.bytes), ..now };
        }
    }
}

proptest! {
    #![proptest_config(crate::random::programs(8))]

    #[test]
    fn every_breakdown_adds_up_and_captures_come_back(steps in prop::collection::vec(step(), 0..80)) {
        let _alone = alone();
        let empty = before();
        let dir = tempfile::tempdir().unwrap();
        let [streamed, written] = ["streamed", "written"].map(|name| dir.path().join(format!("{name}.memtrace")));
        let mut blocks: Vec<Raw> = mixed(20).map(Raw::new).collect();
        let builder = memtrace::builder().min_size(SMALLEST).sample_interval(MIB);
        let session = builder.stream(streamed.display().to_string()).start().unwrap();
        let mut highest = Highest::at_start();
        for step in steps {
            apply(&mut blocks, step);
            highest.look();
        }
        let held: u64 = blocks.iter().map(Raw::size).sum();
        let snapshot = session.snapshot();
        if blocks.len().is_multiple_of(4) {
            // Not always, because symbols are read each time.
            session.flush();
            check_sums(&open(&streamed).unwrap());
        }
        session.end().unwrap();
        check_sums(&snapshot);
        prop_assert_eq!(cpu(&snapshot).stats.counted.unwrap().now, empty + held);
        prop_assert_eq!(cpu(&snapshot).peak.bytes, highest.bytes);
        prop_assert_eq!(cpu(&snapshot).stats.allocated_bytes.peak, highest.bytes.max(empty + held));
        snapshot.write(&written).unwrap();
        let back = open(&written).unwrap();
        prop_assert_eq!(&*back, &*snapshot);
        // A stream does not contain live and peak blocks; they follow from its records.
        let streamed = open(&streamed).unwrap();
        check_sums(&streamed);
        let told = |device: &DeviceSnapshot| (device.peak.bytes, device.stats.allocations, device.scopes.clone());
        prop_assert_eq!(told(cpu(&streamed)), told(cpu(&snapshot)));
        blocks.clear();
        prop_assert_eq!(before(), empty);
    }
}

proptest! {
    #![proptest_config(crate::random::programs(8))]

    #[test]
    fn a_log_that_overwrote_its_oldest_records_adds_up_too(
        steps in prop::collection::vec(step(), 0..80),
        max_entries in 1..20usize,
    ) {
        let _alone = alone();
        let builder = memtrace::builder().min_size(SMALLEST).sample_interval(MIB).max_entries(max_entries);
        let session = builder.start().unwrap();
        let mut blocks = Vec::new();
        steps.into_iter().for_each(|step| apply(&mut blocks, step));
        check_sums(&session.snapshot());
    }
}

#[test]
fn a_block_is_in_one_account_while_sampling_sessions_come_and_go() {
    in_child(&[], || {
        const THREADS: usize = 4;
        let empty = before();
        let (shelf, running, enough) = (Mutex::new(Vec::new()), AtomicUsize::new(THREADS), AtomicBool::new(false));
        let mut sessions = 0;
        thread::scope(|threads| {
            for number in 0..THREADS {
                let (shelf, running, enough) = (&shelf, &running, &enough);
                threads.spawn(move || {
                    churn(number, shelf);
                    while !enough.load(Relaxed) {
                        churn(number, shelf);
                    }
                    running.fetch_sub(1, Relaxed);
                });
            }
            while running.load(Relaxed) > 0 {
                // Sessions of every kind: a block sampled under one is freed under another.
                match sessions % 3 {
                    0 => drop(sampled()),
                    1 => drop(memtrace::builder().min_size(SMALLEST).sample_interval(4 * MIB).start().unwrap()),
                    _ => drop(memtrace::builder().min_size(SMALLEST).start().unwrap()),
                }
                sessions += 1;
                enough.store(sessions > 3, Relaxed);
                thread::yield_now();
            }
        });
        let mut left = shelf.into_inner().unwrap();
        assert_eq!(before(), empty + left.iter().map(Raw::size).sum::<u64>());
        left.clear();
        assert_eq!(before(), empty);
    });
}

/// Allocates, resizes and frees its own blocks and those of other threads.
fn churn(thread: usize, shelf: &Mutex<Vec<Raw>>) {
    for round in 0..2000 {
        let mut block = Raw::new(SMALLEST + (thread * 311 + round * 97) % 1000 * KIB);
        if round % 4 == 0 {
            block.resize(SMALLEST + round % 1500 * KIB);
        }
        let mut shelf = shelf.lock().unwrap();
        shelf.push(block);
        let other = if shelf.len() > 16 { Some(shelf.remove(round % 16)) } else { None };
        drop(shelf);
        drop(other);
    }
}

#[test]
fn concurrent_threads_are_counted_to_the_byte_and_estimated_without_bias() {
    const EACH: usize = 1500;
    let _alone = alone();
    let session = sampled();
    let base = stats(Device::Cpu).counted.unwrap().now;
    let blocks: Vec<Vec<Raw>> = thread::scope(|threads| {
        let threads: Vec<_> = (0..4).map(|_| threads.spawn(|| mixed(EACH).map(Raw::new).collect())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let all = || (0..4).flat_map(|_| mixed(EACH)).collect::<Vec<_>>().into_iter();
    let snapshot = session.snapshot();
    let device = cpu(&snapshot);
    assert_eq!(device.stats.counted.unwrap().now, base + all().sum::<usize>() as u64);
    assert_near(device.stats.allocated_bytes.current - device.not_recorded, all());
    check_sums(&snapshot);
    // Freed on another thread.
    drop(blocks);
    let after = stats(Device::Cpu);
    assert_eq!((after.counted.unwrap().now, after.allocations.current), (base, 0));
}

#[test]
fn blocks_sampled_by_one_session_are_known_to_the_next() {
    in_child(&[], || {
        let (empty, empty_large) = (before(), before_of(MIB));
        let first = sampled();
        let mut blocks: Vec<Raw> = mixed(300).map(Raw::new).collect();
        drop(first);
        let held = |blocks: &[Raw]| empty + blocks.iter().map(Raw::size).sum::<u64>();
        assert_eq!(before(), held(&blocks));
        // For a recording of every block, all blocks and their frees are from before it.
        let second = memtrace::builder().min_size(SMALLEST).start().unwrap();
        blocks.truncate(200);
        let snapshot = second.snapshot();
        assert_eq!((cpu(&snapshot).records.len(), cpu(&snapshot).not_recorded), (100, held(&blocks)));
        drop(second);
        // For a sampling recording, small blocks are in no table, and their frees are no records.
        let large = |blocks: &[Raw]| blocks.iter().map(Raw::size).filter(|size| *size >= MIB as u64).sum::<u64>();
        let third = sampled();
        let counted = stats(Device::Cpu).counted.unwrap();
        assert_eq!((counted.now, counted.before), (held(&blocks), held(&blocks) - large(&blocks) - empty_large));
        blocks.truncate(100);
        let snapshot = third.snapshot();
        let device = cpu(&snapshot);
        // No sampled block carries weight for small blocks.
        assert_eq!(device.not_recorded, held(&blocks));
        let live = DeviceView::of(&snapshot, device).at_end().by(Key::Line).into_owned();
        assert!(
            live.rows.iter().any(|row| (row.label.as_str(), row.bytes) == (analysis::NOT_IN_SAMPLE, held(&blocks)))
        );
        assert!(device.records.iter().all(|record| record.size >= MIB as u64 && record.alloc_seq.is_none()));
        assert_eq!(device.stats.counted.unwrap().now, held(&blocks));
        drop((third, blocks));
        assert_eq!(before(), empty);
    });
}

#[test]
fn blocks_sampled_in_a_warm_up_step_are_in_active_steps() {
    let _alone = alone();
    let session = memtrace::builder().min_size(SMALLEST).sample_interval(MIB).schedule(0, 1, 1, 1).start().unwrap();
    let mut blocks: Vec<Raw> = mixed(100).map(Raw::new).collect();
    let sum = |data: &SnapshotData| cpu(data).live.iter().map(|block| sampling().bytes(block.size)).sum::<u64>();
    let (warm, counted) = (sum(&session.snapshot()), stats(Device::Cpu).counted.unwrap());
    session.step();
    let snapshot = session.snapshot();
    let device = cpu(&snapshot);
    assert_eq!((sum(&snapshot), device.records.len(), device.stats.allocations.allocated), (warm, 0, 0));
    assert_eq!((device.peak.bytes, device.peak.seq), (counted.now, device.live.last().and_then(|block| block.seq)));
    assert_eq!(device.stats.counted, Some(memtrace::snapshot::Counted { at_peak: counted.now, ..counted }));
    blocks.extend(mixed(50).map(Raw::new));
    drop(blocks.split_off(70));
    let snapshot = session.snapshot();
    let device = cpu(&snapshot);
    let lines = DeviceView::of(&snapshot, device).at_end().by(Key::Line).into_owned();
    assert_eq!(lines.total, device.stats.allocated_bytes.current + device.below_threshold);
    let held = blocks.iter().map(Raw::size).sum::<u64>();
    assert_eq!(device.stats.counted.unwrap().now, counted.now - mixed(100).sum::<usize>() as u64 + held);
}

#[test]
fn a_failed_reallocation_leaves_the_sample_unchanged() {
    let _alone = alone();
    let session = sampled();
    let mut blocks: Vec<Raw> = mixed(200).map(Raw::new).collect();
    let now = || {
        let stats = stats(Device::Cpu);
        (stats.counted.unwrap().now, stats.allocated_bytes, stats.allocations)
    };
    let as_before = now();
    assert!(blocks.iter_mut().all(|block| !block.try_resize(isize::MAX as usize - 64)));
    assert_eq!(now(), as_before);
    let base = stats(Device::Cpu).counted.unwrap().now - blocks.iter().map(Raw::size).sum::<u64>();
    drop(blocks);
    assert_eq!((now().0, now().2.current), (base, 0));
    drop(session);
}

#[test]
fn a_measurement_sees_every_block_and_the_sample_stays_one() {
    in_child(&[], || {
        const COUNT: usize = 2000;
        let session = sampled();
        let mut blocks = Vec::with_capacity(COUNT);
        let measured = memtrace::measure(|| blocks.extend(mixed(COUNT).map(Raw::new)));
        assert_eq!(measured.allocations, COUNT as u64);
        assert_eq!(measured.allocated, mixed(COUNT).sum::<usize>() as u64);
        let snapshot = session.snapshot();
        assert!(cpu(&snapshot).live.len() < COUNT);
        assert_near(cpu(&snapshot).stats.allocated_bytes.allocated, mixed(COUNT));
        let freed = memtrace::measure(|| drop(blocks));
        assert_eq!(freed.allocations, 0);
        assert_eq!(stats(Device::Cpu).allocations.current, 0);
        drop(session);
        assert_eq!(before(), cpu(&snapshot).not_recorded);
    });
}

#[test]
fn a_seed_determines_the_sample() {
    let sample = |seed: &str| in_child(&[("MEMTRACE_SAMPLE_SEED", seed)], print_sample).out;
    let [first, again, other] = ["1", "1", "2"].map(sample);
    assert!(first.contains("sampled [") && first == again && first != other, "{first}{again}{other}");
}

fn print_sample() {
    let session = sampled();
    let _blocks: Vec<Raw> = mixed(50).map(Raw::new).collect();
    let snapshot = session.snapshot();
    println!("sampled {:?}", cpu(&snapshot).live.iter().map(|block| block.size).collect::<Vec<_>>());
}

#[test]
fn a_peak_is_not_higher_by_chance_however_many_moments_there_are() {
    in_child(&[], || {
        let session = sampled();
        let held: Vec<Raw> = mixed(100).map(Raw::new).collect();
        // The same step repeatedly: an estimate would be too high at some of these moments.
        for size in mixed(3000) {
            drop(Raw::new(size));
        }
        let snapshot = session.snapshot();
        let device = cpu(&snapshot);
        let (held, largest) = (held.iter().map(Raw::size).sum::<u64>(), mixed(3000).max().unwrap() as u64);
        let others = device.stats.counted.unwrap().now - held;
        assert_just_below(device.peak.bytes - others, held + largest);
        check_sums(&snapshot);
    });
}

#[test]
fn interval_and_threshold_determine_what_is_sampled() {
    let _alone = alone();
    let settings = |builder: memtrace::Builder| builder.start().unwrap().settings().clone();
    let new = || memtrace::builder().sample_interval("512 KiB");
    assert_eq!((settings(new()).min_size, settings(new()).sample_interval), (0, std::num::NonZeroU64::new(512 << 10)));
    assert_eq!(settings(new().min_size("1 KiB")).min_size, 1024);
    assert!(!settings(new().min_size("1 MiB")).sampling(Device::Cpu).is_on());
    assert!(!settings(new()).sampling(Device::Cuda(0)).is_on());
    assert_eq!(settings(new().sample_interval(0)).min_size, 1024);
    for (interval, advice) in [(3u64 << 10, "2048"), (1 << 31, "at most 1 GiB")] {
        let error = new().sample_interval(interval).start().unwrap_err().to_string();
        assert!(error.contains(advice) && error.contains(&interval.to_string()), "{error}");
    }
}

#[test]
fn more_blocks_than_filter_cells_are_told_apart() {
    let _alone = alone();
    // Every byte is known there.
    in_child(&[], || {
        const COUNT: usize = 300_000;
        let mut blocks = Vec::with_capacity(COUNT);
        let session = memtrace::builder().sample_interval(256).max_entries(1000).start().unwrap();
        let base = stats(Device::Cpu).counted.unwrap().now;
        blocks.extend((0..COUNT).map(|n| Raw::new(1 + n % 200)));
        let bytes = blocks.iter().map(Raw::size).sum::<u64>();
        let now = stats(Device::Cpu);
        assert_eq!(now.counted.unwrap().now, base + bytes);
        // More than two blocks per filter cell.
        assert!(cpu(&session.snapshot()).live.len() > 1 << 16);
        // Frees every other block first, so that cells decrease while their other blocks stay.
        let mut others = Vec::with_capacity(COUNT / 2);
        (0..COUNT / 2).for_each(|n| others.push(blocks.swap_remove(n)));
        let with_others = stats(Device::Cpu).counted.unwrap().now;
        let gone = others.iter().map(Raw::size).sum::<u64>();
        others.clear();
        assert_eq!(stats(Device::Cpu).counted.unwrap().now, with_others - gone);
        let left = blocks.iter().map(Raw::size).sum::<u64>();
        blocks.clear();
        let last = stats(Device::Cpu);
        assert_eq!(last.counted.unwrap().now, with_others - gone - left);
        // The list of the remaining blocks is still exact: no free was mistaken for one of a block from before.
        assert_eq!(last.allocations.current, 1);
        let flows = last.allocated_bytes;
        assert_eq!(flows.allocated - flows.freed, (others.capacity() * size_of::<Raw>()) as u64);
    });
}

#[test]
fn without_a_threshold_every_size_is_sampled() {
    let _alone = alone();
    in_child(&[], || {
        const COUNT: usize = 400_000;
        let mut blocks = Vec::with_capacity(COUNT);
        let session = memtrace::builder().sample_interval("64 KiB").start().unwrap();
        let base = stats(Device::Cpu);
        blocks.extend((0..COUNT).map(|n| Raw::new(8 << (n % 8))));
        let bytes = blocks.iter().map(Raw::size).sum::<u64>();
        let now = stats(Device::Cpu);
        assert_eq!(now.counted.unwrap().now - base.counted.unwrap().now, bytes);
        let estimate = now.allocated_bytes.allocated - base.allocated_bytes.allocated;
        let sampling = Sampling::every(64 << 10);
        let variance = |size: u64| (size as f64).powi(2) * (1.0 / sampling.probability(size) - 1.0);
        let error = blocks.iter().map(Raw::size).map(variance).sum::<f64>().sqrt();
        assert!((estimate as f64 - bytes as f64).abs() < 5.0 * error, "{estimate} of {bytes} ± {error}");
        let snapshot = session.snapshot();
        assert!(cpu(&snapshot).live.len() < COUNT / 100);
        check_sums(&snapshot);
        assert!(snapshot.report().to_string().contains("one per 64 KiB"));
    });
}
