//! Live address ranges outside of pools: memory of graphs, mappings of virtual memory, imported memory.

use super::SimMachine;
use super::access::Access;
use crate::code::{Answer, INVALID_VALUE};
use crate::memory::SimBlock;

#[derive(Clone, Copy, Debug)]
pub(crate) struct OutsideRange {
    pub(crate) device: usize,
    pub(crate) block: SimBlock,
    pub(crate) role: Role,
    pub(crate) access: Access,
}

/// The origin of a range, which determines how it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Memory of an allocation node, until it is freed.
    Graph,
    /// Virtual memory, by its handle, until it is unmapped.
    Mapping(u64),
    /// Memory of another process, until it was closed as often as it was opened.
    Ipc { of: (u64, u64), count: u32 },
    /// A block in another process's pool, until it is freed.
    Pointer,
    /// A buffer in external memory, until it is freed.
    Buffer,
}

impl SimMachine {
    /// Adds a range and gives its block an id.
    pub(super) fn put_outside(&mut self, mut range: OutsideRange) {
        self.next_block += 1;
        range.block.id = self.next_block;
        let index = self.outside.partition_point(|other| other.block.address < range.block.address);
        self.outside.insert(index, range);
    }

    /// The live range that contains an address.
    pub(crate) fn outside_around(&self, address: u64) -> Option<&OutsideRange> {
        let after = self.outside.partition_point(|other| other.block.address <= address);
        let found = self.outside.get(after.checked_sub(1)?)?;
        (address < found.block.end()).then_some(found)
    }

    pub(super) fn outside_at(&self, address: u64) -> Option<&OutsideRange> {
        self.outside_around(address).filter(|found| found.block.address == address)
    }

    /// The live ranges that overlap a range.
    pub(super) fn outside_within(&self, address: u64, size: u64) -> impl Iterator<Item = &OutsideRange> {
        let first = self.outside.partition_point(|other| other.block.end() <= address);
        self.outside
            .iter()
            .skip(first)
            .take_while(move |other| other.block.address - address.min(other.block.address) < size)
    }

    pub(super) fn remove_outside(&mut self, address: u64) -> Answer<OutsideRange> {
        let found = self.outside.binary_search_by_key(&address, |other| other.block.address);
        found.map(|index| self.outside.remove(index)).map_err(|_| INVALID_VALUE)
    }

    /// One of the blocks that end when this context ends.
    pub(super) fn outside_of(&self, context: u64) -> Option<(usize, SimBlock)> {
        let is_of = |found: &&OutsideRange| {
            matches!(found.role, Role::Graph | Role::Ipc { .. } | Role::Pointer) && found.block.context == context
        };
        self.outside.iter().find(is_of).map(|found| (found.device, found.block))
    }

    /// Removes a range that a free can free. With `is_close`, also a range that only the end of an opened handle can
    /// free. Returns the index of its pool, if it has one.
    pub(super) fn take_outside(&mut self, address: u64, is_close: bool) -> Answer<Option<usize>> {
        match self.outside_at(address).map(|found| found.role) {
            Some(Role::Graph) => self.take_graph_memory(address).map(Some),
            Some(Role::Pointer | Role::Buffer) => self.close_import(address).map(|()| None),
            Some(Role::Ipc { .. }) if is_close => self.close_import(address).map(|()| None),
            _ => Err(INVALID_VALUE),
        }
    }

    /// Fails unless accessible live ranges fill a range without a gap.
    pub(super) fn check_outside(&self, address: u64, end: u64) -> Answer {
        let mut at = address;
        while at < end {
            let found = self.outside_around(at).filter(|found| found.access.is_open());
            at = found.ok_or(INVALID_VALUE)?.block.end();
        }
        Ok(())
    }
}
