//! Memory of other processes: opened by a handle that tells whose it is. Nothing is taken of the device.

use super::Machine;
use super::access::Access;
use super::outside::{Outside, Role};
use super::virtual_memory::GRANULARITY;
use crate::code::{Answer, INVALID_CONTEXT, INVALID_VALUE, OUT_OF_MEMORY};
use crate::faults::Call;
use crate::history::{Kind, Op, Record};
use crate::memory::{Block, Span};

/// 64 bytes that tell of memory: `CUipcMemHandle`, `CUmemPoolPtrExportData`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    mark: u64,
    process: u64,
    address: u64,
    size: u64,
    others: [u64; 4],
}

const MARK: u64 = u64::from_le_bytes(*b"cusimipc");

impl Ticket {
    pub(crate) fn new(address: u64, size: u64) -> Self {
        Self { mark: MARK, process: u64::from(std::process::id()), address, size, others: [0; 4] }
    }

    /// As if another process had made it.
    pub(crate) fn foreign(address: u64, size: u64) -> Self {
        Self { process: 0, ..Self::new(address, size) }
    }

    fn check(&self) -> Answer {
        if self.mark == MARK && self.size > 0 { Ok(()) } else { Err(INVALID_VALUE) }
    }
}

impl Machine {
    /// What tells other processes of a classic block.
    pub(crate) fn ticket(&self, address: u64) -> Answer<Ticket> {
        let block = self.block_around(address).filter(|block| block.kind == Kind::Classic).ok_or(INVALID_VALUE)?;
        Ok(Ticket::new(block.address, block.size))
    }

    /// What tells other processes of a block of a pool that is shared.
    pub(crate) fn ticket_of_pool(&self, address: u64) -> Answer<Ticket> {
        let block = self.block_around(address).filter(|block| block.kind == Kind::Pool).ok_or(INVALID_VALUE)?;
        let (_, _, pool) = self.segment_around(address).ok_or(INVALID_VALUE)?;
        if self.pool_data(pool)?.handles == 0 {
            return Err(INVALID_VALUE);
        }
        Ok(Ticket::new(block.address, block.size))
    }

    /// Opens another process's memory; what a context has open already is only counted once more.
    pub(crate) fn open_ticket(&mut self, ticket: Ticket, context: u64) -> Answer<u64> {
        ticket.check()?;
        if ticket.process == u64::from(std::process::id()) {
            return Err(INVALID_CONTEXT);
        }
        let (key, block_of) = ((ticket.process, ticket.address), |found: &Outside| found.block.context);
        for found in self.outside.iter_mut().filter(|found| block_of(found) == context) {
            if let Role::Ipc { of, count } = &mut found.role
                && *of == key
            {
                *count += 1;
                return Ok(found.block.address);
            }
        }
        self.import(Role::Ipc { of: key, count: 1 }, ticket.size, context)
    }

    pub(crate) fn close_ticket(&mut self, address: u64, context: u64) -> Answer {
        let Some(found) = self.outside.iter_mut().find(|found| found.block.address == address) else {
            return Err(INVALID_VALUE);
        };
        let Role::Ipc { count, .. } = &mut found.role else { return Err(INVALID_VALUE) };
        let is_last = *count == 1;
        if is_last {
            let check = self.script.check(Call::Free, 0);
            return self.free_if(check, address, (context, 0), true);
        }
        *count -= 1;
        Ok(())
    }

    /// A pointer to a block in another process's pool; a free gives it back.
    pub(crate) fn import_pointer(&mut self, pool: u64, ticket: Ticket, context: u64) -> Answer<u64> {
        ticket.check()?;
        if !self.pool_data(pool)?.is_imported {
            return Err(INVALID_VALUE);
        }
        self.import(Role::Pointer, ticket.size, context)
    }

    fn import(&mut self, role: Role, size: u64, context: u64) -> Answer<u64> {
        let device = self.context(context)?.device;
        let check = self.script.check(Call::Alloc, size);
        let answer = check.and_then(|()| self.open_import(role, size, (device, context)));
        let (kind, number, address) = (Kind::Imported, device as i32, answer.unwrap_or(0));
        let record = Record { op: Op::Alloc, kind, device: number, context, address, size, ..Record::default() };
        self.record(record, answer.map(|_| ()), None);
        answer
    }

    /// Addresses for memory that is elsewhere. It has bytes of its own here, zeros.
    pub(super) fn open_import(&mut self, role: Role, size: u64, (device, context): (usize, u64)) -> Answer<u64> {
        let span = Span::reserve(size, 0).ok_or(OUT_OF_MEMORY)?;
        let address = span.base;
        if !Span::open(address, span.length) {
            span.release();
            return Err(OUT_OF_MEMORY);
        }
        self.next_block += 1;
        let block = Block { address, size, taken: size, kind: Kind::Imported, context, id: self.next_block };
        self.put_outside(Outside { device, block, role, access: Access::FULL });
        Ok(address)
    }

    pub(super) fn close_import(&mut self, address: u64) -> Answer {
        let found = self.remove_outside(address)?;
        Span { base: address, length: found.block.size.next_multiple_of(GRANULARITY) }.release();
        Ok(())
    }
}
