//! Live ranges of addresses that lie outside of what the pools have: memory of graphs, mappings of
//! virtual memory.

use super::Machine;
use super::mappings::Access;
use crate::code::{Answer, INVALID_VALUE};
use crate::history::Kind;
use crate::memory::Block;

/// A live range. Kept by address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outside {
    pub(crate) device: usize,
    pub(crate) block: Block,
    /// Of a mapping: what it maps. Else 0.
    pub(crate) handle: u64,
    pub(crate) access: Access,
}

impl Machine {
    pub(super) fn put_outside(&mut self, range: Outside) {
        let index = self.outside.partition_point(|other| other.block.address < range.block.address);
        self.outside.insert(index, range);
    }

    /// The live range that an address lies in.
    pub(crate) fn outside_around(&self, address: u64) -> Option<&Outside> {
        let after = self.outside.partition_point(|other| other.block.address <= address);
        let found = self.outside.get(after.checked_sub(1)?)?;
        (address < found.block.end()).then_some(found)
    }

    /// The live range that starts at an address.
    pub(super) fn outside_at(&self, address: u64) -> Option<&Outside> {
        self.outside_around(address).filter(|found| found.block.address == address)
    }

    /// The live ranges that have something in common with a range.
    pub(super) fn outside_within(&self, address: u64, size: u64) -> impl Iterator<Item = &Outside> {
        let first = self.outside.partition_point(|other| other.block.end() <= address);
        self.outside
            .iter()
            .skip(first)
            .take_while(move |other| other.block.address - address.min(other.block.address) < size)
    }

    pub(super) fn remove_outside(&mut self, address: u64) -> Answer<Outside> {
        let found = self.outside.binary_search_by_key(&address, |other| other.block.address);
        found.map(|index| self.outside.remove(index)).map_err(|_| INVALID_VALUE)
    }

    /// Memory that goes with the context.
    pub(super) fn outside_of(&self, context: u64) -> Option<(usize, Block)> {
        let is_of = |found: &&Outside| found.block.kind == Kind::Graph && found.block.context == context;
        self.outside.iter().find(is_of).map(|found| (found.device, found.block))
    }

    /// Takes out what a free can free; gives the index of its pool.
    pub(super) fn take_outside(&mut self, address: u64) -> Answer<usize> {
        match self.outside_at(address).map(|found| found.block.kind) {
            Some(Kind::Graph) => self.take_graph_memory(address),
            _ => Err(INVALID_VALUE),
        }
    }

    /// That a range can be read or written: live ranges that follow each other without a gap fill it.
    pub(super) fn check_outside(&self, address: u64, end: u64) -> Answer {
        let mut at = address;
        while at < end {
            let found = self.outside_around(at).filter(|found| found.access.is_open());
            at = found.ok_or(INVALID_VALUE)?.block.end();
        }
        Ok(())
    }
}
