//! The simulated machine: GPUs, their memory, and everything that has a handle. The driver has one for the process;
//! tests make their own.

mod access;
mod allocate;
mod array_tiles;
mod arrays;
mod captures;
mod contexts;
mod externals;
mod formats;
mod free;
mod graphs;
mod host;
mod imports;
mod launches;
mod mappings;
mod modules;
mod outside;
mod pools;
#[cfg(test)]
mod property_tests;
mod streams;
mod virtual_memory;

use crate::code::{Answer, INVALID_DEVICE, INVALID_VALUE, OUT_OF_MEMORY};
use crate::config::Config;
use crate::faults::{CallKind, Script};
use crate::history::{BlockKind, History, HistoryRecord};
use crate::meminfo;
use crate::memory::{PoolCounters, PoolPlace, SimDevice, SimPool};
use crate::own::{MmapMap, MmapVec, mmap_map, mmap_vec};

pub(crate) use access::Access;
pub use allocate::AllocationRequest;
use array_tiles::Tile;
pub(crate) use array_tiles::{TileOperation, TilePart};
use arrays::Array;
pub(crate) use contexts::{MULTIPROCESSORS, SimContext, THREADS_OF_EACH};
use externals::ExternalMemory;
pub(crate) use formats::Descriptor;
pub(crate) use graphs::node_type;
use graphs::{Graph, NodeMemory};
pub(crate) use host::HostBlock;
pub(crate) use imports::Ticket;
use launches::Executable;
use mappings::Reservation;
pub(crate) use modules::{KernelFunction, SimModule};
use outside::OutsideRange;
pub(crate) use streams::{DEFAULT_STREAMS, GLOBAL, PER_THREAD, RELAXED, SimCapture, SimEvent, SimStream};
use virtual_memory::VirtualMemory;
pub(crate) use virtual_memory::{AllocationProperties, GRANULARITY};

/// A simulated machine with GPUs.
pub struct SimMachine {
    pub(crate) config: Config,
    script: Script,
    history: History,
    devices: MmapVec<SimDevice>,
    /// First the pools of each device, as [`pool_index`] numbers them, then those that programs created.
    pools: MmapVec<SimPool>,
    /// The default and the current pool of each place that is no device's own memory.
    place_pools: MmapMap<PoolPlace, [u64; 2]>,
    /// For each device, the index of the pool that `cuMemAllocAsync` uses.
    current_pools: MmapVec<usize>,
    pub(crate) contexts: MmapVec<SimContext>,
    pub(crate) streams: MmapMap<u64, SimStream>,
    pub(crate) events: MmapMap<u64, SimEvent>,
    pub(crate) modules: MmapMap<u64, SimModule>,
    pub(crate) functions: MmapMap<u64, KernelFunction>,
    /// Kernels' names, by function. They stay at their addresses, because programs read them.
    kernel_names: MmapMap<u64, MmapVec<u8>>,
    pub(crate) graphs: MmapMap<u64, Graph>,
    executables: MmapMap<u64, Executable>,
    /// Memory of allocation nodes, by address.
    graph_memory: MmapMap<u64, NodeMemory>,
    outside: MmapVec<OutsideRange>,
    arrays: MmapMap<u64, Array>,
    /// The memory of each mapped tile of an array.
    tiles: MmapMap<Tile, u64>,
    externals: MmapMap<u64, ExternalMemory>,
    virtuals: MmapMap<u64, VirtualMemory>,
    reservations: MmapVec<Reservation>,
    host: MmapVec<HostBlock>,
    next_handle: u64,
    next_block: u64,
}

/// Each device's pools. Memory without segments counts as a pool, too.
const POOLS: [BlockKind; 6] =
    [BlockKind::Pool, BlockKind::Classic, BlockKind::Managed, BlockKind::Graph, BlockKind::Virtual, BlockKind::Array];

/// The index of a device's pool for a kind of memory.
fn pool_index(device: usize, kind: BlockKind) -> usize {
    device * POOLS.len() + POOLS.iter().position(|of| *of == kind).unwrap_or(0)
}

impl SimMachine {
    /// Creates a machine.
    ///
    /// # Errors
    /// [`OUT_OF_MEMORY`] if this process has not enough address space for the GPUs' memory.
    pub fn new(config: Config) -> Answer<Self> {
        let mut machine = Self {
            script: Script::new(config.faults),
            history: History::new(),
            devices: mmap_vec(),
            pools: mmap_vec(),
            place_pools: mmap_map(),
            current_pools: mmap_vec(),
            contexts: mmap_vec(),
            streams: mmap_map(),
            events: mmap_map(),
            modules: mmap_map(),
            functions: mmap_map(),
            kernel_names: mmap_map(),
            graphs: mmap_map(),
            executables: mmap_map(),
            graph_memory: mmap_map(),
            outside: mmap_vec(),
            arrays: mmap_map(),
            tiles: mmap_map(),
            externals: mmap_map(),
            virtuals: mmap_map(),
            reservations: mmap_vec(),
            host: mmap_vec(),
            next_handle: FIRST_HANDLE,
            next_block: 0,
            config,
        };
        for device in 0..machine.config.devices {
            machine.add_device(device)?;
        }
        Ok(machine)
    }

