//! CUDA memory on systems where the driver's calls are not intercepted.

use crate::snapshot::{CudaHooks, CudaState, DeviceMemory, Pool};

/// There are no hooks to put in place.
pub(crate) fn refresh() {}

/// There is nothing to look at.
pub(crate) fn settle() {}

/// What it does is not seen.
pub(crate) fn is_loaded() -> bool {
    false
}

/// It is never seen to start.
pub(crate) fn on_cuda_start(_call: fn()) -> bool {
    true
}

/// There are no hooks anywhere.
pub(crate) fn is_elsewhere() -> bool {
    false
}

/// Says so.
pub(crate) fn coverage() -> CudaHooks {
    CudaHooks { state: CudaState::NotSupported, ..CudaHooks::default() }
}

/// The driver is not asked either.
pub(crate) fn pool(_ordinal: u32) -> Option<Pool> {
    None
}

/// The driver is not asked either.
pub(crate) fn memory(_ordinal: u32) -> Option<DeviceMemory> {
    None
}

/// The driver is not asked either.
pub(crate) fn used_pools() -> Option<Vec<(u32, u64)>> {
    None
}
