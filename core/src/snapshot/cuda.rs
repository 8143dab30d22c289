//! State of the CUDA hooks, and the driver's own memory statistics.

use super::DeviceSnapshot;
use super::unified::UnifiedMemory;
use super::words::words;

words! {
    /// Whether CUDA driver calls were hooked.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum CudaState {
        /// The hooks were ready, but the program never loaded the driver: it uses no CUDA.
        #[default]
        NotLoaded = "not_loaded",
        /// The hooks were active.
        Active = "active",
        /// The program was started with `MEMTRACE=0`.
        TurnedOff = "turned_off",
        /// Another copy of memtrace in the process has the hooks; this copy sees no CUDA memory.
        AnotherCopy = "another_copy",
        /// This platform has no hooks: they need Linux with glibc on x86-64 or aarch64.
        NotSupported = "not_supported",
        /// The hooks were active on the simulated driver, whose own memory use differs from a GPU's.
        Simulated = "simulated",
    }
}

impl CudaState {
    /// Were the hooks active, on a real or a simulated driver?
    pub fn is_active(self) -> bool {
        matches!(self, Self::Active | Self::Simulated)
    }
}

/// A driver function that allocates memory which memtrace does not record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnseenCalls {
    /// Its name.
    pub function: String,
    /// Calls of it in this process so far, while a recording was active.
    pub calls: u64,
}

/// How the CUDA hooks were installed, and what they missed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CudaHooks {
    /// Whether they were active.
    pub state: CudaState,
    /// Patched imports (GOT entries) of loaded programs and libraries.
    pub imports: u64,
    /// Imports that could not be patched: calls through them are not seen.
    pub refused_imports: u64,
    /// Look-ups of driver functions by name that were answered with a hook.
    pub looked_up: u64,
    /// Calls of driver functions whose memory is not recorded.
    pub unseen_calls: Vec<UnseenCalls>,
}

/// The driver's statistics of a device's default memory pool, in bytes, queried when the snapshot was taken. High-water
/// marks cover the pool's whole existence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Pool {
    /// Bytes in use by the program (`CU_MEMPOOL_ATTR_USED_MEM_CURRENT`).
    #[serde(rename = "used_bytes")]
    pub used: u64,
    /// High-water mark of the bytes in use (`…_USED_MEM_HIGH`).
    #[serde(rename = "used_high_bytes")]
    pub used_high: u64,
    /// Bytes reserved from the device (`…_RESERVED_MEM_CURRENT`).
    #[serde(rename = "reserved_bytes")]
    pub reserved: u64,
    /// High-water mark of the reserved bytes (`…_RESERVED_MEM_HIGH`).
    #[serde(rename = "reserved_high_bytes")]
    pub reserved_high: u64,
    /// Bytes that the pool keeps reserved at a synchronisation (`…_RELEASE_THRESHOLD`).
    #[serde(rename = "release_threshold_bytes")]
    pub release_threshold: u64,
    /// Bytes in use when the recording began; `None` if the query failed.
    #[serde(rename = "used_before_recording_bytes")]
    pub used_before: Option<u64>,
}

/// The driver's statistics of a whole device, in bytes, queried when the snapshot was taken. If the device had no
/// context any more, they were queried just before its last context ended, when no recorded block was live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Free bytes, as all processes see them (`cuMemGetInfo`).
    pub free: u64,
    /// Total bytes.
    pub total: u64,
    /// In use from pools that the program created or selected.
    pub own_pools_used: u64,
    /// Reserved by those pools.
    pub own_pools_reserved: u64,
    /// Number of those pools.
    pub own_pools: u64,
    /// Memory of CUDA graphs, if the query succeeded (`cuDeviceGetGraphMemAttribute`).
    pub graphs: Option<GraphMemory>,
    /// The host's memory at the same moment, if the device is integrated (`CU_DEVICE_ATTRIBUTE_INTEGRATED`) and so
    /// shares that memory.
    pub unified: Option<UnifiedMemory>,
    /// The threads for which the driver reserves kernel stacks, if the query succeeded.
    pub threads: Option<DeviceThreads>,
}

/// The threads that a device can run at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceThreads {
    /// Multiprocessors, times the threads of each (`CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT`,
    /// `…_MAX_THREADS_PER_MULTIPROCESSOR`).
    pub count: u64,
    /// Bytes of stack that each thread has in the context (`CU_LIMIT_STACK_SIZE`).
    pub stack: u64,
}

/// The driver's statistics of a device's graph memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GraphMemory {
    /// In use by graphs.
    pub used: u64,
    /// High-water mark of `used`.
    pub used_high: u64,
    /// Reserved from the device until `cuDeviceGraphMemTrim`.
    pub reserved: u64,
    /// High-water mark of `reserved`.
    pub reserved_high: u64,
}

impl DeviceSnapshot {
    /// Bytes that the device has, as the driver reported at the snapshot, at the first recorded block, or when it
    /// refused an allocation.
    pub fn capacity(&self) -> Option<u64> {
        let refused = || self.ooms.iter().rev().find_map(|oom| oom.device_total);
        let said = self.memory.map(|memory| memory.total).or(self.total_at_first).or_else(refused);
        said.filter(|total| *total > 0)
    }
}
