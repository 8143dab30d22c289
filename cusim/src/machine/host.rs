//! Pinned and registered host memory.

use super::Machine;
use crate::code::{ALREADY_REGISTERED, Answer, INVALID_VALUE, NOT_REGISTERED, OUT_OF_MEMORY};
use crate::faults::CallKind;
use crate::history::{BlockKind, HistoryRecord, Op};
use crate::own::{PAGE, map};

#[derive(Clone, Copy, Debug)]
pub(crate) struct HostBlock {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) kind: BlockKind,
    pub(crate) flags: u32,
}

impl Machine {
    pub(crate) fn allocate_host(&mut self, size: u64, flags: u32, context: u64) -> Answer<u64> {
        let answer = self.script.check(CallKind::Alloc, size).and_then(|()| map_host(size));
        let address = answer.unwrap_or(0);
        if answer.is_ok() {
            self.host.push(HostBlock { address, size, kind: BlockKind::Pinned, flags });
        }
        self.record_host(Op::Alloc, BlockKind::Pinned, context, (address, size), answer);
        answer
    }

    pub(crate) fn free_host(&mut self, address: u64, context: u64) -> Answer {
        let answer = self
            .script
            .check(CallKind::Free, 0)
            .and_then(|()| self.take_host(address, BlockKind::Pinned, INVALID_VALUE));
        if let Ok(block) = answer {
            let length = (block.size as usize).next_multiple_of(PAGE);
            // SAFETY: the block was a mapping, and is no longer in the table.
            unsafe { libc::munmap(address as *mut _, length) };
        }
        self.record_host_free(BlockKind::Pinned, context, address, answer)
    }

    pub(crate) fn register_host(&mut self, address: u64, size: u64, flags: u32, context: u64) -> Answer {
        let overlaps = |block: &HostBlock| block.address < address + size && address < block.address + block.size;
        let is_free = if self.host.iter().any(overlaps) { Err(ALREADY_REGISTERED) } else { Ok(()) };
        let answer = self.script.check(CallKind::Alloc, size).and(is_free);
        if answer.is_ok() {
            self.host.push(HostBlock { address, size, kind: BlockKind::Registered, flags });
        }
        self.record_host(Op::Alloc, BlockKind::Registered, context, (address, size), answer);
        answer
    }

    pub(crate) fn unregister_host(&mut self, address: u64, context: u64) -> Answer {
        let check = self.script.check(CallKind::Free, 0);
        let answer = check.and_then(|()| self.take_host(address, BlockKind::Registered, NOT_REGISTERED));
        self.record_host_free(BlockKind::Registered, context, address, answer)
    }

    /// The block of host memory that contains an address.
    pub(crate) fn host_block(&self, address: u64) -> Option<HostBlock> {
        let around = |block: &&HostBlock| address >= block.address && address - block.address < block.size;
        self.host.iter().find(around).copied()
    }

    fn take_host(&mut self, address: u64, kind: BlockKind, refusal: u32) -> Answer<HostBlock> {
        let found = self.host.iter().position(|block| block.address == address && block.kind == kind);
        found.map(|index| self.host.swap_remove(index)).ok_or(refusal)
    }

    fn record_host_free(&mut self, kind: BlockKind, context: u64, address: u64, answer: Answer<HostBlock>) -> Answer {
        let size = answer.map_or(0, |block| block.size);
        self.record_host(Op::Free, kind, context, (address, size), answer);
        answer.map(|_| ())
    }

    fn record_host<T>(
        &mut self,
        op: Op,
        kind: BlockKind,
        context: u64,
        (address, size): (u64, u64),
        answer: Answer<T>,
    ) {
        let record = HistoryRecord { op, kind, device: -1, context, address, size, ..HistoryRecord::default() };
        self.record(record, answer, None);
    }
}

fn map_host(size: u64) -> Answer<u64> {
    let size = usize::try_from(size).map_err(|_| OUT_OF_MEMORY)?;
    if size == 0 {
        return Err(INVALID_VALUE);
    }
    let length = size.checked_next_multiple_of(PAGE).ok_or(OUT_OF_MEMORY)?;
    let start = map(length, libc::PROT_READ | libc::PROT_WRITE).ok_or(OUT_OF_MEMORY)?;
    Ok(start.as_ptr() as u64)
}
