//! For programs on candle: its own devices with recording in place, names for tensors and for the parts of models.
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
//! A program on another version of candle than 0.11.1 does without this module: it is recorded all the
//! same, and [`memtrace::name`](fn@crate::name) takes a tensor's pointer.

mod named;
mod tags;
mod traced;

pub use named::named;
pub use tags::{tag, tag_as, tag_grads, tag_optimizer, tag_varmap, tag_vars};
pub use traced::Traced;

use candle_core::{DeviceLocation, Result};

use crate::device::IntoDevice;
use crate::snapshot::Device;

/// candle's CPU device. Its tensors lie on the heap, which [`Alloc`](crate::Alloc) sees.
pub fn cpu() -> candle_core::Device {
    candle_core::Device::Cpu
}

/// candle's CUDA device of that ordinal, from 0, with recording in place before it exists.
///
/// # Errors
/// candle's own: if there is no such device, or if candle was built without CUDA
/// ([`Error::NotCompiledWithCudaSupport`](candle_core::Error::NotCompiledWithCudaSupport)); memtrace's
/// feature `cuda` builds it in.
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

/// A Metal device is the CPU's: its buffers lie in main memory and are not seen; what memtrace does
/// see of a program that uses one is its heap.
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

/// Makes the buffer that gemm, candle's matrix product on the CPU, keeps for this thread from its first product on: 1 or
/// 2 MiB, by the size of the processor's caches. To be called before a test on the thread that calls it measures
/// products; the workers of [`measure_in_pool`](crate::measure_in_pool) have it already.
///
/// ```
/// # #[global_allocator] static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
/// # use candle_core::{DType, Device, Tensor};
/// memtrace::candle::warm();
/// let a = Tensor::ones((64, 64), DType::F32, &Device::Cpu)?;
/// memtrace::assert_peak!("64 KiB", (a.matmul(&a)?, a.matmul(&a.t()?)?));
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
    // A failure leaves the buffer to be made later.
    let _ = multiply();
}
