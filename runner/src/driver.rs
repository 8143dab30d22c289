//! Asks the driver that the loader finds. This is done in a process of its own (see [`crate::ask`]), because a driver
//! opens files, starts threads and may crash.

#![expect(unsafe_code, reason = "the driver is loaded, and called in C")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use crate::answer::{Answer, Gpus};

/// A simulated driver exports this, a real one does not.
const ONLY_SIMULATED: &CStr = c"memtrace_cusim_event_count";

/// Starts a simulated driver in any case, a real one only if it is `wanted`.
pub(crate) fn look(wanted: bool) -> Answer {
    let library = match Library::open(c"libcuda.so.1") {
        Ok(library) => library,
        Err(why) => return Answer::None(why),
    };
    if library.symbol(ONLY_SIMULATED).is_ok() {
        return Answer::Simulated(library.gpus().unwrap_or_default());
    }
    if !wanted {
        return Answer::None("the NVIDIA driver was not asked".to_owned());
    }
    match library.gpus() {
        Ok(gpus) if gpus.count > 0 => Answer::Real(gpus),
        Ok(_) => Answer::None("the NVIDIA driver has no device".to_owned()),
        Err(why) => Answer::None(why),
    }
}

/// A loaded library; never unloaded.
struct Library(*mut c_void);

impl Library {
    fn open(name: &CStr) -> Result<Self, String> {
        // SAFETY: loads a driver, as any program on CUDA does; nothing else runs in this process.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        if handle.is_null() { Err(not_loaded()) } else { Ok(Self(handle)) }
    }

    fn symbol(&self, name: &CStr) -> Result<*mut c_void, String> {
        // SAFETY: the handle is that of a library which stays loaded.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        if address.is_null() {
            Err(format!("the NVIDIA driver has no {}", name.to_string_lossy()))
        } else {
            Ok(address)
        }
    }

    /// # Safety
    /// `F` is the type that the function has in `cuda.h`, as a pointer.
    unsafe fn function<F: Copy>(&self, name: &CStr) -> Result<F, String> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let address = self.symbol(name)?;
        // SAFETY: the address of a function is a pointer to it; its type is the caller's promise.
        Ok(unsafe { std::mem::transmute_copy(&address) })
    }

    /// Starts the driver. Makes no context, so it takes no memory of a GPU.
    fn gpus(&self) -> Result<Gpus, String> {
        // SAFETY: as in cuda.h.
        let init = unsafe { self.function::<extern "C" fn(c_uint) -> c_int>(c"cuInit") }?;
        self.check("cuInit", init(0))?;
        let mut count = 0;
        // SAFETY: as in cuda.h.
        let get_count = unsafe { self.function::<extern "C" fn(&mut c_int) -> c_int>(c"cuDeviceGetCount") }?;
        self.check("cuDeviceGetCount", get_count(&mut count))?;
        let count = usize::try_from(count).unwrap_or(0);
        if count == 0 { Ok(Gpus::default()) } else { Ok(Gpus { count, memory: self.memory()?, name: self.name()? }) }
    }

    fn first(&self) -> Result<c_int, String> {
        let mut device = 0;
        // SAFETY: as in cuda.h.
        let get = unsafe { self.function::<extern "C" fn(&mut c_int, c_int) -> c_int>(c"cuDeviceGet") }?;
        self.check("cuDeviceGet", get(&mut device, 0))?;
        Ok(device)
    }

    fn memory(&self) -> Result<u64, String> {
        let mut bytes = 0_usize;
        // SAFETY: as in cuda.h.
        let total = unsafe { self.function::<extern "C" fn(&mut usize, c_int) -> c_int>(c"cuDeviceTotalMem_v2") }?;
        self.check("cuDeviceTotalMem", total(&mut bytes, self.first()?))?;
        Ok(bytes as u64)
    }

    fn name(&self) -> Result<String, String> {
        type GetName = extern "C" fn(*mut c_char, c_int, c_int) -> c_int;
        let mut text = [0_u8; 256];
        // SAFETY: as in cuda.h.
        let get_name = unsafe { self.function::<GetName>(c"cuDeviceGetName") }?;
        self.check("cuDeviceGetName", get_name(text.as_mut_ptr().cast(), 255, self.first()?))?;
        let name = CStr::from_bytes_until_nul(&text).unwrap_or_default();
        Ok(name.to_string_lossy().into_owned())
    }

    fn check(&self, call: &str, code: c_int) -> Result<(), String> {
        if code == 0 { Ok(()) } else { Err(format!("{call} of the NVIDIA driver answers {}", self.code(code))) }
    }

    /// As `CUDA_ERROR_NO_DEVICE`, or the number.
    fn code(&self, code: c_int) -> String {
        type GetErrorName = extern "C" fn(c_int, &mut *const c_char) -> c_int;
        let mut text = std::ptr::null();
        // SAFETY: as in cuda.h.
        let get_name = unsafe { self.function::<GetErrorName>(c"cuGetErrorName") };
        if !get_name.is_ok_and(|get_name| get_name(code, &mut text) == 0) || text.is_null() {
            return code.to_string();
        }
        // SAFETY: the driver gave a string that stays, and ends with a zero byte.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

/// Why `dlopen` failed.
fn not_loaded() -> String {
    // SAFETY: gives what the last call on this thread left, until the next one.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "no NVIDIA driver here".to_owned();
    }
    // SAFETY: a string that ends with a zero byte.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    if text.contains("libcuda.so.1: cannot open shared object file: No such file") {
        "no NVIDIA driver here".to_owned()
    } else {
        format!("the NVIDIA driver cannot be loaded: {text}")
    }
}
