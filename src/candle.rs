//! For programs on candle: its own devices with recording in place, and names for tensors.
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

#[cfg(feature = "cuda")]
use candle_core::backend::BackendDevice;
use candle_core::backprop::GradStore;
use candle_core::{CpuStorage, DeviceLocation, Result, Storage, Tensor, Var};

use crate::name::{Address, name_on};
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
impl From<&candle_core::Device> for Device {
    fn from(device: &candle_core::Device) -> Self {
        at(device.location())
    }
}

fn at(location: DeviceLocation) -> Device {
    match location {
        DeviceLocation::Cpu | DeviceLocation::Metal { .. } => Device::Cpu,
        DeviceLocation::Cuda { gpu_id } => Device::Cuda(u32::try_from(gpu_id).unwrap_or(u32::MAX)),
    }
}

/// Names the block that a tensor's elements lie in, as [`memtrace::name`](fn@crate::name) does. A view names
/// the block of the tensor that it is a view of.
///
/// False if no live block was recorded there, and for CUDA tensors without memtrace's feature `cuda`.
/// The tensor is neither changed nor copied. Its storage is locked for reading meanwhile: do not call
/// this while you hold what [`Tensor::storage_and_layout`] returned.
pub fn tag(tensor: &Tensor, name: &str) -> bool {
    match &*tensor.storage_and_layout().0 {
        Storage::Cpu(storage) => name_on(Device::Cpu, cpu_block(storage), name),
        #[cfg(feature = "cuda")]
        Storage::Cuda(storage) => name_on(at(storage.device.location()), cuda_block(storage), name),
        _ => false,
    }
}

/// Names the blocks of variables, as [`tag`] does: all parameters of a `candle_nn::VarMap` in one line. Says how many got their
/// name.
///
/// ```
/// # #[global_allocator] static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
/// # let session = memtrace::start().unwrap();
/// use candle_core::{DType, Device};
///
/// let weights = candle_nn::VarMap::new();
/// let build = candle_nn::VarBuilder::from_varmap(&weights, DType::F32, &Device::Cpu);
/// let layer = candle_nn::linear(64, 32, build.pp("head"))?;
/// // head.weight; head.bias has 128 bytes, which is below the threshold of 1 KiB.
/// assert_eq!(memtrace::candle::tag_vars(&*weights.data().lock().unwrap()), 1);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn tag_vars<'a, N: AsRef<str> + 'a>(vars: impl IntoIterator<Item = (&'a N, &'a Var)>) -> usize {
    vars.into_iter().filter(|(name, var)| tag(var, name.as_ref())).count()
}

/// Names the blocks of these variables' gradients: `grad of NAME`. Gradients that share a block with something
/// that has a name, a view of it for instance, take its name over. Says how many got their name.
///
/// ```
/// # #[global_allocator] static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
/// # let session = memtrace::start().unwrap();
/// # use candle_core::{DType, Device, Tensor};
/// # let weights = candle_nn::VarMap::new();
/// # let build = candle_nn::VarBuilder::from_varmap(&weights, DType::F32, &Device::Cpu);
/// # let layer = candle_nn::linear(64, 32, build.pp("head"))?;
/// # let input = Tensor::ones((8, 64), DType::F32, &Device::Cpu)?;
/// # use candle_core::Module;
/// let gradients = layer.forward(&input)?.sqr()?.sum_all()?.backward()?;
/// assert_eq!(memtrace::candle::tag_grads(&*weights.data().lock().unwrap(), &gradients), 1);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn tag_grads<'a, N: AsRef<str> + 'a>(
    vars: impl IntoIterator<Item = (&'a N, &'a Var)>,
    gradients: &GradStore,
) -> usize {
    let named = |(name, var): &(&N, &Var)| {
        gradients.get(var).is_some_and(|gradient| tag(gradient, &format!("grad of {}", name.as_ref())))
    };
    vars.into_iter().filter(named).count()
}

fn cpu_block(storage: &CpuStorage) -> Address {
    use CpuStorage as S;
    match storage {
        S::U8(data) | S::F6E2M3(data) | S::F6E3M2(data) | S::F4(data) | S::F8E8M0(data) => data.as_ptr().into(),
        S::U32(data) => data.as_ptr().into(),
        S::I16(data) => data.as_ptr().into(),
        S::I32(data) => data.as_ptr().into(),
        S::I64(data) => data.as_ptr().into(),
        S::BF16(data) => data.as_ptr().into(),
        S::F16(data) => data.as_ptr().into(),
        S::F32(data) => data.as_ptr().into(),
        S::F64(data) => data.as_ptr().into(),
        S::F8E4M3(data) => data.as_ptr().into(),
    }
}

#[cfg(feature = "cuda")]
fn cuda_block(storage: &candle_core::CudaStorage) -> Address {
    use candle_core::cuda_backend::CudaStorageSlice as S;

    use crate::cudarc::address;
    match &storage.slice {
        S::U8(data) | S::F6E2M3(data) | S::F6E3M2(data) | S::F4(data) | S::F8E8M0(data) => address(data),
        S::U32(data) => address(data),
        S::I16(data) => address(data),
        S::I32(data) => address(data),
        S::I64(data) => address(data),
        S::BF16(data) => address(data),
        S::F16(data) => address(data),
        S::F32(data) => address(data),
        S::F64(data) => address(data),
        S::F8E4M3(data) => address(data),
    }
}
