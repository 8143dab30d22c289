//! Device memory: taking it.

use super::{Machine, POOLS_OF_A_DEVICE};
use crate::code::{Answer, INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY};
use crate::faults::Call;
use crate::history::{Kind, Op, Record};
use crate::memory::{Block, Span};

/// An allocation on a device.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request {
    /// From 0.
    pub device: usize,
    /// Pool, classic or managed.
    pub kind: Kind,
    /// In bytes.
    pub size: u64,
    /// The handle of the pool; 0 for the device's current one.
    pub pool: u64,
    /// The handle of the context, for the log.
    pub context: u64,
    /// The handle of the stream, for the log.
    pub stream: u64,
}

/// What a pool grows by where there is no room for a whole step.
const LEAST_STEP: u64 = 2 << 20;

fn round_up(bytes: u64, step: u64) -> Answer<u64> {
    bytes.checked_next_multiple_of(step).ok_or(OUT_OF_MEMORY)
}

impl Machine {
    /// Allocates; gives the address.
    ///
    /// # Errors
    /// As the driver: out of memory, a size of 0 (except for pools), no such pool; and what the fault script
    /// says.
    pub fn allocate(&mut self, request: Request) -> Answer<u64> {
        let answer = self.find_pool(&request).and_then(|pool| self.allocate_in(&request, pool));
        let pool = self.find_pool(&request).ok();
        let Request { kind, size, context, stream, .. } = request;
        let (device, address) = (request.device as i32, answer.unwrap_or(0));
        let record = Record { op: Op::Alloc, kind, device, context, stream, address, size, ..Record::default() };
        self.record(record, answer.map(|_| ()), pool);
        answer
    }

    fn allocate_in(&mut self, request: &Request, pool: usize) -> Answer<u64> {
        self.script.check(Call::Alloc, request.size)?;
        let pool_data = self.pools.get(pool).ok_or(INVALID_VALUE)?;
        let is_pool = request.kind == Kind::Pool;
        if is_pool && pool_data.is_imported {
            return Err(INVALID_VALUE);
        }
        if is_pool && !self.config.pools {
            return Err(NOT_SUPPORTED);
        }
        if request.size == 0 && !is_pool {
            return Err(INVALID_VALUE);
        }
        // The driver is assumed to give an address for 0 bytes from a pool: cudarc's `null()` asks for it.
        let taken = round_up(request.size.max(1), pool_data.grain)?;
        self.place(request, pool, taken).or_else(|_| self.grow_and_place(request, pool, taken))
    }

    fn find_pool(&self, request: &Request) -> Answer<usize> {
        match request.kind {
            Kind::Classic => Ok(request.device * POOLS_OF_A_DEVICE + 1),
            Kind::Managed => Ok(request.device * POOLS_OF_A_DEVICE + 2),
            _ if request.pool == 0 => self.current_pools.get(request.device).copied().ok_or(INVALID_VALUE),
            _ => self.pool(request.pool),
        }
    }

    /// Puts the block into a gap of what the pool has.
    fn place(&mut self, request: &Request, index: usize, taken: u64) -> Answer<u64> {
        let pool = self.pools.get_mut(index).ok_or(INVALID_VALUE)?;
        let device = self.devices.get_mut(pool.device).ok_or(INVALID_VALUE)?;
        let place = device.find(index, pool, taken, self.config.reuses_at_once()).ok_or(OUT_OF_MEMORY)?;
        self.next_block += 1;
        let Request { size, kind, context, .. } = *request;
        device.put(place, Block { address: place.address, size, taken, kind, context, id: self.next_block });
        pool.use_bytes(taken);
        Span::fill(place.address, taken, self.config.fill, self.next_block);
        Ok(place.address)
    }

    fn grow_and_place(&mut self, request: &Request, index: usize, taken: u64) -> Answer<u64> {
        let pool = self.pools.get(index).ok_or(INVALID_VALUE)?;
        let (device, on_device) = (pool.device, pool.on_device);
        let (wanted, least) = (round_up(taken, pool.step)?, round_up(taken, LEAST_STEP)?);
        let length =
            if on_device { self.make_room(device, wanted).or_else(|_| self.make_room(device, least))? } else { wanted };
        self.devices.get_mut(device).ok_or(INVALID_VALUE)?.grow(index, length)?;
        self.pools.get_mut(index).ok_or(INVALID_VALUE)?.reserve(length);
        self.place(request, index, taken)
    }

    /// Takes memory for something that is not in a segment.
    pub(super) fn take_directly(&mut self, pool: usize, bytes: u64) -> Answer {
        let device = self.pools.get(pool).ok_or(INVALID_VALUE)?.device;
        self.make_room(device, bytes)?;
        let pool = self.pools.get_mut(pool).ok_or(INVALID_VALUE)?;
        pool.reserve(bytes);
        pool.use_bytes(bytes);
        Ok(())
    }

    pub(super) fn give_directly(&mut self, pool: usize, bytes: u64) -> Answer {
        let pool = self.pools.get_mut(pool).ok_or(INVALID_VALUE)?;
        pool.counters.reserved -= bytes;
        pool.counters.used -= bytes;
        Ok(())
    }

    /// Before it is out of memory, a device takes back what its pools do not use.
    pub(super) fn make_room(&mut self, device: usize, length: u64) -> Answer<u64> {
        if self.memory(device).0 < length {
            self.shrink_pools(device, |_| 0);
        }
        if self.memory(device).0 < length { Err(OUT_OF_MEMORY) } else { Ok(length) }
    }
}
