//! Memory pools: creation, choice, release of unused memory.

use super::{POOLS, SimMachine, pool_index};
use crate::code::{Answer, INVALID_VALUE, demand};
use crate::history::{BlockKind, HistoryRecord, Op};
use crate::memory::{PoolPlace, SimPool};

impl SimMachine {
    /// The index of the pool with that handle.
    pub(crate) fn pool(&self, handle: u64) -> Answer<usize> {
        self.pools.iter().position(|pool| pool.handle == handle && handle != 0).ok_or(INVALID_VALUE)
    }

    pub(crate) fn pool_data(&self, handle: u64) -> Answer<&SimPool> {
        self.pool_at(self.pool(handle)?)
    }

    pub(crate) fn pool_data_mut(&mut self, handle: u64) -> Answer<&mut SimPool> {
        self.pool_at_mut(self.pool(handle)?)
    }

    pub(crate) fn default_pool(&self, device: usize) -> u64 {
        self.pools.get(pool_index(device, BlockKind::Pool)).map_or(0, |pool| pool.handle)
    }

    pub(crate) fn current_pool(&self, device: usize) -> u64 {
        let index = self.current_pools.get(device).copied();
        index.and_then(|index| self.pools.get(index)).map_or(0, |pool| pool.handle)
    }

    pub(crate) fn set_current_pool(&mut self, device: usize, handle: u64) -> Answer {
        let index = self.pool(handle)?;
        let is_local = |pool: &SimPool| pool.device == device && !pool.is_imported && pool.place.is_none();
        demand(self.pools.get(index).is_some_and(is_local))?;
        *self.current_pools.get_mut(device).ok_or(INVALID_VALUE)? = index;
        Ok(())
    }

    /// Creates a pool. `handles` are the types of handles with which it can be shared with other processes.
    pub(crate) fn create_pool(&mut self, device: usize, handles: u32, is_imported: bool) -> u64 {
        let handle = self.new_handle();
        let mut pool = SimPool::new(device, handle, BlockKind::Pool);
        (pool.handles, pool.is_imported) = (handles, is_imported);
        self.pools.push(pool);
        handle
    }

    /// Creates a pool of host or managed memory. The pool is listed under device 0, but takes no memory of that device.
    pub(crate) fn create_pool_at(&mut self, place: PoolPlace, handles: u32) -> u64 {
        let handle = self.new_handle();
        let mut pool = SimPool::new(0, handle, place.kind);
        (pool.place, pool.handles) = (Some(place), handles);
        self.pools.push(pool);
        handle
    }

    /// The default and the current pool of a place. The default pool is created when it is first needed.
    pub(crate) fn pools_at(&mut self, place: PoolPlace) -> &mut [u64; 2] {
        if !self.place_pools.contains_key(&place) {
            let handle = self.create_pool_at(place, 0);
            self.place_pools.insert(place, [handle; 2]);
        }
        self.place_pools.entry(place).or_default()
    }

    pub(crate) fn set_current_pool_at(&mut self, place: PoolPlace, handle: u64) -> Answer {
        demand(self.pool_data(handle)?.place == Some(place))?;
        self.pools_at(place)[1] = handle;
        Ok(())
    }

    /// Destroys a pool. Its handle becomes invalid, but live blocks can still be freed. If it was the current pool, the
    /// default pool replaces it.
    pub(crate) fn destroy_pool(&mut self, handle: u64) -> Answer {
        let index = self.pool(handle)?;
        let is_default = index < self.devices.len() * POOLS.len();
        demand(!is_default && !self.place_pools.values().any(|[default, _]| *default == handle))?;
        for [default, current] in self.place_pools.values_mut().filter(|[_, current]| *current == handle) {
            *current = *default;
        }
        for (device, current) in self.current_pools.iter_mut().enumerate() {
            if *current == index {
                *current = pool_index(device, BlockKind::Pool);
            }
        }
        let pool = self.pool_at_mut(index)?;
        pool.handle = 0;
        pool.threshold = 0;
        self.shrink(index, 0);
        Ok(())
    }

    /// Sets the release threshold of a device's default pool.
    pub fn set_release_threshold(&mut self, device: usize, bytes: u64) {
        if let Some(pool) = self.pools.get_mut(pool_index(device, BlockKind::Pool)) {
            pool.threshold = bytes;
        }
    }

    /// The effect of a synchronization: pools release their unused memory, down to their thresholds.
    pub fn synchronise(&mut self, device: usize) {
        self.shrink_pools(device, |pool| pool.threshold);
    }

    pub(crate) fn synchronise_context(&mut self, context: u64) -> Answer {
        let device = self.context(context)?.device;
        self.synchronise(device);
        Ok(())
    }

    pub(crate) fn trim(&mut self, handle: u64, keep: u64) -> Answer {
        self.shrink(self.pool(handle)?, keep);
        Ok(())
    }

    pub(super) fn shrink_pools(&mut self, device: usize, keep: impl Fn(&SimPool) -> u64) {
        for index in 0..self.pools.len() {
            if let Some(pool) = self.pools.get(index).filter(|pool| pool.device == device && pool.counters.reserved > 0)
            {
                let keep = keep(pool);
                self.shrink(index, keep);
            }
        }
    }

    pub(crate) fn trim_graphs(&mut self, device: usize) {
        self.shrink(pool_index(device, BlockKind::Graph), 0);
    }

    fn shrink(&mut self, index: usize, keep: u64) {
        let Some(pool) = self.pools.get_mut(index) else { return };
        let Some(device) = self.devices.get_mut(pool.device) else { return };
        let before = pool.counters.reserved;
        if pool.kind == BlockKind::Graph {
            pool.shrink(keep);
        } else {
            device.shrink(index, pool, keep);
        }
        let (device, kind, size) = (pool.device, pool.kind, before - pool.counters.reserved);
        if size > 0 {
            let record = HistoryRecord { size, ..HistoryRecord::new(Op::Release, kind, device) };
            self.record(record, Ok(()), Some(index));
        }
    }
}
