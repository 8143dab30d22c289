//! An allocator that refuses requests: the program gets null, and every account is unchanged.
#![expect(unsafe_code, reason = "GlobalAlloc is an unsafe trait")]

#[path = "support/random.rs"]
mod random;
mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use memtrace::snapshot::{Block, DeviceSnapshot};
use memtrace::{Device, MemoryStats, Session, measure, open};
use memtrace_core::ReadOptions;
use proptest::prelude::*;
use support::{MIB, Raw, alone, bytes_before_recording, cpu, live, record_large, records};

#[global_allocator]
static ALLOC: memtrace::Alloc<Faulty> = memtrace::Alloc::new(Faulty);

struct Faulty;

/// By kind of call: the size of the next request to refuse.
static REFUSE: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];
const ALLOC_CALL: usize = 0;
const ZEROED_CALL: usize = 1;
const REALLOC_CALL: usize = 2;

fn refuses(call: usize, size: usize) -> bool {
    REFUSE[call].compare_exchange(size, 0, Relaxed, Relaxed).is_ok()
}

/// Whether a request was refused since the last call of [`refuse`].
fn was_refused(call: usize) -> bool {
    REFUSE[call].load(Relaxed) == 0
}

/// Reallocations that are refused after a while, one for each of the sizes after `ODD`.
static SLOW: [AtomicU8; 4] = [const { AtomicU8::new(NONE) }; 4];
const NONE: u8 = 0;
const ASKED: u8 = 1;
const WAITS: u8 = 2;

/// Whether this reallocation is refused after a while.
fn refuses_slowly(size: usize) -> bool {
    let slow = size.checked_sub(ODD + 1).and_then(|number| SLOW.get(number));
    let Some(state) = slow.filter(|state| state.compare_exchange(ASKED, WAITS, Relaxed, Relaxed).is_ok()) else {
        return false;
    };
    while state.load(Relaxed) == WAITS {
        std::thread::yield_now();
    }
    true
}

fn refuse(call: usize, size: usize) {
    REFUSE[call].store(size, Relaxed);
}

