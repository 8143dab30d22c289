//! Memory pools: counters, and how a pool grows.

use crate::own::{MmapVec, mmap_vec};

/// A pool's bytes, as the driver's attributes report them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounters {
    /// Bytes in live blocks, each rounded up.
    pub used: u64,
    /// The high-water mark of `used` since the last reset.
    pub used_high: u64,
    /// Bytes in segments.
    pub reserved: u64,
    /// The high-water mark of `reserved` since the last reset.
    pub reserved_high: u64,
}

#[derive(Debug)]
pub(crate) struct SimPool {
    pub(crate) device: usize,
    /// 0 once the pool is destroyed.
    pub(crate) handle: u64,
    /// Handle types as which it can be exported.
    pub(crate) handles: u32,
    /// The pool belongs to another process; nothing can be allocated from it.
    pub(crate) is_imported: bool,
    /// Blocks are multiples of this.
    pub(crate) grain: u64,
    /// Segments are multiples of this.
    pub(crate) step: u64,
    /// Whether its memory is the device's, unlike managed memory.
    pub(crate) on_device: bool,
    /// The release threshold: the bytes that a synchronization leaves reserved.
    pub(crate) threshold: u64,
    /// Where the search for a gap continues (next fit).
    pub(crate) cursor: u64,
    pub(crate) counters: PoolCounters,
    /// Addresses and sizes of freed blocks, the most recent one last; only if addresses are reused at once.
    freed: MmapVec<(u64, u64)>,
}

/// Grain and step of the driver's pools.
const POOL: (u64, u64) = (512, 32 << 20);
/// Grain and step of `cuMemAlloc`.
const CLASSIC: (u64, u64) = (256, 2 << 20);
/// Grain and step of memory for graphs (assumed).
const GRAPHS: (u64, u64) = (512, 2 << 20);

impl PoolCounters {
    pub(crate) fn reset_used_high(&mut self) {
        self.used_high = self.used;
    }

    pub(crate) fn reset_reserved_high(&mut self) {
        self.reserved_high = self.reserved;
    }
}

impl SimPool {
    pub(crate) fn stream_ordered(device: usize, handle: u64) -> Self {
        Self::new(device, handle, POOL, true)
    }

    pub(crate) fn classic(device: usize) -> Self {
        Self::new(device, 0, CLASSIC, true)
    }

    /// Memory for graphs. It has no segments, because each node has addresses of its own.
    pub(crate) fn of_graphs(device: usize) -> Self {
        Self { threshold: u64::MAX, ..Self::new(device, 0, GRAPHS, true) }
    }

    /// Memory that is only counted.
    pub(crate) fn counted(device: usize) -> Self {
        Self::new(device, 0, (1, 1), true)
    }

    pub(crate) fn managed(device: usize) -> Self {
        Self::new(device, 0, CLASSIC, false)
    }

    fn new(device: usize, handle: u64, (grain, step): (u64, u64), on_device: bool) -> Self {
        let counters = PoolCounters::default();
        Self {
            device,
            handle,
            handles: 0,
            is_imported: false,
            grain,
            step,
            on_device,
            threshold: 0,
            cursor: 0,
            counters,
            freed: mmap_vec(),
        }
    }

    pub(crate) fn reserve(&mut self, bytes: u64) {
        self.counters.reserved += bytes;
        self.counters.reserved_high = self.counters.reserved_high.max(self.counters.reserved);
    }

    pub(crate) fn use_bytes(&mut self, bytes: u64) {
        self.counters.used += bytes;
        self.counters.used_high = self.counters.used_high.max(self.counters.used);
    }

    /// Releases unused memory of a pool without segments, down to `keep` bytes.
    pub(crate) fn shrink(&mut self, keep: u64) {
        let least = self.counters.used.next_multiple_of(self.step).max(keep);
        self.counters.reserved = self.counters.reserved.min(least);
    }

    pub(crate) fn note_freed(&mut self, address: u64, taken: u64) {
        if self.freed.len() >= 4096 {
            self.freed.drain(..2048);
        }
        self.freed.push((address, taken));
    }

    /// The address of the last freed block of that size that `fits`.
    pub(crate) fn freed_last(&mut self, taken: u64, fits: impl Fn(u64) -> bool) -> Option<u64> {
        let index = self.freed.iter().rposition(|(address, size)| *size == taken && fits(*address))?;
        Some(self.freed.remove(index).0)
    }
}
