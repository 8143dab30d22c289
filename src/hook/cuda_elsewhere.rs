//! Stub of the CUDA hooks for platforms where driver calls are not intercepted.

use memtrace_core::capture::Driver;
use memtrace_core::snapshot::{CudaHooks, CudaState};

pub(crate) fn refresh() {}

pub(crate) fn settle() {}

pub(crate) fn is_loaded() -> bool {
    false
}

/// Always true, because no other copy of memtrace has the hooks.
pub(crate) fn on_cuda_start(_call: fn()) -> bool {
    true
}

pub(crate) fn is_elsewhere() -> bool {
    false
}

pub(crate) fn coverage() -> CudaHooks {
    CudaHooks { state: CudaState::NotSupported, ..CudaHooks::default() }
}

pub(crate) fn driver(_ordinal: u32) -> Driver {
    Driver::default()
}

pub(crate) fn executable_graphs() -> u64 {
    0
}

pub(crate) fn used_pools() -> Option<Vec<(u32, u64)>> {
    None
}
