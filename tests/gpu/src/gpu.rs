//! The GPU under test, and queries to its driver.
#![expect(unsafe_code, reason = "the driver is asked in C")]

use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{
    self, CUdevice_attribute, CUmemPool_attribute_enum as PoolAttribute, CUpointer_attribute, CUresult,
};
use memtrace::Device;

use crate::raw::Outcome;
use crate::{calls, raw};

pub(crate) const GPU: Device = Device::Cuda(0);

/// Device 0 with its primary context and its default pool.
#[derive(Debug)]
pub(crate) struct Gpu {
    pub(crate) context: Arc<CudaContext>,
    pub(crate) pool: sys::CUmemoryPool,
}

impl Gpu {
    /// Opens the first device. The error says how to provide one.
    pub(crate) fn open() -> Result<Self, String> {
        const NEXT: &str =
            "Run this where `nvidia-smi` shows a GPU, or on a simulated one with `memtrace-runner --simulate`.";
        if driver().is_null() {
            return Err(format!("there is no libcuda.so.1, NVIDIA's driver. {NEXT}"));
        }
        let context = CudaContext::new(0).map_err(|error| format!("the driver gives no GPU: {error}. {NEXT}"))?;
        let pool = raw::default_pool(0).map_err(|code| format!("the GPU has no memory pool: {code:?}"))?;
        Ok(Self { context, pool })
    }

    /// USED of the pool.
    pub(crate) fn used(&self) -> u64 {
        self.pool_attribute(PoolAttribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
    }

    /// RESERVED of the pool.
    pub(crate) fn reserved(&self) -> u64 {
        self.pool_attribute(PoolAttribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
    }

    fn pool_attribute(&self, attribute: PoolAttribute) -> u64 {
        let mut value = 0u64;
        // SAFETY: the pool is valid, and these attributes have this size.
        let result = unsafe { sys::cuMemPoolGetAttribute(self.pool, attribute, (&raw mut value).cast()) };
        assert_eq!(result, CUresult::CUDA_SUCCESS, "{attribute:?}");
        value
    }

    /// Synchronizes the device and trims the pool.
    pub(crate) fn settle(&self) {
        self.context.synchronize().expect("the GPU works");
        // SAFETY: the pool is valid.
        let result = unsafe { sys::cuMemPoolTrimTo(self.pool, 0) };
        assert_eq!(result, CUresult::CUDA_SUCCESS, "trimming the pool");
    }
}

/// An attribute of an address: result code and value.
pub(crate) fn pointer_attribute(address: u64, attribute: CUpointer_attribute) -> (CUresult, u64) {
    let mut value = 0u64;
    // SAFETY: no queried attribute is larger.
    let result = unsafe { sys::cuPointerGetAttribute((&raw mut value).cast(), attribute, address) };
    (result, value)
}

/// Whether there is memory at an address, as text. memtrace uses this query after a context has ended.
pub(crate) fn known(address: u64) -> String {
    let (code, value) = pointer_attribute(address, CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
    format!("MEMORY_TYPE: code {}, {value}", code as u32)
}

/// An error if the device reports that it does not support this.
pub(crate) fn needs(what: CUdevice_attribute) -> Outcome<()> {
    let has_it = calls::attribute(what, 0)? != 0;
    if has_it { Ok(()) } else { Err(CUresult::CUDA_ERROR_NOT_SUPPORTED) }
}

pub(crate) fn driver_version() -> i32 {
    let mut version = 0;
    // SAFETY: the output is a local variable.
    let result = unsafe { sys::cuDriverGetVersion(&mut version) };
    if result == CUresult::CUDA_SUCCESS { version } else { 0 }
}

/// Is the driver the simulated one?
pub(crate) fn is_simulated() -> bool {
    past_hooks(c"memtrace_cusim_event_count") != 0
}

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// The driver, loaded now if it was not yet; null if there is none.
fn driver() -> *mut c_void {
    // SAFETY: loading the driver runs its constructors, which is what it is for.
    unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) }
}

/// The driver's own function of that name, or 0: `dlvsym`, which memtrace leaves alone, leads to the real `dlsym`.
pub(crate) fn past_hooks(name: &CStr) -> usize {
    // SAFETY: the names end with a zero byte.
    let find = |version: &CStr| unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) };
    let found = [c"GLIBC_2.34", c"GLIBC_2.2.5"].map(find).into_iter().find(|found| !found.is_null());
    // SAFETY: the function has this type.
    let dlsym = unsafe { std::mem::transmute::<*mut c_void, Dlsym>(found.expect("glibc has dlsym")) };
    // SAFETY: the handle is open and the name ends with a zero byte.
    unsafe { dlsym(driver(), name.as_ptr()) }.addr()
}

/// What a program gets that asks for the driver's function of that name, or 0.
pub(crate) fn through_hooks(name: &CStr) -> usize {
    // SAFETY: the handle is open and the name ends with a zero byte.
    unsafe { libc::dlsym(driver(), name.as_ptr()) }.addr()
}
