//! For programs on cudarc: allocations with a name, the type of their elements and how many there are.
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

use std::sync::Arc;

#[cfg(feature = "cudarc")]
use ::cudarc::driver;
// The same crate, by way of candle.
#[cfg(not(feature = "cudarc"))]
use candle_core::cuda_backend::cudarc::driver;
use driver::{CudaSlice, CudaStream, DevicePtr, DeviceRepr, DriverError, HostSlice, ValidAsZeroBits};

use crate::name::{Address, name_on};
use crate::record::own;
use crate::snapshot::{Device, SymbolName};

/// What cudarc's streams allocate, with a name. A block that is not recorded is allocated all the same.
pub trait CudaStreamExt {
    /// As `CudaStream::alloc`, with a name: `len` elements that are not set.
    ///
    /// # Errors
    /// cudarc's own.
    ///
    /// # Safety
    /// As for `CudaStream::alloc`: the memory is not set.
    #[expect(unsafe_code, reason = "what it is named after is unsafe")]
    unsafe fn alloc_named<T: DeviceRepr>(&self, len: usize, name: &str) -> Result<CudaSlice<T>, DriverError>;

    /// As `CudaStream::alloc_zeros`, with a name: `len` elements of zero.
    ///
    /// # Errors
    /// cudarc's own.
    fn alloc_zeros_named<T: DeviceRepr + ValidAsZeroBits>(
        &self,
        len: usize,
        name: &str,
    ) -> Result<CudaSlice<T>, DriverError>;

    /// As `CudaStream::clone_htod`, with a name: the elements of `source`, which lies in main memory.
    ///
    /// # Errors
    /// cudarc's own.
    fn clone_htod_named<T: DeviceRepr, Source: HostSlice<T> + ?Sized>(
        &self,
        source: &Source,
        name: &str,
    ) -> Result<CudaSlice<T>, DriverError>;

    /// As `CudaStream::clone_dtod`, with a name: the elements of `source`, which lies on a device.
    ///
    /// # Errors
    /// cudarc's own.
    fn clone_dtod_named<T: DeviceRepr, Source: DevicePtr<T>>(
        &self,
        source: &Source,
        name: &str,
    ) -> Result<CudaSlice<T>, DriverError>;
}

impl CudaStreamExt for Arc<CudaStream> {
    #[expect(unsafe_code, reason = "what it is named after is unsafe")]
    unsafe fn alloc_named<T: DeviceRepr>(&self, len: usize, name: &str) -> Result<CudaSlice<T>, DriverError> {
        // SAFETY: the caller keeps `alloc`'s contract, which is this one's.
        Ok(unsafe { self.alloc(len)? }.named(name))
    }

    fn alloc_zeros_named<T: DeviceRepr + ValidAsZeroBits>(
        &self,
        len: usize,
        name: &str,
    ) -> Result<CudaSlice<T>, DriverError> {
        Ok(self.alloc_zeros(len)?.named(name))
    }

    fn clone_htod_named<T: DeviceRepr, Source: HostSlice<T> + ?Sized>(
        &self,
        source: &Source,
        name: &str,
    ) -> Result<CudaSlice<T>, DriverError> {
        Ok(self.clone_htod(source)?.named(name))
    }

    fn clone_dtod_named<T: DeviceRepr, Source: DevicePtr<T>>(
        &self,
        source: &Source,
        name: &str,
    ) -> Result<CudaSlice<T>, DriverError> {
        Ok(self.clone_dtod(source)?.named(name))
    }
}

/// A name for a block that is there already.
pub trait CudaSliceExt: Sized {
    /// Itself, with a name for its block; nothing else about it changes.
    #[must_use]
    fn named(self, name: &str) -> Self;
}

impl<T> CudaSliceExt for CudaSlice<T> {
    fn named(self, name: &str) -> Self {
        tag(&self, name);
        self
    }
}

/// Names the block of a slice, as [`memtrace::name`](fn@crate::name) does: `weights f32[1000]` if it has
/// 1000 elements of type `f32`. False if no live block was recorded there.
pub fn tag<T>(slice: &CudaSlice<T>, name: &str) -> bool {
    let ordinal = u32::try_from(slice.ordinal()).unwrap_or(u32::MAX);
    own(|| {
        let element = SymbolName(std::any::type_name::<T>()).last(1);
        let name = format!("{name} {element}[{}]", slice.len());
        name_on(Device::Cuda(ordinal), address(slice), &name)
    })
}

/// Where a slice's block begins.
pub(crate) fn address<T>(slice: &CudaSlice<T>) -> Address {
    // What this says of reading is forgotten: nothing is read.
    let (address, reading) = slice.device_ptr(slice.stream());
    std::mem::forget(reading);
    address.into()
}