// SAFETY: forwards requests unchanged to the system's allocator, unless it refuses them.
unsafe impl GlobalAlloc for Faulty {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if refuses(ALLOC_CALL, layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if refuses(ZEROED_CALL, layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller keeps `alloc_zeroed`'s contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps `dealloc`'s contract.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if refuses(REALLOC_CALL, new_size) || refuses_slowly(new_size) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller keeps `realloc`'s contract.
        unsafe { System.realloc(block, layout, new_size) }
    }
}

/// A size that no other code requests.
const ODD: usize = 3 * MIB + 12_345;

/// Requests `ODD` bytes and gets null.
fn allocate_in_vain(call: usize) {
    let layout = Layout::from_size_align(ODD, 8).unwrap();
    refuse(call, ODD);
    let block = match call {
        // SAFETY: the size is not zero.
        ALLOC_CALL => unsafe { std::alloc::alloc(layout) },
        // SAFETY: likewise.
        _ => unsafe { std::alloc::alloc_zeroed(layout) },
    };
    assert!(block.is_null() && was_refused(call));
}

/// Requests to resize a block and gets null; the block stays where it is.
fn resize_in_vain(block: &mut Raw, size: usize) {
    let key = block.key();
    refuse(REALLOC_CALL, size);
    assert!(!block.try_resize(size) && was_refused(REALLOC_CALL));
    assert_eq!(block.key(), key);
}

fn stats() -> MemoryStats {
    memtrace::stats(Device::Cpu)
}

/// The figures that a failed request leaves unchanged.
fn account(device: &DeviceSnapshot) -> [u64; 6] {
    let (bytes, blocks) = (device.stats.allocated_bytes, device.stats.allocations);
    [bytes.current, bytes.peak, blocks.current, device.peak.bytes, device.peak.not_recorded, device.not_recorded]
}

fn account_now(session: &Session) -> [u64; 6] {
    account(cpu(&session.snapshot()))
}

#[test]
fn a_refused_allocation_is_not_counted() {
    let _alone = alone();
    let session = record_large();
    let _block = Raw::new(MIB);
    let before = stats();
    allocate_in_vain(ALLOC_CALL);
    allocate_in_vain(ZEROED_CALL);
    assert_eq!(stats().allocated_bytes, before.allocated_bytes);
    assert_eq!(stats().allocations, before.allocations);
    assert_eq!(records(&session.snapshot()).len(), 1);
    drop(session);
    let untraced = bytes_before_recording();
    allocate_in_vain(ALLOC_CALL);
    allocate_in_vain(ZEROED_CALL);
    assert_eq!(bytes_before_recording(), untraced);
}

#[test]
fn a_refused_reallocation_leaves_a_recorded_block_in_the_account() {
    let _alone = alone();
    let session = record_large();
    let mut block = Raw::new(2 * MIB);
    let other = Raw::new(MIB);
    let before = account_now(&session);
    for size in [ODD, MIB + 1, 1000] {
        resize_in_vain(&mut block, size);
        let mut live = live(&session.snapshot());
        live.sort_unstable_by_key(|&(_, size)| size);
        assert_eq!(live, [other.key(), block.key()]);
        assert_eq!(account_now(&session), before);
    }
    block.resize(ODD);
    assert_eq!(live(&session.snapshot()), [other.key(), block.key()]);
    drop((block, other));
    assert_eq!(live(&session.snapshot()), []);
    assert_eq!(account_now(&session)[0], before[0] - 3 * MIB as u64);
}

#[test]
fn a_refused_reallocation_leaves_an_untraced_block_in_the_account() {
    let _alone = alone();
    let empty = bytes_before_recording();
    let mut block = Raw::new(2 * MIB);
    resize_in_vain(&mut block, ODD);
    assert_eq!(bytes_before_recording(), empty + block.size());
    block.resize(4 * MIB);
    assert_eq!(bytes_before_recording(), empty + block.size());
    drop(block);
    assert_eq!(bytes_before_recording(), empty);
}

#[test]
fn a_refused_reallocation_leaves_a_block_below_the_threshold_where_it_was() {
    let _alone = alone();
    let empty = bytes_before_recording();
    let session = memtrace::builder().min_size("4 MiB").start().unwrap();
    let mut block = Raw::new(2 * MIB);
    // To a size above the threshold, and to one below it.
    resize_in_vain(&mut block, ODD + 4 * MIB);
    resize_in_vain(&mut block, ODD);
    assert_eq!(records(&session.snapshot()), []);
    drop(session);
    assert_eq!(bytes_before_recording(), empty + block.size());
}

#[test]
fn a_refused_reallocation_leaves_a_block_from_before_the_recording_where_it_was() {
    let _alone = alone();
    let mut old = Raw::new(2 * MIB);
    let session = record_large();
    let before = account_now(&session);
    resize_in_vain(&mut old, ODD);
    assert_eq!(live(&session.snapshot()), []);
    assert_eq!(account_now(&session), before);
    let size = old.size();
    drop(old);
    let after = cpu(&session.snapshot()).not_recorded;
    assert_eq!((after, stats().allocated_bytes.current), (before[5] - size, before[0] - size));
}

#[test]
fn a_refused_reallocation_leaves_a_block_in_its_measurement() {
    let _alone = alone();
    for recorded in [false, true] {
        let _session = recorded.then(record_large);
        let mut old = Raw::new(MIB);
        let measured = measure(|| {
            let mut new = Raw::new(2 * MIB);
            resize_in_vain(&mut new, ODD);
            resize_in_vain(&mut old, ODD);
            allocate_in_vain(ALLOC_CALL);
            new
        });
        let (leaked, net) = (measured.leaked, measured.net);
        assert_eq!((leaked, net), (2 * MIB as u64, 2 * MIB as i64), "recorded: {recorded}");
        assert_eq!(measured.peak, 2 * MIB as u64, "recorded: {recorded}");
    }
}

/// Lets a reallocation wait for its refusal, which comes when this is dropped, also by a test that fails.
struct Slow(usize);

impl Drop for Slow {
    fn drop(&mut self) {
        SLOW[self.0].store(NONE, Relaxed);
    }
}

/// A block whose reallocation waits for its refusal. Meanwhile, the block does not count.
struct InVain<'scope> {
    slow: Slow,
    thread: ScopedJoinHandle<'scope, Raw>,
}

