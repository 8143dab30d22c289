//! Integration with candle: devices, names and categories for tensors, modules as scopes.
//!
//! ```
//! # #[global_allocator] static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
//! use candle_core::{DType, Tensor};
//!
//! let session = memtrace::start()?;
//! let device = memtrace::candle::cpu(); // or memtrace::candle::cuda(0)?
//! let weights = Tensor::zeros((100, 10), DType::F32, &device)?;
//! memtrace::candle::tag(&weights, "weights");
//! println!("{}", memtrace::stats(&device).allocated_bytes.current);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! This module needs candle 0.11.1. Programs with other versions are recorded as well, but cannot use this module. To
//! name a tensor in such a program, pass its pointer to [`memtrace::name`](fn@crate::name).

mod backward;
mod named;
mod tags;
mod traced;

pub use backward::{backward, backward_step};
use memtrace_core::snapshot::Device;
pub use named::named;
pub use tags::{name_of, tag, tag_as, tag_grads, tag_optimizer, tag_varmap, tag_vars};
pub use traced::Traced;

use candle_core::{DeviceLocation, Result};

use crate::device::IntoDevice;

/// candle's CPU device. Its tensors are on the heap, which [`Alloc`](crate::Alloc) sees.
pub fn cpu() -> candle_core::Device {
    candle_core::Device::Cpu
}

/// candle's CUDA device with this ordinal. Before the device is created, the hooks are also installed in libraries that
/// the program has loaded by then.
///
/// # Errors
/// Returns candle's own errors: there is no such device, or candle was built without CUDA
/// ([`Error::NotCompiledWithCudaSupport`](candle_core::Error::NotCompiledWithCudaSupport)). memtrace's feature `cuda`
/// builds candle with CUDA.
///
/// ```
/// # if cfg!(not(feature = "cuda")) {
/// let error = memtrace::candle::cuda(0).unwrap_err();
/// assert!(error.to_string().contains("cuda support"));
/// # }
/// ```
pub fn cuda(ordinal: usize) -> Result<candle_core::Device> {
    crate::hook::cuda::refresh();
    candle_core::Device::new_cuda(ordinal)
}

/// A Metal device counts as the CPU. Its buffers are in main memory and not recorded, so only the program's heap is
/// recorded.
impl IntoDevice for &candle_core::Device {
    fn into_device(self) -> Device {
        at(self.location())
    }
}

fn at(location: DeviceLocation) -> Device {
    match location {
        DeviceLocation::Cpu | DeviceLocation::Metal { .. } => Device::Cpu,
        DeviceLocation::Cuda { gpu_id } => Device::Cuda(u32::try_from(gpu_id).unwrap_or(u32::MAX)),
    }
}

/// Allocates the calling thread's buffer of gemm, candle's matrix product on the CPU. gemm allocates these 1 or 2 MiB
/// at a thread's first product, and keeps them. Call `warm` on a thread before measuring products there.
/// [`measure_in_pool`](crate::measure_in_pool) does this for its workers.
///
/// ```
/// # #[global_allocator] static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
/// # use candle_core::{DType, Device, Tensor};
/// memtrace::candle::warm();
/// let a = Tensor::ones((64, 64), DType::F32, &Device::Cpu)?;
/// memtrace::assert_peak!("128 KiB", (a.matmul(&a)?, a.matmul(&a.t()?)?));
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn warm() {
    let multiply = || -> Result<()> {
        let a = candle_core::Tensor::zeros((64, 64), candle_core::DType::F32, &candle_core::Device::Cpu)?;
        let turned = a.t()?;
        for (left, right) in [(&a, &a), (&turned, &a), (&a, &turned), (&turned, &turned)] {
            left.matmul(right)?;
        }
        Ok(())
    };
    // If this fails, the first product of the program allocates the buffer.
    let _ = multiply();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_of_candle_is_the_gpu_with_its_number_and_metal_counts_as_the_cpu() {
        assert_eq!(at(DeviceLocation::Cuda { gpu_id: 2 }), Device::Cuda(2));
        assert_eq!([DeviceLocation::Cpu, DeviceLocation::Metal { gpu_id: 1 }].map(at), [Device::Cpu; 2]);
    }
}
