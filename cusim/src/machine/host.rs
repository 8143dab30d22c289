//! Pinned and registered host memory.

use super::SimMachine;
use crate::code::{ALREADY_REGISTERED, Answer, INVALID_VALUE, NOT_REGISTERED, OUT_OF_MEMORY, demand};
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

impl SimMachine {
    pub(crate) fn allocate_host(&mut self, size: u64, flags: u32, context: u64) -> Answer<u64> {
        let kind = BlockKind::Pinned;
        let record = HistoryRecord { context, size, ..HistoryRecord::new(Op::Alloc, kind, None) };
        self.allocate_logged(record, None, |machine| {
            let address = map_host(size)?;
            machine.host.push(HostBlock { address, size, kind, flags });
            Ok(address)
        })
    }

    pub(crate) fn free_host(&mut self, address: u64, context: u64) -> Answer {
        let block = self.take_host(address, context, BlockKind::Pinned, INVALID_VALUE)?;
        let length = (block.size as usize).next_multiple_of(PAGE);
        // SAFETY: the block was a mapping, and is no longer in the table.
        unsafe { libc::munmap(address as *mut _, length) };
        Ok(())
    }

    pub(crate) fn register_host(&mut self, address: u64, size: u64, flags: u32, context: u64) -> Answer {
        let overlaps = |block: &HostBlock| block.address < address + size && address < block.address + block.size;
        let is_free = if self.host.iter().any(overlaps) { Err(ALREADY_REGISTERED) } else { Ok(()) };
        let answer = self.script.check(CallKind::Alloc, size).and(is_free);
        let kind = BlockKind::Registered;
        if answer.is_ok() {
            self.host.push(HostBlock { address, size, kind, flags });
        }
        self.record(
            HistoryRecord { context, address, size, ..HistoryRecord::new(Op::Alloc, kind, None) },
            answer,
            None,
        );
        answer
    }

    pub(crate) fn unregister_host(&mut self, address: u64, context: u64) -> Answer {
        self.take_host(address, context, BlockKind::Registered, NOT_REGISTERED).map(|_| ())
    }

    pub(crate) fn host_block(&self, address: u64) -> Option<HostBlock> {
        let around = |block: &&HostBlock| address >= block.address && address - block.address < block.size;
        self.host.iter().find(around).copied()
    }

    fn take_host(&mut self, address: u64, context: u64, kind: BlockKind, refusal: u32) -> Answer<HostBlock> {
        let answer = self.script.check(CallKind::Free, 0).and_then(|()| {
            let found = self.host.iter().position(|block| block.address == address && block.kind == kind);
            found.map(|index| self.host.swap_remove(index)).ok_or(refusal)
        });
        let size = answer.map_or(0, |block| block.size);
        self.record(HistoryRecord { context, address, size, ..HistoryRecord::new(Op::Free, kind, None) }, answer, None);
        answer
    }
}

fn map_host(size: u64) -> Answer<u64> {
    let size = usize::try_from(size).map_err(|_| OUT_OF_MEMORY)?;
    demand(size > 0)?;
    let length = size.checked_next_multiple_of(PAGE).ok_or(OUT_OF_MEMORY)?;
    let start = map(length, libc::PROT_READ | libc::PROT_WRITE).ok_or(OUT_OF_MEMORY)?;
    Ok(start.as_ptr() as u64)
}
