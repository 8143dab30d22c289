//! How much of CUDA's memory was in sight, and what the driver says of it.

/// Whether the calls of the CUDA driver were led past memtrace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CudaState {
    /// The hooks were ready, and the program never loaded the driver: it uses no CUDA.
    #[default]
    NotLoaded,
    /// They were in place.
    Active,
    /// `MEMTRACE=0` was in the environment when the program was started.
    TurnedOff,
    /// Another copy of memtrace in the same process has them and is of another version, so that this one sees
    /// no CUDA memory. Copies of one version tell each other.
    AnotherCopy,
    /// There are none for this system: only Linux with glibc on x86_64 has them.
    NotSupported,
    /// They were in place, and the driver is a simulated one: what it keeps of its own is not what a GPU's keeps.
    Simulated,
}

impl CudaState {
    /// Were the hooks in place, for a driver of whatever kind?
    pub fn is_active(self) -> bool {
        matches!(self, Self::Active | Self::Simulated)
    }
}

/// A function of the driver that makes memory which memtrace does not record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnseenCalls {
    /// Its name.
    pub function: String,
    /// How often it was called while something was recorded, in this process so far.
    pub calls: u64,
}

/// What stood between the program and the CUDA driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CudaHooks {
    /// Whether anything did.
    pub state: CudaState,
    /// Imports of loaded programs and libraries that lead past memtrace.
    pub imports: u64,
    /// Those that should and could not be changed: calls through them are not seen.
    pub refused_imports: u64,
    /// How often a function of the driver was asked for by name and memtrace's was given.
    pub looked_up: u64,
    /// Calls that made memory which is not recorded.
    pub unseen_calls: Vec<UnseenCalls>,
}

/// What the CUDA driver says of a device's default memory pool, in bytes. It is asked when the snapshot is
/// taken; the highs are of the pool's whole life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    /// Handed out to the program (`CU_MEMPOOL_ATTR_USED_MEM_CURRENT`).
    pub used: u64,
    /// The most of that (`…_USED_MEM_HIGH`).
    pub used_high: u64,
    /// Taken from the device (`…_RESERVED_MEM_CURRENT`).
    pub reserved: u64,
    /// The most of that (`…_RESERVED_MEM_HIGH`).
    pub reserved_high: u64,
    /// What the pool keeps when the program synchronises (`…_RELEASE_THRESHOLD`).
    pub release_threshold: u64,
    /// `used` when the recording began; `None` if the driver could not be asked then.
    pub used_before: Option<u64>,
}

/// What the CUDA driver says of a whole device, in bytes. It is asked when the snapshot is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Nobody has it (`cuMemGetInfo`).
    pub free: u64,
    /// All there is.
    pub total: u64,
    /// Handed out by pools that the program made or chose for itself.
    pub own_pools_used: u64,
    /// What these have from the device.
    pub own_pools_reserved: u64,
    /// How many such pools there are.
    pub own_pools: u64,
    /// Memory of graphs, if the driver could be asked (`cuDeviceGetGraphMemAttribute`).
    pub graphs: Option<GraphMemory>,
}

/// What the CUDA driver says of the memory of a device's graphs, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GraphMemory {
    /// In use by graphs.
    pub used: u64,
    /// The most of that.
    pub used_high: u64,
    /// Taken from the device, and kept until `cuDeviceGraphMemTrim`.
    pub reserved: u64,
    /// The most of that.
    pub reserved_high: u64,
}
