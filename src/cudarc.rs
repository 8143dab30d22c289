//! Integration with cudarc: allocations with a name, element type and length.
//!
//! ```no_run
//! use cudarc::driver::CudaContext;
//! use memtrace::cudarc::{CudaSliceExt, CudaStreamExt};
//!
//! let session = memtrace::start()?;
//! let stream = CudaContext::new(0)?.default_stream();
//! let state = stream.alloc_zeros_named::<f32>(1000, "state")?; // "state f32[1000]" in reports
//! let input = stream.clone_htod(&[1u32, 2, 3])?.named("input");
//! println!("{}", session.snapshot().report());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::borrow::Borrow;
use std::sync::Arc;

#[cfg(feature = "cudarc")]
use ::cudarc::driver;
// The same crate as cudarc, re-exported by candle.
#[cfg(not(feature = "cudarc"))]
use candle_core::cuda_backend::cudarc::driver;
use driver::{CudaSlice, CudaStream, DevicePtr, DeviceRepr, DriverError, HostSlice, ValidAsZeroBits};
use memtrace_core::snapshot::{Device, SymbolName};

use crate::name::{Address, name_on};
use crate::record::own;

/// Allocates on a CUDA stream and names the new block. If the block is not recorded, the allocation still succeeds, but
/// the block gets no name.
pub trait CudaStreamExt: Borrow<Arc<CudaStream>> {
    /// `CudaStream::alloc` with a name: `len` uninitialized elements.
    ///
    /// # Safety
    /// As for `CudaStream::alloc`: the memory is uninitialized.
    ///
    /// # Errors
    /// Returns cudarc's own errors.
    #[expect(unsafe_code, reason = "`CudaStream::alloc` is unsafe")]
    unsafe fn alloc_named<T: DeviceRepr>(&self, len: usize, name: &str) -> Result<CudaSlice<T>, DriverError> {
        // SAFETY: the caller keeps `alloc`'s contract, which is also the contract of this function.
        Ok(unsafe { self.borrow().alloc(len)? }.named(name))
    }

    /// `CudaStream::alloc_zeros` with a name: `len` zeros.
    ///
    /// # Errors
    /// Returns cudarc's own errors.
    fn alloc_zeros_named<T: DeviceRepr + ValidAsZeroBits>(
        &self,
        len: usize,
        name: &str,
    ) -> Result<CudaSlice<T>, DriverError> {
        Ok(self.borrow().alloc_zeros(len)?.named(name))
    }

    /// `CudaStream::clone_htod` with a name: a copy of `source`, which is in main memory.
    ///
    /// # Errors
    /// Returns cudarc's own errors.
    fn clone_htod_named<T: DeviceRepr, Source: HostSlice<T> + ?Sized>(
        &self,
        source: &Source,
        name: &str,
    ) -> Result<CudaSlice<T>, DriverError> {
        Ok(self.borrow().clone_htod(source)?.named(name))
    }

    /// `CudaStream::clone_dtod` with a name: a copy of `source`, which is on a device.
    ///
    /// # Errors
    /// Returns cudarc's own errors.
    fn clone_dtod_named<T: DeviceRepr, Source: DevicePtr<T>>(
        &self,
        source: &Source,
        name: &str,
    ) -> Result<CudaSlice<T>, DriverError> {
        Ok(self.borrow().clone_dtod(source)?.named(name))
    }
}

impl CudaStreamExt for Arc<CudaStream> {}

/// A name for an existing slice.
pub trait CudaSliceExt: Sized {
    /// Names the block of the slice, and returns the slice unchanged.
    #[must_use = "it returns the slice that it takes"]
    fn named(self, name: &str) -> Self;
}

impl<T> CudaSliceExt for CudaSlice<T> {
    fn named(self, name: &str) -> Self {
        tag(&self, name);
        self
    }
}

/// Names the block of a slice, as [`memtrace::name`](fn@crate::name) does, and appends the slice's element type and
/// length: `weights f32[1000]`. Returns false if the block is not recorded.
pub fn tag<T>(slice: &CudaSlice<T>, name: &str) -> bool {
    let ordinal = u32::try_from(slice.ordinal()).unwrap_or(u32::MAX);
    own(|| {
        let element = SymbolName(std::any::type_name::<T>()).last(1);
        let name = format!("{name} {element}[{}]", slice.len());
        name_on(Device::Cuda(ordinal), address(slice), &name)
    })
}

pub(crate) fn address<T>(slice: &CudaSlice<T>) -> Address {
    // `device_ptr` returns a guard, which records a read on the stream when it is dropped. Nothing is read here, so the
    // guard is forgotten.
    let (address, read) = slice.device_ptr(slice.stream());
    std::mem::forget(read);
    address.into()
}