    fn add_device(&mut self, device: usize) -> Answer {
        self.devices.push(SimDevice::new(self.config.memory).ok_or(OUT_OF_MEMORY)?);
        let handle = self.new_handle();
        self.current_pools.push(self.pools.len());
        let handle_of = |kind: BlockKind| if kind == BlockKind::Pool { handle } else { 0 };
        self.pools.extend(POOLS.map(|kind| SimPool::new(device, handle_of(kind), kind)));
        let context = self.new_handle();
        self.contexts.push(SimContext::primary(context, device));
        Ok(())
    }

    pub(crate) fn open_log(&mut self) -> Result<(), &'static str> {
        self.history.open_file()
    }

    /// A handle that looks like an address.
    pub(crate) fn new_handle(&mut self) -> u64 {
        self.next_handle += 16;
        self.next_handle
    }

    /// Counts a call for the fault script.
    ///
    /// # Errors
    /// The result code that the script demands.
    pub fn check(&mut self, call: CallKind, size: u64) -> Answer {
        self.script.check(call, size)
    }

    fn pool_at(&self, index: usize) -> Answer<&SimPool> {
        self.pools.get(index).ok_or(INVALID_VALUE)
    }

    fn pool_at_mut(&mut self, index: usize) -> Answer<&mut SimPool> {
        self.pools.get_mut(index).ok_or(INVALID_VALUE)
    }

    /// The event log.
    #[must_use]
    pub fn history(&self) -> &History {
        &self.history
    }

    pub(crate) fn device(&self, ordinal: i32) -> Answer<usize> {
        usize::try_from(ordinal).ok().filter(|device| *device < self.devices.len()).ok_or(INVALID_DEVICE)
    }

    /// The counters of the device's pool for a kind of memory.
    #[must_use]
    pub fn counters(&self, device: usize, kind: BlockKind) -> PoolCounters {
        self.pools.get(pool_index(device, kind)).map(|pool| pool.counters).unwrap_or_default()
    }

    /// Free bytes and all bytes of the device.
    #[must_use]
    pub fn memory(&self, device: usize) -> (u64, u64) {
        let capacity = self.devices.get(device).map_or(0, |device| device.capacity);
        (capacity.saturating_sub(self.taken(device)), capacity)
    }

    /// Free bytes and all bytes as `cuMemGetInfo` reports them. An integrated GPU's driver counts the page cache as
    /// used (assumed).
    #[must_use]
    pub fn memory_info(&self, device: usize) -> (u64, u64) {
        let (free, all) = self.memory(device);
        let page_cache = || self.config.page_cache.unwrap_or_else(meminfo::page_cache);
        (free.saturating_sub(if self.config.integrated { page_cache() } else { 0 }), all)
    }

    /// Bytes of the device that are not free: those of pools, other allocations, contexts, modules and other processes.
    #[must_use]
    pub fn taken(&self, device: usize) -> u64 {
        let of_device = self.pools.iter().filter(|pool| pool.device == device && pool.kind.is_on_device());
        let reserved: u64 = of_device.map(|pool| pool.counters.reserved).sum();
        reserved + self.overhead(device) + self.config.others.get(device).copied().unwrap_or(0)
    }

    /// Bytes of the device's contexts and modules.
    #[must_use]
    pub fn overhead(&self, device: usize) -> u64 {
        let contexts = self.contexts.iter().filter(|context| context.device == device && context.count > 0);
        let modules = self.modules.values().filter(|module| module.device == Some(device));
        let contexts: u64 = contexts.map(|context| self.size_of_context(context.stack)).sum();
        contexts + modules.count() as u64 * self.config.module
    }

    /// Allocates something that is not a block of a pool. It asks the fault script, runs `take`, which returns an
    /// address or a handle, and logs the event.
    fn allocate_logged(
        &mut self,
        record: HistoryRecord,
        pool: Option<usize>,
        take: impl FnOnce(&mut Self) -> Answer<u64>,
    ) -> Answer<u64> {
        let answer = self.script.check(CallKind::Alloc, record.size).and_then(|()| take(self));
        self.record(HistoryRecord { address: answer.unwrap_or(0), ..record }, answer, pool);
        answer
    }

    /// Logs an event, with its result and the counters of its pool.
    fn record<T>(&mut self, record: HistoryRecord, answer: Answer<T>, pool: Option<usize>) {
        let counters = pool.and_then(|pool| self.pools.get(pool)).map(|pool| pool.counters).unwrap_or_default();
        let result = answer.err().unwrap_or(0);
        self.history.add(HistoryRecord { result, used: counters.used, reserved: counters.reserved, ..record });
    }
}

const FIRST_HANDLE: u64 = 0x6D65_6D00_0000;