impl<'scope> InVain<'scope> {
    fn begin(threads: &'scope Scope<'scope, '_>, number: usize, mut block: Raw) -> Self {
        SLOW[number].store(ASKED, Relaxed);
        let thread = threads.spawn(move || {
            assert!(!block.try_resize(ODD + 1 + number));
            block
        });
        while SLOW[number].load(Relaxed) == ASKED {
            std::thread::yield_now();
        }
        Self { slow: Slow(number), thread }
    }

    fn end(self) -> Raw {
        drop(self.slow);
        self.thread.join().unwrap()
    }
}

/// A recording to a stream with a small budget or a short time limit.
struct Streamed {
    folder: tempfile::TempDir,
    session: Session,
    is_timed: bool,
}

impl Streamed {
    /// If the log has few records, most are skipped. With the time limit, a flush begins a part if the newest is at least
    /// 50 ms old.
    fn begin(max_entries: usize, is_timed: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let builder = memtrace::builder().min_size(MIB).max_entries(max_entries);
        let builder = match is_timed {
            true => builder.stream_time(Duration::from_millis(400)),
            false => builder.stream_budget(400 << 10),
        };
        let session = builder.stream(folder.path().join("run.memtrace").to_str().unwrap()).start().unwrap();
        Self { folder, session, is_timed }
    }

    fn part(&self, number: u64) -> PathBuf {
        self.folder.path().join(format!("run.{number}.memtrace"))
    }

    fn newest(&self) -> u64 {
        let exists = |number: &u64| self.part(*number).exists();
        (1..).skip_while(|number| !exists(number)).take_while(exists).last().unwrap()
    }

    /// Allocates and frees small blocks, or waits, until the stream begins another part.
    fn begin_part(&self) {
        let before = self.newest();
        while self.newest() == before {
            if self.is_timed {
                std::thread::sleep(Duration::from_millis(1));
            } else {
                (0..100).for_each(|_| drop(Raw::new(MIB)));
                self.session.flush();
            }
        }
    }

    /// Reads the stream while it is being written, and compares it with what the recorder knows.
    fn check(&self) {
        self.session.flush();
        let [read, known] = [open(self.folder.path().join("run.memtrace")).unwrap(), self.session.snapshot()];
        assert_eq!(state(cpu(&read)), state(cpu(&known)));
        // The newest may just have been created, without a commit. The oldest may be deleted meanwhile.
        for bytes in (1..self.newest()).filter_map(|number| std::fs::read(self.part(number)).ok()) {
            ReadOptions::default().parse(&bytes).unwrap();
        }
    }
}

/// The peak, the live blocks, and the counters.
fn state(device: &DeviceSnapshot) -> impl PartialEq + std::fmt::Debug {
    let keys = |blocks: &[Block]| blocks.iter().map(|block| (block.seq, block.address, block.size)).collect::<Vec<_>>();
    let peak = &device.peak;
    (peak.bytes, peak.seq, peak.not_recorded, keys(&peak.blocks), keys(&device.live), device.stats.allocated_bytes)
}

/// The stream has begun a part since the peak, which is known only after the refusal.
#[test]
fn a_stream_has_the_peak_that_a_refusal_showed() {
    let _alone = alone();
    let streamed = Streamed::begin(1 << 20, false);
    let block = Raw::new(4 * MIB);
    let block = std::thread::scope(|threads| {
        let in_vain = InVain::begin(threads, 0, block);
        drop(Raw::new(3 * MIB));
        streamed.begin_part();
        in_vain.end()
    });
    streamed.check();
    drop(Raw::new(3 * MIB));
    streamed.check();
    streamed.session.end().unwrap();
    drop(block);
}

