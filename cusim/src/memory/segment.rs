//! A segment: what a pool has from the device in one piece, and the blocks in it.

use crate::history::Kind;
use crate::own::{OwnVec, own_vec};

/// An allocation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub(crate) address: u64,
    /// Bytes asked for.
    pub(crate) size: u64,
    /// Bytes taken: `size`, rounded up.
    pub(crate) taken: u64,
    pub(crate) kind: Kind,
    pub(crate) context: u64,
    pub(crate) id: u64,
}

impl Block {
    pub(crate) fn end(&self) -> u64 {
        self.address + self.taken
    }
}

#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) base: u64,
    pub(crate) length: u64,
    /// The pool that has it, as an index.
    pub(crate) pool: usize,
    free: u64,
    /// By address.
    blocks: OwnVec<Block>,
}

impl Segment {
    pub(crate) fn new(base: u64, length: u64, pool: usize) -> Self {
        Self { base, length, pool, free: length, blocks: own_vec() }
    }

    pub(crate) fn end(&self) -> u64 {
        self.base + self.length
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    pub(crate) fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// The first gap of `taken` bytes at `from` or after it.
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

    pub(crate) fn put(&mut self, block: Block) {
        let index = self.blocks.partition_point(|other| other.address < block.address);
        self.free -= block.taken;
        self.blocks.insert(index, block);
    }

    pub(crate) fn take(&mut self, address: u64) -> Option<Block> {
        let index = self.blocks.binary_search_by_key(&address, |block| block.address).ok()?;
        let block = self.blocks.remove(index);
        self.free += block.taken;
        Some(block)
    }

    /// The block that an address lies in.
    pub(crate) fn block_around(&self, address: u64) -> Option<&Block> {
        let after = self.blocks.partition_point(|block| block.address <= address);
        let block = self.blocks.get(after.checked_sub(1)?)?;
        (address < block.address + block.size.max(1)).then_some(block)
    }
}
