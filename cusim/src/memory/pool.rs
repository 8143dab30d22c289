//! Memory pools: counters, and how a pool grows.

use crate::history::BlockKind;
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

/// Where the memory of a pool is, if not on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PoolPlace {
    pub(crate) kind: BlockKind,
    /// The type and the id of the location. For managed memory, the preferred one.
    pub(crate) location: (u32, i32),
}

#[derive(Debug)]
pub(crate) struct SimPool {
    pub(crate) device: usize,
    /// 0 once the pool is destroyed.
    pub(crate) handle: u64,
    /// `None` for a device's own memory.
    pub(crate) place: Option<PoolPlace>,
    /// The types of handles with which the pool can be shared with other processes.
    pub(crate) handles: u32,
    /// The pool belongs to another process; nothing can be allocated from it.
    pub(crate) is_imported: bool,
    /// The bytes of a block are rounded up to a multiple of this.
    pub(crate) grain: u64,
    /// The bytes of a segment are a multiple of this.
    pub(crate) step: u64,
    /// The kind of the pool's blocks.
    pub(crate) kind: BlockKind,
    /// The release threshold: the bytes that a synchronization leaves reserved.
    pub(crate) threshold: u64,
    /// Where the search for a gap continues (next fit).
    pub(crate) cursor: u64,
    pub(crate) counters: PoolCounters,
    /// Addresses and sizes of freed blocks, the most recent one last; only if addresses are reused at once.
    freed: MmapVec<(u64, u64)>,
}

impl SimPool {
    /// Memory for graphs has no segments, because each node has addresses of its own; the step of this memory is
    /// assumed. Memory of kinds that are not listed is only counted.
    pub(crate) fn new(device: usize, handle: u64, kind: BlockKind) -> Self {
        let (grain, step) = match kind {
            kind if kind.is_pooled() => (512, 32 << 20),
            BlockKind::Classic | BlockKind::Managed => (256, 2 << 20),
            BlockKind::Graph => (512, 2 << 20),
            _ => (1, 1),
        };
        Self {
            device,
            handle,
            place: None,
            handles: 0,
            is_imported: false,
            grain,
            step,
            kind,
            threshold: if kind == BlockKind::Graph { u64::MAX } else { 0 },
            cursor: 0,
            counters: PoolCounters::default(),
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

    /// The address of the most recently freed block of this size that `fits` accepts. Forgets this block.
    pub(crate) fn freed_last(&mut self, taken: u64, fits: impl Fn(u64) -> bool) -> Option<u64> {
        let index = self.freed.iter().rposition(|(address, size)| *size == taken && fits(*address))?;
        Some(self.freed.remove(index).0)
    }
}
