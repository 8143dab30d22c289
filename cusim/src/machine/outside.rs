//! Live ranges of addresses that lie outside of what the pools have: memory of graphs, mappings of
//! virtual memory, memory of others.

use super::Machine;
use super::access::Access;
use crate::code::{Answer, INVALID_VALUE};
use crate::memory::Block;

/// A live range. Kept by address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outside {
    pub(crate) device: usize,
    pub(crate) block: Block,
    pub(crate) role: Role,
    pub(crate) access: Access,
}

/// How a range came to be, which says how it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// What an allocation node gave: until it is freed.
    Graph,
    /// Virtual memory, by its handle: until it is unmapped.
    Mapping(u64),
    /// Another process's: until it is closed as often as it was opened.
    Ipc { of: (u64, u64), count: u32 },
    /// In another process's pool: until it is freed.
    Pointer,
    /// In external memory: until it is freed.
    Buffer,
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
        let is_of = |found: &&Outside| {
            matches!(found.role, Role::Graph | Role::Ipc { .. } | Role::Pointer) && found.block.context == context
        };
        self.outside.iter().find(is_of).map(|found| (found.device, found.block))
    }

    /// Takes out what a free can free, or at the end of an opened handle `is_close`; gives the index of its
    /// pool, if it has one.
    pub(super) fn take_outside(&mut self, address: u64, is_close: bool) -> Answer<Option<usize>> {
        match self.outside_at(address).map(|found| found.role) {
            Some(Role::Graph) => self.take_graph_memory(address).map(Some),
            Some(Role::Pointer | Role::Buffer) => self.close_import(address).map(|()| None),
            Some(Role::Ipc { .. }) if is_close => self.close_import(address).map(|()| None),
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
