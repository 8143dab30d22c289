//! Helpers for tests of the heap: blocks that use no physical memory, and one recording at a time.
#![allow(dead_code, reason = "each test program uses a part of this")]
#![expect(unsafe_code, reason = "blocks come straight from the global allocator")]

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use memtrace::snapshot::{DeviceSnapshot, Record};
use memtrace::{Device, Session, SnapshotData};

pub(crate) const MIB: usize = 1 << 20;

/// Lets one test run at a time, because a recording covers the process and the harness runs tests in parallel. When
/// this returns, the harness has finished the previous test, and tests that have started since wait here.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    let alone = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    #[cfg(target_os = "linux")]
    all_others_sleep();
    alone
}

/// Waits until all other threads sleep, but only for a short time, because some have work of their own.
#[cfg(target_os = "linux")]
fn all_others_sleep() {
    let began = std::time::Instant::now();
    let is_awake = |task: std::io::Result<std::fs::DirEntry>| {
        // The state follows the thread's name, which is in parentheses. An ended thread has none.
        let stat = std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with(['R', 'D']))
    };
    while std::fs::read_dir("/proc/self/task").unwrap().map(is_awake).filter(|awake| *awake).count() > 1 {
        if began.elapsed() > std::time::Duration::from_millis(200) {
            break;
        }
        std::thread::yield_now();
    }
}

/// Records blocks of 1 MiB or more. The harness has none, so all recorded blocks are the test's.
pub(crate) fn record_large() -> Session {
    memtrace::builder().min_size(MIB).start().unwrap()
}

pub(crate) fn cpu(snapshot: &SnapshotData) -> &DeviceSnapshot {
    snapshot.device(Device::Cpu).unwrap()
}

/// Address and size of the live blocks, in the order of allocation.
pub(crate) fn live(snapshot: &SnapshotData) -> Vec<(u64, u64)> {
    cpu(snapshot).live.iter().map(|block| (block.address, block.size)).collect()
}

/// Bytes of blocks of 1 MiB or more that exist when a recording starts.
pub(crate) fn bytes_before_recording() -> u64 {
    cpu(&record_large().snapshot()).not_recorded
}

pub(crate) fn records(snapshot: &SnapshotData) -> &[Record] {
    &cpu(snapshot).records
}

/// A thread that holds the CPU's ledger much of the time, until this is dropped. Events of other threads have to wait
/// for it.
#[derive(Debug)]
pub(crate) struct Reader(&'static AtomicBool, Option<JoinHandle<()>>);

impl Reader {
    pub(crate) fn begin() -> Self {
        static GOES_ON: AtomicBool = AtomicBool::new(false);
        GOES_ON.store(true, Relaxed);
        let read = || {
            while GOES_ON.load(Relaxed) {
                (0..20).for_each(|_| _ = std::hint::black_box(memtrace::stats(Device::Cpu)));
                std::thread::yield_now();
            }
        };
        Self(&GOES_ON, Some(std::thread::spawn(read)))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.store(false, Relaxed);
        if let Some(thread) = self.1.take() {
            thread.join().unwrap();
        }
    }
}

/// A block from the global allocator, never touched, so that a large one uses no physical memory.
#[derive(Debug)]
pub(crate) struct Raw {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: this value owns its block; no other code has the address.
unsafe impl Send for Raw {}

impl Raw {
    pub(crate) fn new(size: usize) -> Self {
        Self::with(Layout::from_size_align(size, 8).unwrap())
    }

    #[inline(never)]
    pub(crate) fn with(layout: Layout) -> Self {
        assert!(layout.size() > 0);
        // SAFETY: the size is not zero.
        Self::of(unsafe { std::alloc::alloc(layout) }, layout)
    }

    pub(crate) fn zeroed(size: usize) -> Self {
        let layout = Layout::from_size_align(size, 8).unwrap();
        assert!(layout.size() > 0);
        // SAFETY: the size is not zero.
        Self::of(unsafe { std::alloc::alloc_zeroed(layout) }, layout)
    }

    pub(crate) fn resize(&mut self, size: usize) {
        assert!(self.try_resize(size), "the allocator refused {size} bytes");
    }

    /// Returns false if the allocator returned null; the block is then unchanged.
    pub(crate) fn try_resize(&mut self, size: usize) -> bool {
        let layout = Layout::from_size_align(size, self.layout.align()).unwrap();
        assert!(layout.size() > 0);
        // SAFETY: the block came from this allocator with this layout; the new size is not zero.
        let moved = unsafe { std::alloc::realloc(self.start.as_ptr(), self.layout, size) };
        let Some(start) = NonNull::new(moved) else { return false };
        (self.start, self.layout) = (start, layout);
        true
    }

    pub(crate) fn address(&self) -> u64 {
        self.start.addr().get() as u64
    }

    pub(crate) fn size(&self) -> u64 {
        self.layout.size() as u64
    }

    /// The ledger's key: address and size.
    pub(crate) fn key(&self) -> (u64, u64) {
        (self.address(), self.size())
    }

    fn of(start: *mut u8, layout: Layout) -> Self {
        // This hides the block from the optimizer, which may remove a pair of alloc and dealloc.
        Self { start: NonNull::new(std::hint::black_box(start)).unwrap(), layout }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: the block came from this allocator with this layout.
        unsafe { std::alloc::dealloc(self.start.as_ptr(), self.layout) }
    }
}
