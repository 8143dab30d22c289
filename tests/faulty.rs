//! An allocator that refuses requests: the program gets null, and every account is unchanged.
#![expect(unsafe_code, reason = "GlobalAlloc is an unsafe trait")]

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use memtrace::snapshot::DeviceSnapshot;
use memtrace::{Device, MemoryStats, Session, measure, open};
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

/// While this is set, a refused reallocation takes its time.
static HOLD: AtomicBool = AtomicBool::new(false);

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
        if refuses(REALLOC_CALL, new_size) {
            while HOLD.load(Relaxed) {
                std::thread::yield_now();
            }
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

/// While a reallocation waits for its refusal, its block does not count. Meanwhile, `work` runs.
fn while_resized_in_vain(block: &mut Raw, work: impl FnOnce()) {
    HOLD.store(true, Relaxed);
    refuse(REALLOC_CALL, ODD);
    std::thread::scope(|threads| {
        threads.spawn(|| assert!(!block.try_resize(ODD)));
        while !was_refused(REALLOC_CALL) {
            std::thread::yield_now();
        }
        work();
        HOLD.store(false, Relaxed);
    });
}

/// The stream has begun a part since the peak, which is known only after the refusal.
#[test]
fn a_stream_has_the_peak_that_a_refusal_showed() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let stream = path("run.memtrace");
    let session = memtrace::builder().min_size(MIB).stream(stream.to_str().unwrap()).stream_budget(400 << 10);
    let session = session.start().unwrap();
    let mut block = Raw::new(4 * MIB);
    while_resized_in_vain(&mut block, || {
        drop(Raw::new(3 * MIB));
        while !path("run.2.memtrace").exists() {
            (0..100).for_each(|_| drop(Raw::new(2 * MIB)));
            session.flush();
        }
    });
    session.flush();
    check_peak(&stream, &session);
    drop(Raw::new(3 * MIB));
    session.flush();
    check_peak(&stream, &session);
    session.end().unwrap();
}

fn check_peak(stream: &Path, session: &Session) {
    let (read, snapshot) = (open(stream).unwrap(), session.snapshot());
    assert_eq!(cpu(&read).peak, cpu(&snapshot).peak);
    assert_eq!(cpu(&read).live, cpu(&snapshot).live);
}
