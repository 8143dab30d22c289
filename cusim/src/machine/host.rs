//! Host memory that the driver gave or was told of.

use super::Machine;
use crate::code::{ALREADY_REGISTERED, Answer, INVALID_VALUE, NOT_REGISTERED, OUT_OF_MEMORY};
use crate::faults::Call;
use crate::history::{Kind, Op, Record};
use crate::own::{PAGE, map};

#[derive(Clone, Copy, Debug)]
pub(crate) struct HostBlock {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) kind: Kind,
    pub(crate) flags: u32,
}

impl Machine {
    pub(crate) fn allocate_host(&mut self, size: u64, flags: u32, context: u64) -> Answer<u64> {
        let answer = self.script.check(Call::Alloc, size).and_then(|()| map_host(size));
        let address = answer.unwrap_or(0);
        if answer.is_ok() {
            self.host.push(HostBlock { address, size, kind: Kind::Pinned, flags });
        }
        self.record_host(Op::Alloc, Kind::Pinned, context, (address, size), answer.map(|_| ()));
        answer
    }

    pub(crate) fn free_host(&mut self, address: u64, context: u64) -> Answer {
        let answer =
            self.script.check(Call::Free, 0).and_then(|()| self.take_host(address, Kind::Pinned, INVALID_VALUE));
        if let Ok(block) = answer {
            let length = (block.size as usize).next_multiple_of(PAGE);
            // SAFETY: the block was a mapping of ours, and is in the table no more.
            unsafe { libc::munmap(address as *mut _, length) };
        }
        self.record_host_free(Kind::Pinned, context, address, answer)
    }

    pub(crate) fn register_host(&mut self, address: u64, size: u64, flags: u32, context: u64) -> Answer {
        let overlaps = |block: &HostBlock| block.address < address + size && address < block.address + block.size;
        let is_free = if self.host.iter().any(overlaps) { Err(ALREADY_REGISTERED) } else { Ok(()) };
        let answer = self.script.check(Call::Alloc, size).and(is_free);
        if answer.is_ok() {
            self.host.push(HostBlock { address, size, kind: Kind::Registered, flags });
        }
        self.record_host(Op::Alloc, Kind::Registered, context, (address, size), answer);
        answer
    }

    pub(crate) fn unregister_host(&mut self, address: u64, context: u64) -> Answer {
        let check = self.script.check(Call::Free, 0);
        let answer = check.and_then(|()| self.take_host(address, Kind::Registered, NOT_REGISTERED));
        self.record_host_free(Kind::Registered, context, address, answer)
    }

    /// The block of host memory that an address lies in.
    pub(crate) fn host_block(&self, address: u64) -> Option<HostBlock> {
        let around = |block: &&HostBlock| address >= block.address && address - block.address < block.size;
        self.host.iter().find(around).copied()
    }

    fn take_host(&mut self, address: u64, kind: Kind, refusal: u32) -> Answer<HostBlock> {
        let found = self.host.iter().position(|block| block.address == address && block.kind == kind);
        found.map(|index| self.host.swap_remove(index)).ok_or(refusal)
    }

    fn record_host_free(&mut self, kind: Kind, context: u64, address: u64, answer: Answer<HostBlock>) -> Answer {
        let size = answer.map_or(0, |block| block.size);
        self.record_host(Op::Free, kind, context, (address, size), answer.map(|_| ()));
        answer.map(|_| ())
    }

    fn record_host(&mut self, op: Op, kind: Kind, context: u64, (address, size): (u64, u64), answer: Answer) {
        let record = Record { op, kind, device: -1, context, address, size, ..Record::default() };
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
