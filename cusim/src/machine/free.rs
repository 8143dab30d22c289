//! Free of device memory, and look-up of blocks by address.

use super::SimMachine;
use super::outside::Role;
use crate::code::{Answer, INVALID_VALUE};
use crate::faults::CallKind;
use crate::history::{BlockKind, HistoryRecord, Op};
use crate::memory::SimBlock;

impl SimMachine {
    /// Frees a block of device memory of any kind. A refused free changes nothing.
    ///
    /// # Errors
    /// [`INVALID_VALUE`] if there is no block. Also what the fault script demands.
    pub fn free(&mut self, address: u64, context: u64, stream: u64) -> Answer {
        if self.outside_at(address).is_some_and(|found| found.role == Role::Buffer) {
            return self.take(address, false).map(|_| ());
        }
        let check = self.script.check(CallKind::Free, 0);
        self.free_if(check, address, (context, stream), false)
    }

    /// Frees unless `check` is an error. With `is_close`, this also frees blocks that only the end of an opened handle
    /// may free.
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
        let (kind, size) = known.map_or((BlockKind::Unknown, 0), |block| (block.kind, block.size));
        let record = HistoryRecord { context, stream, address, size, ..HistoryRecord::new(Op::Free, kind, device) };
        self.record(record, answer, answer.ok().flatten());
        answer.map(|_| ())
    }

    /// Removes a block; returns the index of its pool.
    fn take(&mut self, address: u64, is_close: bool) -> Answer<Option<usize>> {
        let Some(device_index) = self.span_of(address) else { return self.take_outside(address, is_close) };
        let device = self.devices.get_mut(device_index).ok_or(INVALID_VALUE)?;
        let (block, index) = device.take(address)?;
        let pool = self.pools.get_mut(index).ok_or(INVALID_VALUE)?;
        pool.counters.used -= block.taken;
        if self.config.reuses_at_once() {
            pool.note_freed(block.address, block.taken);
        }
        if !block.kind.is_pooled() {
            device.shrink(index, pool, 0);
        }
        Ok(Some(index))
    }

    pub(crate) fn free_all_of(&mut self, context: u64) {
        while let Some((device, block)) = self.any_block_of(context) {
            let pool = self.take(block.address, true);
            let SimBlock { address, size, kind, .. } = block;
            let record = HistoryRecord { context, address, size, ..HistoryRecord::new(Op::Bulk, kind, device) };
            self.record(record, pool, pool.ok().flatten());
        }
    }

    fn any_block_of(&self, context: u64) -> Option<(usize, SimBlock)> {
        let in_pools = self.devices.iter().enumerate().find_map(|(index, device)| {
            let blocks = device.segments().iter().flat_map(|segment| segment.blocks());
            blocks.into_iter().find(|block| block.context == context).map(|block| (index, *block))
        });
        in_pools.or_else(|| self.outside_of(context))
    }

    /// The device whose address range contains an address.
    fn span_of(&self, address: u64) -> Option<usize> {
        self.devices.iter().position(|device| device.contains(address))
    }

    /// The device that owns an address. In the address range of pools, there need not be a live block at the address.
    pub(crate) fn device_of(&self, address: u64) -> Option<usize> {
        self.span_of(address).or_else(|| self.outside_around(address).map(|found| found.device))
    }

    pub(crate) fn block_around(&self, address: u64) -> Option<SimBlock> {
        let Some(device) = self.span_of(address) else {
            return self.outside_around(address).map(|found| found.block);
        };
        self.devices.get(device)?.block_around(address).map(|(block, _)| *block)
    }

    /// The segment of a live block: base, length, handle of the pool. A range outside of the pools is its own segment.
    pub(crate) fn segment_around(&self, address: u64) -> Option<(u64, u64, u64)> {
        let Some(device) = self.span_of(address) else {
            return self.outside_around(address).map(|found| (found.block.address, found.block.taken, 0));
        };
        let device = self.devices.get(device)?;
        let (_, segment) = device.block_around(address)?;
        let pool = self.pools.get(segment.pool).map_or(0, |pool| pool.handle);
        Some((segment.base, segment.length, pool))
    }

    /// Fails unless a range can be read or written: it must lie within a live block, or belong to no device.
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

    /// Fails unless a range is device memory, or host memory that a device can access.
    pub(crate) fn check_device_range(&self, address: u64, length: u64) -> Answer {
        let known = length == 0 || self.device_of(address).is_some() || self.host_block(address).is_some();
        if known { self.check_range(address, length) } else { Err(INVALID_VALUE) }
    }
}
