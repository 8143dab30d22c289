//! cuBLAS and cuBLASLt, loaded at run time: matrix products on the legacy default stream.
#![expect(unsafe_code, reason = "the libraries are called in C")]

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;

use crate::raw::LEGACY;

/// Rows and columns of all matrices.
pub(crate) const SIDE: i32 = 256;
/// Bytes of a matrix of `f32`.
pub(crate) const MATRIX: usize = 4 * SIDE as usize * SIDE as usize;

type Handle = *mut c_void;
type Create = extern "C" fn(*mut Handle) -> u32;
type Destroy = extern "C" fn(Handle) -> u32;
type Product =
    extern "C" fn(Handle, u32, u32, i32, i32, i32, *const f32, u64, i32, u64, i32, *const f32, u64, i32) -> u32;
type BatchedProduct =
    extern "C" fn(Handle, u32, u32, i32, i32, i32, *const f32, u64, i32, u64, i32, *const f32, u64, i32, i32) -> u32;
type CreateDescription = extern "C" fn(*mut Handle, u32, u32) -> u32;
type CreateLayout = extern "C" fn(*mut Handle, u32, u64, u64, i64) -> u32;
type LtProduct = extern "C" fn(
    Handle,
    Handle,
    *const f32,
    u64,
    Handle,
    u64,
    Handle,
    *const f32,
    u64,
    Handle,
    u64,
    Handle,
    *const c_void,
    u64,
    usize,
    crate::raw::Stream,
) -> u32;

/// A loaded library and its handle; the library stays loaded.
pub(crate) struct Library {
    loaded: *mut c_void,
    handle: Handle,
    destroy: &'static CStr,
}

impl Library {
    /// The error says what is not there.
    pub(crate) fn cublas() -> Result<Self, String> {
        const FILES: [&CStr; 3] = [c"libcublas.so.13", c"libcublas.so.12", c"libcublas.so"];
        Self::open(&FILES, c"cublasCreate_v2", c"cublasDestroy_v2")
    }

    pub(crate) fn cublas_lt() -> Result<Self, String> {
        const FILES: [&CStr; 3] = [c"libcublasLt.so.13", c"libcublasLt.so.12", c"libcublasLt.so"];
        Self::open(&FILES, c"cublasLtCreate", c"cublasLtDestroy")
    }

    fn open(files: &[&CStr], create: &CStr, destroy: &'static CStr) -> Result<Self, String> {
        // SAFETY: loading the library runs its constructors, as intended.
        let load = |file: &&CStr| unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW) };
        let library = files.iter().map(load).find(|library| !library.is_null());
        let mut opened = Self { loaded: library.ok_or("the library is not there")?, handle: null_mut(), destroy };
        let result = opened.function::<Create>(create)?(&mut opened.handle);
        succeeds(create, result)?;
        Ok(opened)
    }

    /// The function with this name. The caller names its type.
    fn function<F: Copy>(&self, name: &CStr) -> Result<F, String> {
        assert_eq!(size_of::<F>(), size_of::<usize>(), "a function pointer");
        // SAFETY: the handle is open and the name ends with a zero byte.
        let address = unsafe { libc::dlsym(self.loaded, name.as_ptr()) };
        if address.is_null() {
            return Err(format!("{} is not there", name.to_string_lossy()));
        }
        // SAFETY: the caller names the function's type.
        Ok(unsafe { std::mem::transmute_copy(&address) })
    }

    /// C = A · B.
    pub(crate) fn product(&self, [a, b, c]: [u64; 3]) -> Result<(), String> {
        const NAME: &CStr = c"cublasSgemm_v2";
        let (one, zero, n) = (1f32, 0f32, SIDE);
        succeeds(NAME, self.function::<Product>(NAME)?(self.handle, 0, 0, n, n, n, &one, a, n, b, n, &zero, c, n))
    }

    /// `count` products, whose matrices are in tables of pointers on the device.
    pub(crate) fn products(&self, [a, b, c]: [u64; 3], count: i32) -> Result<(), String> {
        const NAME: &CStr = c"cublasSgemmBatched";
        let (one, zero, n) = (1f32, 0f32, SIDE);
        let function = self.function::<BatchedProduct>(NAME)?;
        succeeds(NAME, function(self.handle, 0, 0, n, n, n, &one, a, n, b, n, &zero, c, n, count))
    }

    /// C = A · B by cuBLASLt, without a workspace, by the algorithm that it chooses.
    pub(crate) fn lt_product(&self, [a, b, c]: [u64; 3]) -> Result<(), String> {
        // `CUBLAS_COMPUTE_32F` and `CUDA_R_32F`.
        const COMPUTE: u32 = 68;
        const REAL: u32 = 0;
        const NAME: &CStr = c"cublasLtMatmul";
        let (mut product, mut layout, n) = (null_mut(), null_mut(), SIDE as u64);
        let result = self.function::<CreateDescription>(c"cublasLtMatmulDescCreate")?(&mut product, COMPUTE, REAL);
        succeeds(c"cublasLtMatmulDescCreate", result)?;
        let result = self.function::<CreateLayout>(c"cublasLtMatrixLayoutCreate")?(&mut layout, REAL, n, n, n as i64);
        succeeds(c"cublasLtMatrixLayoutCreate", result)?;
        let (handle, l, one, zero) = (self.handle, layout, 1f32, 0f32);
        let function = self.function::<LtProduct>(NAME)?;
        let result = function(handle, product, &one, a, l, b, l, &zero, c, l, c, l, std::ptr::null(), 0, 0, LEGACY);
        self.function::<Destroy>(c"cublasLtMatrixLayoutDestroy")?(layout);
        self.function::<Destroy>(c"cublasLtMatmulDescDestroy")?(product);
        succeeds(NAME, result)
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        if let Ok(destroy) = self.function::<Destroy>(self.destroy) {
            destroy(self.handle);
        }
    }
}

fn succeeds(name: &CStr, result: u32) -> Result<(), String> {
    if result == 0 { Ok(()) } else { Err(format!("{} answers {result}", name.to_string_lossy())) }
}
