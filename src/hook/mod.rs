//! Interception of allocations: the global allocator wrapper and the hooks of the CUDA driver.
//!
//! A hook reports a foreign call to the recorder (`on_alloc`, `on_free`). It does not know stacks, scopes or files.

#[cfg_attr(
    not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), target_env = "gnu")),
    path = "cuda_elsewhere.rs"
)]
pub(crate) mod cuda;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), target_env = "gnu"))]
pub(crate) mod files;
mod heap;
pub(crate) mod heap_refusal;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), target_env = "gnu"))]
pub(crate) mod host;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), target_env = "gnu"))]
mod interpose;
#[cfg(all(feature = "preload", target_os = "linux", target_env = "gnu"))]
pub mod malloc;
#[cfg(all(feature = "preload", target_os = "linux", target_env = "gnu"))]
pub mod mappings;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), target_env = "gnu"))]
mod threads;

pub use heap::Alloc;
