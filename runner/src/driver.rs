//! Queries the CUDA driver that the loader finds. [`crate::query`] does so in a child process, because a driver opens
//! files, starts threads and may crash.

#![expect(unsafe_code, reason = "loads the driver and calls its C functions")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DetectedGpus {
    pub(crate) count: usize,
    /// Memory of the first GPU in bytes.
    pub(crate) memory: u64,
    /// Name of the first GPU.
    pub(crate) name: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DriverAnswer {
    Real(DetectedGpus),
    Simulated(DetectedGpus),
    /// No GPU, and the reason.
    None(String),
}

/// Only the simulated driver exports this symbol.
const ONLY_SIMULATED: &CStr = c"memtrace_cusim_event_count";

/// Loads the driver. Initializes and queries it if it is simulated, or if a real driver is `wanted`.
pub(crate) fn detect(wanted: bool) -> DriverAnswer {
    let library = match DriverLibrary::open(c"libcuda.so.1") {
        Ok(library) => library,
        Err(why) => return DriverAnswer::None(why),
    };
    if library.symbol(ONLY_SIMULATED).is_ok() {
        return DriverAnswer::Simulated(library.gpus().unwrap_or_default());
    }
    if !wanted {
        return DriverAnswer::None("the NVIDIA driver was not queried".to_owned());
    }
    match library.gpus() {
        Ok(gpus) if gpus.count > 0 => DriverAnswer::Real(gpus),
        Ok(_) => DriverAnswer::None("the NVIDIA driver has no device".to_owned()),
        Err(why) => DriverAnswer::None(why),
    }
}

/// A loaded library, never unloaded.
struct DriverLibrary(*mut c_void);

/// A function of the driver by its name and its arguments' types; it returns a `CUresult`.
macro_rules! function {
    ($library:expr, $name:literal, $($argument:ty),+) => {
        // SAFETY: these are the types in cuda.h.
        unsafe { $library.function::<extern "C" fn($($argument),+) -> c_int>($name) }
    };
}

impl DriverLibrary {
    fn open(name: &CStr) -> Result<Self, String> {
        // SAFETY: loads a driver, as any CUDA program does; this process does nothing else.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        if handle.is_null() { Err(load_error()) } else { Ok(Self(handle)) }
    }

    fn symbol(&self, name: &CStr) -> Result<*mut c_void, String> {
        // SAFETY: the handle belongs to a library that stays loaded.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        if address.is_null() {
            return Err(format!("the NVIDIA driver has no {}", name.to_string_lossy()));
        }
        Ok(address)
    }

    /// # Safety
    /// `F` is a pointer to a function with the type that cuda.h declares for this name.
    unsafe fn function<F: Copy>(&self, name: &CStr) -> Result<F, String> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let address = self.symbol(name)?;
        // SAFETY: the symbol's address is a function pointer of the type that the caller promises.
        Ok(unsafe { std::mem::transmute_copy(&address) })
    }

    /// Initializes the driver. Creates no context, which would take memory of the GPU.
    fn gpus(&self) -> Result<DetectedGpus, String> {
        self.check("cuInit", function!(self, c"cuInit", c_uint)?(0))?;
        let (mut count, mut device, mut memory) = (0, 0, 0_usize);
        self.check("cuDeviceGetCount", function!(self, c"cuDeviceGetCount", &mut c_int)?(&mut count))?;
        let count = usize::try_from(count).unwrap_or(0);
        if count == 0 {
            return Ok(DetectedGpus::default());
        }
        self.check("cuDeviceGet", function!(self, c"cuDeviceGet", &mut c_int, c_int)?(&mut device, 0))?;
        let total_memory = function!(self, c"cuDeviceTotalMem_v2", &mut usize, c_int)?;
        self.check("cuDeviceTotalMem", total_memory(&mut memory, device))?;
        let mut name = [0_u8; 256];
        let get_name = function!(self, c"cuDeviceGetName", *mut c_char, c_int, c_int)?;
        self.check("cuDeviceGetName", get_name(name.as_mut_ptr().cast(), 255, device))?;
        let name = CStr::from_bytes_until_nul(&name).unwrap_or_default().to_string_lossy().into_owned();
        Ok(DetectedGpus { count, memory: memory as u64, name })
    }

    fn check(&self, call: &str, code: c_int) -> Result<(), String> {
        if code == 0 { Ok(()) } else { Err(format!("{call} of the NVIDIA driver returns {}", self.error_name(code))) }
    }

    /// `CUDA_ERROR_NO_DEVICE` or the like; the number if the code has no name.
    fn error_name(&self, code: c_int) -> String {
        let mut text = std::ptr::null();
        let get_name = function!(self, c"cuGetErrorName", c_int, &mut *const c_char);
        if !get_name.is_ok_and(|get_name| get_name(code, &mut text) == 0) || text.is_null() {
            return code.to_string();
        }
        // SAFETY: the driver returned a static string that ends with a zero byte.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

/// Why `dlopen` failed.
fn load_error() -> String {
    // SAFETY: returns the message of this thread's last call, valid until the next one.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "no NVIDIA driver here".to_owned();
    }
    // SAFETY: a string that ends with a zero byte.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    if text.contains("libcuda.so.1: cannot open shared object file: No such file") {
        return "no NVIDIA driver here".to_owned();
    }
    format!("the NVIDIA driver cannot be loaded: {text}")
}
