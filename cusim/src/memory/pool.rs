//! A pool: counters over the segments it has, and how it grows.

use crate::own::{OwnVec, own_vec};

/// What a pool has and gives, in bytes: the driver's USED and RESERVED.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// In live blocks, each rounded up.
    pub used: u64,
    /// The most `used` since the last reset.
    pub used_high: u64,
    /// In segments.
    pub reserved: u64,
    /// The most `reserved` since the last reset.
    pub reserved_high: u64,
}

#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) device: usize,
    /// 0 once the pool is destroyed.
    pub(crate) handle: u64,
    /// Types of handles that it can be exported as.
    pub(crate) handles: u32,
    /// Another process's: nothing can be allocated from it.
    pub(crate) is_imported: bool,
    /// Blocks are multiples of this.
    pub(crate) grain: u64,
    /// Segments are multiples of this.
    pub(crate) step: u64,
    /// Whether its memory is the device's: not so for managed memory.
    pub(crate) on_device: bool,
    /// What a synchronise leaves reserved.
    pub(crate) threshold: u64,
    /// Where the search for a gap goes on.
    pub(crate) cursor: u64,
    pub(crate) counters: Counters,
    /// Where blocks were freed, the last one last; only if they are to be used again at once.
    freed: OwnVec<(u64, u64)>,
}

/// The driver's pools grow in steps of 32 MiB, and their blocks lie on multiples of 512 bytes.
const POOL: (u64, u64) = (512, 32 << 20);
/// `cuMemAlloc` takes 2 MiB at a time, and its blocks lie on multiples of 256 bytes.
const CLASSIC: (u64, u64) = (256, 2 << 20);
/// Graphs take physical memory in steps of 2 MiB (assumed).
const GRAPHS: (u64, u64) = (512, 2 << 20);

impl Pool {
    pub(crate) fn stream_ordered(device: usize, handle: u64) -> Self {
        Self::new(device, handle, POOL, true)
    }

    pub(crate) fn classic(device: usize) -> Self {
        Self::new(device, 0, CLASSIC, true)
    }

    /// What graphs have. No segments: each node has addresses of its own.
    pub(crate) fn of_graphs(device: usize) -> Self {
        Self { threshold: u64::MAX, ..Self::new(device, 0, GRAPHS, true) }
    }

    /// Memory that is counted and nothing else: whoever has it knows where it is.
    pub(crate) fn counted(device: usize) -> Self {
        Self::new(device, 0, (1, 1), true)
    }

    pub(crate) fn managed(device: usize) -> Self {
        Self::new(device, 0, CLASSIC, false)
    }

    fn new(device: usize, handle: u64, (grain, step): (u64, u64), on_device: bool) -> Self {
        let counters = Counters::default();
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
            freed: own_vec(),
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

    /// Gives back what is not in use, for a pool without segments; it keeps at least `keep` bytes.
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

    /// Where the last block of that size was that `fits`.
    pub(crate) fn freed_last(&mut self, taken: u64, fits: impl Fn(u64) -> bool) -> Option<u64> {
        let index = self.freed.iter().rposition(|(address, size)| *size == taken && fits(*address))?;
        Some(self.freed.remove(index).0)
    }
}
