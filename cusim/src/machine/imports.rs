//! Memory of other processes, opened by IPC handles. It takes no memory of the device.

use super::SimMachine;
use super::access::Access;
use super::outside::{OutsideRange, Role};
use super::virtual_memory::GRANULARITY;
use crate::code::{Answer, INVALID_CONTEXT, INVALID_VALUE, OUT_OF_MEMORY, demand, demand_or};
use crate::faults::CallKind;
use crate::history::{BlockKind, HistoryRecord, Op};
use crate::memory::{SimBlock, Span};

/// A handle of 64 bytes: `CUipcMemHandle`, `CUmemPoolPtrExportData`.
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

    /// A handle as if another process had created it.
    pub(crate) fn foreign(address: u64, size: u64) -> Self {
        Self { process: 0, ..Self::new(address, size) }
    }

    fn check(&self) -> Answer {
        if self.mark == MARK && self.size > 0 { Ok(()) } else { Err(INVALID_VALUE) }
    }
}

impl SimMachine {
    /// The handle of a classic block.
    pub(crate) fn ticket(&self, address: u64) -> Answer<Ticket> {
        let block = self.block_around(address).filter(|block| block.kind == BlockKind::Classic).ok_or(INVALID_VALUE)?;
        Ok(Ticket::new(block.address, block.size))
    }

    /// The handle of a block of a shared pool.
    pub(crate) fn ticket_of_pool(&self, address: u64) -> Answer<Ticket> {
        let block = self.block_around(address).filter(|block| block.kind == BlockKind::Pool).ok_or(INVALID_VALUE)?;
        let (_, _, pool) = self.segment_around(address).ok_or(INVALID_VALUE)?;
        demand(self.pool_data(pool)?.handles != 0)?;
        Ok(Ticket::new(block.address, block.size))
    }

    /// Opens another process's memory. If the context has this memory open already, the memory gets a further
    /// reference.
    pub(crate) fn open_ticket(&mut self, ticket: Ticket, context: u64) -> Answer<u64> {
        ticket.check()?;
        demand_or(ticket.process != u64::from(std::process::id()), INVALID_CONTEXT)?;
        let key = (ticket.process, ticket.address);
        for found in self.outside.iter_mut().filter(|found| found.block.context == context) {
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
        let found = self.outside.iter_mut().find(|found| found.block.address == address).ok_or(INVALID_VALUE)?;
        let Role::Ipc { count, .. } = &mut found.role else { return Err(INVALID_VALUE) };
        let is_last = *count == 1;
        if is_last {
            let check = self.script.check(CallKind::Free, 0);
            return self.free_if(check, address, (context, 0), true);
        }
        *count -= 1;
        Ok(())
    }

    /// The address of a block in another process's pool, until it is freed.
    pub(crate) fn import_pointer(&mut self, pool: u64, ticket: Ticket, context: u64) -> Answer<u64> {
        ticket.check()?;
        demand(self.pool_data(pool)?.is_imported)?;
        self.import(Role::Pointer, ticket.size, context)
    }

    fn import(&mut self, role: Role, size: u64, context: u64) -> Answer<u64> {
        let device = self.context(context)?.device;
        let record = HistoryRecord { context, size, ..HistoryRecord::new(Op::Alloc, BlockKind::Imported, device) };
        self.allocate_logged(record, None, |machine| machine.open_import(role, size, (device, context)))
    }

    /// Maps memory of another process, which reads as zero.
    pub(super) fn open_import(&mut self, role: Role, size: u64, (device, context): (usize, u64)) -> Answer<u64> {
        let span = Span::reserve(size, 0).ok_or(OUT_OF_MEMORY)?;
        let address = span.base;
        if !Span::open(address, span.length) {
            span.release();
            return Err(OUT_OF_MEMORY);
        }
        let block = SimBlock { address, size, taken: size, kind: BlockKind::Imported, context, id: 0 };
        self.put_outside(OutsideRange { device, block, role, access: Access::FULL });
        Ok(address)
    }

    pub(super) fn close_import(&mut self, address: u64) -> Answer {
        let found = self.remove_outside(address)?;
        Span { base: address, length: found.block.size.next_multiple_of(GRANULARITY) }.release();
        Ok(())
    }
}
