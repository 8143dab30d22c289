//! A simulated machine as a value: the driver's functions act on one for the whole process, tests make
//! their own.

mod access;
mod allocate;
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

use crate::code::{Answer, Code, INVALID_DEVICE, OUT_OF_MEMORY};
use crate::config::Config;
use crate::faults::{Call, Script};
use crate::history::{History, Kind, Record};
use crate::memory::{Counters, Device, Pool};
use crate::own::{OwnMap, OwnVec, own_map, own_vec};

pub(crate) use access::Access;
pub use allocate::Request;
use arrays::Array;
pub(crate) use contexts::Context;
use externals::External;
pub(crate) use formats::Descriptor;
pub(crate) use graphs::node_type;
use graphs::{Graph, GraphMemory};
pub(crate) use host::HostBlock;
pub(crate) use imports::Ticket;
use launches::Executable;
use mappings::Reservation;
pub(crate) use modules::{Function, Module};
use outside::Outside;
pub(crate) use streams::{Capture, DEFAULT_STREAMS, Event, GLOBAL, RELAXED, Stream};
use virtual_memory::VirtualMemory;
pub(crate) use virtual_memory::{GRANULARITY, Properties};

/// GPUs, their memory, and everything that has a handle.
pub struct Machine {
    pub(crate) config: Config,
    script: Script,
    history: History,
    devices: OwnVec<Device>,
    /// For each device six: its default pool, classic memory, managed memory, memory of graphs, virtual
    /// memory, arrays. Then those that programs made.
    pools: OwnVec<Pool>,
    /// For each device, the pool that `cuMemAllocAsync` takes from.
    current_pools: OwnVec<usize>,
    pub(crate) contexts: OwnVec<Context>,
    pub(crate) streams: OwnMap<u64, Stream>,
    pub(crate) events: OwnMap<u64, Event>,
    pub(crate) modules: OwnMap<u64, Module>,
    pub(crate) functions: OwnMap<u64, Function>,
    pub(crate) graphs: OwnMap<u64, Graph>,
    executables: OwnMap<u64, Executable>,
    /// What allocation nodes give, by address.
    graph_memory: OwnMap<u64, GraphMemory>,
    outside: OwnVec<Outside>,
    arrays: OwnMap<u64, Array>,
    externals: OwnMap<u64, External>,
    virtuals: OwnMap<u64, VirtualMemory>,
    reservations: OwnVec<Reservation>,
    host: OwnVec<HostBlock>,
    next_handle: u64,
    next_block: u64,
}

/// Pools that each device has.
const POOLS_OF_A_DEVICE: usize = 6;

impl Machine {
    /// A machine as `config` says.
    ///
    /// # Errors
    /// [`OUT_OF_MEMORY`] if this process has not enough addresses for the GPUs' memory.
    pub fn new(config: Config) -> Answer<Self> {
        let mut machine = Self {
            script: Script::new(config.faults),
            history: History::new(),
            devices: own_vec(),
            pools: own_vec(),
            current_pools: own_vec(),
            contexts: own_vec(),
            streams: own_map(),
            events: own_map(),
            modules: own_map(),
            functions: own_map(),
            graphs: own_map(),
            executables: own_map(),
            graph_memory: own_map(),
            outside: own_vec(),
            arrays: own_map(),
            externals: own_map(),
            virtuals: own_map(),
            reservations: own_vec(),
            host: own_vec(),
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
        self.devices.push(Device::new(self.config.memory).ok_or(OUT_OF_MEMORY)?);
        let handle = self.new_handle();
        self.current_pools.push(self.pools.len());
        self.pools.push(Pool::stream_ordered(device, handle));
        self.pools.push(Pool::classic(device));
        self.pools.push(Pool::managed(device));
        self.pools.push(Pool::of_graphs(device));
        self.pools.push(Pool::counted(device));
        self.pools.push(Pool::counted(device));
        let context = self.new_handle();
        self.contexts.push(Context::primary(context, device));
        Ok(())
    }

    pub(crate) fn open_log(&mut self) -> Result<(), &'static str> {
        self.history.open_file()
    }

    /// Handles look like addresses and are none.
    pub(crate) fn new_handle(&mut self) -> u64 {
        self.next_handle += 16;
        self.next_handle
    }

    /// Counts a call, and gives the code that the fault script wants from it.
    ///
    /// # Errors
    /// What the script says.
    pub fn check(&mut self, call: Call) -> Answer {
        self.script.check(call, 0)
    }

    pub(crate) fn check_copy(&mut self, size: u64) -> Answer {
        self.script.check(Call::Copy, size)
    }

    /// What happened so far.
    #[must_use]
    pub fn history(&self) -> &History {
        &self.history
    }

    /// The device's index, if there is such a device.
    ///
    /// # Errors
    /// [`INVALID_DEVICE`].
    pub(crate) fn device(&self, ordinal: i32) -> Answer<usize> {
        usize::try_from(ordinal).ok().filter(|device| *device < self.devices.len()).ok_or(INVALID_DEVICE)
    }

    /// The counters of the device's pool of that kind.
    #[must_use]
    pub fn counters(&self, device: usize, kind: Kind) -> Counters {
        let pool = device * POOLS_OF_A_DEVICE
            + match kind {
                Kind::Classic => 1,
                Kind::Managed => 2,
                Kind::Graph => 3,
                Kind::Virtual => 4,
                Kind::Array => 5,
                _ => 0,
            };
        self.pools.get(pool).map_or_else(Counters::default, |pool| pool.counters)
    }

    /// Bytes of the device that nobody has, and all bytes.
    #[must_use]
    pub fn memory(&self, device: usize) -> (u64, u64) {
        let capacity = self.devices.get(device).map_or(0, |device| device.capacity);
        (capacity.saturating_sub(self.taken(device)), capacity)
    }

    /// Bytes of the device that somebody has: pools and all else that is allocated, contexts, modules, other
    /// processes.
    #[must_use]
    pub fn taken(&self, device: usize) -> u64 {
        let of_device = self.pools.iter().filter(|pool| pool.device == device && pool.on_device);
        let reserved: u64 = of_device.map(|pool| pool.counters.reserved).sum();
        reserved + self.overhead(device) + self.config.others.get(device).copied().unwrap_or(0)
    }

    /// Bytes of the device that contexts and modules take.
    #[must_use]
    pub fn overhead(&self, device: usize) -> u64 {
        let contexts = self.contexts.iter().filter(|context| context.device == device && context.count > 0);
        let modules = self.modules.values().filter(|module| module.device == Some(device));
        contexts.count() as u64 * self.config.context + modules.count() as u64 * self.config.module
    }

    fn record(&mut self, record: Record, answer: Answer<()>, pool: Option<usize>) {
        let counters = pool.and_then(|pool| self.pools.get(pool)).map_or_else(Counters::default, |pool| pool.counters);
        let result = answer.err().unwrap_or(0 as Code);
        self.history.add(Record { result, used: counters.used, reserved: counters.reserved, ..record });
    }
}

const FIRST_HANDLE: u64 = 0x6D65_6D00_0000;
