//! Segments: contiguous memory that a pool took from the device, and the blocks in it.

use crate::history::BlockKind;
use crate::own::{MmapVec, mmap_vec};

#[derive(Clone, Copy, Debug)]
pub(crate) struct SimBlock {
    pub(crate) address: u64,
    /// Requested bytes.
    pub(crate) size: u64,
    /// `size` rounded up.
    pub(crate) taken: u64,
    pub(crate) kind: BlockKind,
    pub(crate) context: u64,
    pub(crate) id: u64,
}

impl SimBlock {
    pub(crate) fn end(&self) -> u64 {
        self.address + self.taken
    }
}

#[derive(Debug)]
pub(crate) struct SimSegment {
    pub(crate) base: u64,
    pub(crate) length: u64,
    /// The index of its pool.
    pub(crate) pool: usize,
    free: u64,
    /// Sorted by address.
    blocks: MmapVec<SimBlock>,
}

impl SimSegment {
    pub(crate) fn new(base: u64, length: u64, pool: usize) -> Self {
        Self { base, length, pool, free: length, blocks: mmap_vec() }
    }

    pub(crate) fn end(&self) -> u64 {
        self.base + self.length
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    pub(crate) fn blocks(&self) -> &[SimBlock] {
        &self.blocks
    }

    /// The first gap of `taken` bytes at or after `from`.
    pub(crate) fn gap(&self, from: u64, taken: u64) -> Option<u64> {
        if self.free < taken {
            return None;
        }
        let mut at = from.max(self.base);
        let first = self.blocks.partition_point(|block| block.end() <= at);
        for block in self.blocks.iter().skip(first) {
            if block.address >= at + taken {
                return Some(at);
            }
            at = block.end();
        }
        (self.end() >= at + taken).then_some(at)
    }

    pub(crate) fn put(&mut self, block: SimBlock) {
        let index = self.blocks.partition_point(|other| other.address < block.address);
        self.free -= block.taken;
        self.blocks.insert(index, block);
    }

    pub(crate) fn take(&mut self, address: u64) -> Option<SimBlock> {
        let index = self.blocks.binary_search_by_key(&address, |block| block.address).ok()?;
        let block = self.blocks.remove(index);
        self.free += block.taken;
        Some(block)
    }

    /// The block that contains an address.
    pub(crate) fn block_around(&self, address: u64) -> Option<&SimBlock> {
        let after = self.blocks.partition_point(|block| block.address <= address);
        let block = self.blocks.get(after.checked_sub(1)?)?;
        (address < block.address + block.size.max(1)).then_some(block)
    }
}
