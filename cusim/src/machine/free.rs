//! Device memory: giving it back.

use super::Machine;
use super::outside::Role;
use crate::code::{Answer, INVALID_VALUE};
use crate::faults::Call;
use crate::history::{Kind, Op, Record};
use crate::memory::Block;

impl Machine {
    /// Frees a block of any kind of device memory. A refused free leaves the block where it is.
    ///
    /// # Errors
    /// [`INVALID_VALUE`] if there is no block; what the fault script says.
    pub fn free(&mut self, address: u64, context: u64, stream: u64) -> Answer {
        if self.outside_at(address).is_some_and(|found| found.role == Role::Buffer) {
            return self.take(address, false).map(|_| ());
        }
        let check = self.script.check(Call::Free, 0);
        self.free_if(check, address, (context, stream), false)
    }

    /// A free that is no call of its own.
    pub(super) fn free_now(&mut self, address: u64, context: u64, stream: u64) -> Answer {
        self.free_if(Ok(()), address, (context, stream), false)
    }

    /// Frees unless `check` is an error; `is_close` for what a plain free must not free.
    pub(super) fn free_if(
        &mut self,
        check: Answer,
        address: u64,
        (context, stream): (u64, u64),
        is_close: bool,
    ) -> Answer {
        let known = self.block_around(address).filter(|block| block.address == address);
        let device = self.device_of(address);
        let answer = check.and_then(|()| self.take(address, is_close));
        let (kind, size) = known.map_or((Kind::Unknown, 0), |block| (block.kind, block.size));
        let device_number = device.map_or(-1, |device| device as i32);
        let record =
            Record { op: Op::Free, kind, device: device_number, context, stream, address, size, ..Record::default() };
        self.record(record, answer.map(|_| ()), answer.ok().flatten());
        answer.map(|_| ())
    }

    /// Takes a block out of its pool, whose index it gives.
    fn take(&mut self, address: u64, is_close: bool) -> Answer<Option<usize>> {
        let Some(device_index) = self.span_of(address) else { return self.take_outside(address, is_close) };
        let device = self.devices.get_mut(device_index).ok_or(INVALID_VALUE)?;
        let (block, index) = device.take(address)?;
        let pool = self.pools.get_mut(index).ok_or(INVALID_VALUE)?;
        pool.counters.used -= block.taken;
        if self.config.reuses_at_once() {
            pool.note_freed(block.address, block.taken);
        }
        if block.kind != Kind::Pool {
            device.shrink(index, pool, 0);
        }
        Ok(Some(index))
    }

    /// Frees what a context had when it comes to an end.
    pub(crate) fn free_all_of(&mut self, context: u64) {
        while let Some((device, block)) = self.any_block_of(context) {
            let pool = self.take(block.address, true);
            let Block { address, size, kind, .. } = block;
            let device = device as i32;
            let record = Record { op: Op::Bulk, kind, device, context, address, size, ..Record::default() };
            self.record(record, pool.map(|_| ()), pool.ok().flatten());
        }
    }

    fn any_block_of(&self, context: u64) -> Option<(usize, Block)> {
        let in_pools = self.devices.iter().enumerate().find_map(|(index, device)| {
            let blocks = device.segments().iter().flat_map(|segment| segment.blocks());
            blocks.into_iter().find(|block| block.context == context).map(|block| (index, *block))
        });
        in_pools.or_else(|| self.outside_of(context))
    }

    /// The device in whose pools an address lies, live or not.
    fn span_of(&self, address: u64) -> Option<usize> {
        self.devices.iter().position(|device| device.contains(address))
    }

    /// The device that an address belongs to; live or not, if it lies in the pools.
    pub(crate) fn device_of(&self, address: u64) -> Option<usize> {
        self.span_of(address).or_else(|| self.outside_around(address).map(|found| found.device))
    }

    pub(crate) fn block_around(&self, address: u64) -> Option<Block> {
        let Some(device) = self.span_of(address) else {
            return self.outside_around(address).map(|found| found.block);
        };
        self.devices.get(device)?.block_around(address).map(|(block, _)| *block)
    }

    /// The segment that a live block's address lies in: base, length, the pool's handle. What lies outside of
    /// the pools is a segment of its own.
    pub(crate) fn segment_around(&self, address: u64) -> Option<(u64, u64, u64)> {
        let Some(device) = self.span_of(address) else {
            return self.outside_around(address).map(|found| (found.block.address, found.block.taken, 0));
        };
        let device = self.devices.get(device)?;
        let (_, segment) = device.block_around(address)?;
        let pool = self.pools.get(segment.pool).map_or(0, |pool| pool.handle);
        Some((segment.base, segment.length, pool))
    }

    /// That a range can be read or written: within a live block, or not a device's at all.
    pub(crate) fn check_range(&self, address: u64, length: u64) -> Answer {
        if length == 0 {
            return Ok(());
        }
        if self.device_of(address).is_none() {
            return if address == 0 { Err(INVALID_VALUE) } else { Ok(()) };
        }
        let end = address.checked_add(length).ok_or(INVALID_VALUE)?;
        if self.span_of(address).is_none() {
            return self.check_outside(address, end);
        }
        let block = self.block_around(address).ok_or(INVALID_VALUE)?;
        if end <= block.end() { Ok(()) } else { Err(INVALID_VALUE) }
    }

    /// That a range belongs to a device, or is host memory that a device can reach.
    pub(crate) fn check_device_range(&self, address: u64, length: u64) -> Answer {
        let known = length == 0 || self.device_of(address).is_some() || self.host_block(address).is_some();
        if known { self.check_range(address, length) } else { Err(INVALID_VALUE) }
    }
}