/// The refused free is no longer in the log, so only its undoing shows the peak, when the last alloc is freed already.
#[test]
fn a_stream_has_a_peak_that_was_found_without_an_alloc() {
    let _alone = alone();
    let streamed = Streamed::begin(64, false);
    let block = Raw::new(4 * MIB);
    let (block, other) = std::thread::scope(|threads| {
        let in_vain = InVain::begin(threads, 0, block);
        let other = Raw::new(2 * MIB);
        streamed.begin_part();
        (in_vain.end(), other)
    });
    streamed.check();
    drop(block);
    streamed.check();
    streamed.session.end().unwrap();
    drop(other);
}

/// The refusal comes just before a part ends, so it is the part's last record.
#[test]
fn a_part_that_ends_with_a_refusal_can_be_read_alone() {
    let _alone = alone();
    let streamed = Streamed::begin(1 << 20, true);
    let block = Raw::new(4 * MIB);
    let block = std::thread::scope(|threads| {
        let in_vain = InVain::begin(threads, 0, block);
        drop(Raw::new(3 * MIB));
        streamed.begin_part();
        // The next flush, which the refusal causes, begins another part.
        std::thread::sleep(Duration::from_millis(60));
        in_vain.end()
    });
    streamed.check();
    streamed.session.end().unwrap();
    drop(block);
}

#[derive(Clone, Copy, Debug)]
enum StreamStep {
    Alloc { mib: usize },
    Free { nth: usize },
    BeginInVain { nth: usize },
    EndInVain { nth: usize },
    BeginPart,
    Check,
}

fn stream_steps() -> impl Strategy<Value = Vec<StreamStep>> {
    let step = prop_oneof![
        6 => (1..9usize).prop_map(|mib| StreamStep::Alloc { mib }),
        4 => any::<usize>().prop_map(|nth| StreamStep::Free { nth }),
        3 => any::<usize>().prop_map(|nth| StreamStep::BeginInVain { nth }),
        2 => any::<usize>().prop_map(|nth| StreamStep::EndInVain { nth }),
        1 => Just(StreamStep::BeginPart),
        2 => Just(StreamStep::Check),
    ];
    prop::collection::vec(step, 0..60)
}

proptest! {
    #![proptest_config(random::programs(6))]

    #[test]
    fn a_stream_has_what_the_recorder_knows_while_frees_are_refused(
        steps in stream_steps(),
        max_entries in prop::sample::select(vec![64, 1 << 20]),
        is_timed: bool,
    ) {
        let _alone = alone();
        let streamed = Streamed::begin(max_entries, is_timed);
        let mut blocks = Vec::new();
        std::thread::scope(|threads| {
            let (mut in_vain, mut free) = (Vec::new(), (0..SLOW.len()).collect::<Vec<_>>());
            for step in steps {
                match step {
                    StreamStep::Alloc { mib } => blocks.push(Raw::new(mib * MIB)),
                    StreamStep::Free { nth } if !blocks.is_empty() => drop(blocks.swap_remove(nth % blocks.len())),
                    StreamStep::BeginInVain { nth } if !blocks.is_empty() && !free.is_empty() => {
                        let block = blocks.swap_remove(nth % blocks.len());
                        in_vain.push(InVain::begin(threads, free.pop().unwrap(), block));
                    }
                    StreamStep::EndInVain { nth } if !in_vain.is_empty() => {
                        let ended: InVain<'_> = in_vain.swap_remove(nth % in_vain.len());
                        free.push(ended.slow.0);
                        blocks.push(ended.end());
                    }
                    StreamStep::BeginPart => streamed.begin_part(),
                    StreamStep::Check => streamed.check(),
                    _ => {}
                }
            }
            blocks.extend(in_vain.into_iter().map(InVain::end));
        });
        streamed.check();
        streamed.session.end().unwrap();
    }
}
