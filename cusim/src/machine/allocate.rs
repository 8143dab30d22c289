//! Allocation of device memory from pools.

use super::{SimMachine, pool_index};
use crate::code::{Answer, INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY, demand, demand_or};
use crate::faults::CallKind;
use crate::history::{BlockKind, HistoryRecord, Op};
use crate::memory::{SimBlock, SimPool, Span};

/// An allocation on a device.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllocationRequest {
    /// The device's index, from 0.
    pub device: usize,
    /// Pool, classic or managed.
    pub kind: BlockKind,
    /// In bytes.
    pub size: u64,
    /// The handle of the pool, or 0 for the device's current one.
    pub pool: u64,
    /// The handle of the context, for the log.
    pub context: u64,
    /// The handle of the stream, for the log.
    pub stream: u64,
}

impl AllocationRequest {
    pub(crate) fn new(kind: BlockKind, size: u64) -> Self {
        Self { kind, size, ..Self::default() }
    }
}

/// The step by which a pool grows if there is no room for its usual step.
const LEAST_STEP: u64 = 2 << 20;

fn round_up(bytes: u64, step: u64) -> Answer<u64> {
    bytes.checked_next_multiple_of(step).ok_or(OUT_OF_MEMORY)
}

impl SimMachine {
    /// Allocates a block and returns its address.
    ///
    /// # Errors
    /// The errors of the driver: out of memory, a size of 0 (except for pools), no such pool. Also those that the
    /// fault script demands.
    pub fn allocate(&mut self, request: AllocationRequest) -> Answer<u64> {
        let pool = self.find_pool(&request);
        let answer = pool.and_then(|pool| self.allocate_in(&request, pool));
        let AllocationRequest { device, kind, size, context, stream, .. } = request;
        let address = answer.unwrap_or(0);
        let record = HistoryRecord { context, stream, address, size, ..HistoryRecord::new(Op::Alloc, kind, device) };
        self.record(record, answer, pool.ok());
        answer
    }

    fn allocate_in(&mut self, request: &AllocationRequest, index: usize) -> Answer<u64> {
        self.script.check(CallKind::Alloc, request.size)?;
        let pool = self.pool_at(index)?;
        let is_pool = request.kind.is_pooled();
        demand(!(is_pool && pool.is_imported))?;
        demand_or(!is_pool || self.config.pools, NOT_SUPPORTED)?;
        demand(request.size > 0 || is_pool)?;
        // The driver is assumed to return an address for 0 bytes from a pool, which cudarc's `null()` asks for.
        let taken = round_up(request.size.max(1), pool.grain)?;
        self.place(request, index, taken).or_else(|_| self.grow_and_place(request, index, taken))
    }

    fn find_pool(&self, request: &AllocationRequest) -> Answer<usize> {
        match request.kind {
            BlockKind::Classic | BlockKind::Managed => Ok(pool_index(request.device, request.kind)),
            _ if request.pool == 0 => self.current_pools.get(request.device).copied().ok_or(INVALID_VALUE),
            _ => self.pool(request.pool),
        }
    }

    /// Puts the block into a gap in the pool's segments.
    fn place(&mut self, request: &AllocationRequest, index: usize, taken: u64) -> Answer<u64> {
        let pool = self.pools.get_mut(index).ok_or(INVALID_VALUE)?;
        let device = self.devices.get_mut(pool.device).ok_or(INVALID_VALUE)?;
        let slot = device.find(index, pool, taken, self.config.reuses_at_once()).ok_or(OUT_OF_MEMORY)?;
        self.next_block += 1;
        let AllocationRequest { size, kind, context, .. } = *request;
        device.put(slot, SimBlock { address: slot.address, size, taken, kind, context, id: self.next_block });
        pool.use_bytes(taken);
        Span::fill(slot.address, taken, self.config.fill, self.next_block);
        Ok(slot.address)
    }

    fn grow_and_place(&mut self, request: &AllocationRequest, index: usize, taken: u64) -> Answer<u64> {
        let SimPool { device, kind, step, .. } = *self.pool_at(index)?;
        let (wanted, least) = (round_up(taken, step)?, round_up(taken, LEAST_STEP)?);
        let length = if kind.is_on_device() {
            self.make_room(device, wanted).or_else(|_| self.make_room(device, least))?
        } else {
            wanted
        };
        self.devices.get_mut(device).ok_or(INVALID_VALUE)?.grow(index, length)?;
        self.pool_at_mut(index)?.reserve(length);
        self.place(request, index, taken)
    }

    /// Takes memory that belongs to no segment.
    pub(super) fn take_directly(&mut self, index: usize, bytes: u64) -> Answer {
        let device = self.pool_at(index)?.device;
        self.make_room(device, bytes)?;
        let pool = self.pool_at_mut(index)?;
        pool.reserve(bytes);
        pool.use_bytes(bytes);
        Ok(())
    }

    pub(super) fn give_directly(&mut self, index: usize, bytes: u64) -> Answer {
        let counters = &mut self.pool_at_mut(index)?.counters;
        counters.reserved -= bytes;
        counters.used -= bytes;
        Ok(())
    }

    /// Fails if the device has not enough free memory, even after its pools have released their unused memory.
    pub(super) fn make_room(&mut self, device: usize, length: u64) -> Answer<u64> {
        if self.memory(device).0 < length {
            self.shrink_pools(device, |_| 0);
        }
        if self.memory(device).0 < length { Err(OUT_OF_MEMORY) } else { Ok(length) }
    }
}
