//! Stand-in for NVIDIA's management library (`libnvidia-ml.so.1`): only that there are GPUs. PyTorch asks for them before it maps
//! segments that grow.

#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "called through C")]

use std::ffi::{CStr, c_char};

use memtrace_cusim_libraries::{OutArg, done, driver_function, not_simulated};

include!(concat!(env!("OUT_DIR"), "/nvidia-ml.rs"));

const INVALID_ARGUMENT: u32 = 2;
const NOT_SUPPORTED: u32 = 3;
const NOT_FOUND: u32 = 6;
const DRIVER_NOT_LOADED: u32 = 9;

done! {
    fn nvmlInit;
    fn nvmlInit_v2;
    fn nvmlInitWithFlags;
    fn nvmlShutdown;
}

fn devices() -> Option<i32> {
    let init = driver_function!(c"cuInit": fn(u32))?;
    let get_count = driver_function!(c"cuDeviceGetCount": fn(*mut i32))?;
    let mut count = 0;
    (init(0) == 0 && get_count(&mut count) == 0).then_some(count)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCount_v2(count: OutArg<u32>) -> u32 {
    devices().map_or(DRIVER_NOT_LOADED, |known| count.set(known as u32, INVALID_ARGUMENT))
}

/// A handle is the device's number plus one.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: u32, handle: OutArg<usize>) -> u32 {
    match devices() {
        None => DRIVER_NOT_LOADED,
        Some(count) if index >= count as u32 => INVALID_ARGUMENT,
        Some(_) => handle.set(index as usize + 1, INVALID_ARGUMENT),
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByPciBusId_v2(text: *const c_char, handle: OutArg<usize>) -> u32 {
    if text.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: the caller passes a C string.
    let asked = unsafe { CStr::from_ptr(text) };
    let found =
        (0..devices().unwrap_or(0)).find(|device| bus_id(*device).as_deref().is_some_and(|id| is_same(id, asked)));
    found.map_or(NOT_FOUND, |device| handle.set(device as usize + 1, INVALID_ARGUMENT))
}

fn bus_id(device: i32) -> Option<Vec<u8>> {
    let get = driver_function!(c"cuDeviceGetPCIBusId": fn(*mut u8, i32, i32))?;
    let mut text = vec![0; 32];
    (get(text.as_mut_ptr(), 32, device) == 0).then_some(text)
}

/// Whether `known`, which ends with zeros, names the same device as `asked`, which may have more digits of the domain:
/// `00000000:01:00.0`.
fn is_same(known: &[u8], asked: &CStr) -> bool {
    let known = CStr::from_bytes_until_nul(known).unwrap_or_default().to_bytes().to_ascii_lowercase();
    asked.to_bytes().to_ascii_lowercase().ends_with(&known)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlSystemGetCudaDriverVersion_v2(version: OutArg<i32>) -> u32 {
    let Some(get) = driver_function!(c"cuDriverGetVersion": fn(*mut i32)) else { return DRIVER_NOT_LOADED };
    let mut known = 0;
    match get(&mut known) {
        0 => version.set(known, INVALID_ARGUMENT),
        _ => DRIVER_NOT_LOADED,
    }
}

/// No process is known, as in a container.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetComputeRunningProcesses(_device: usize, count: OutArg<u32>) -> u32 {
    count.set(0, INVALID_ARGUMENT)
}

/// Functions that many real machines do not support, either. No message says so here, because programs go on without
/// them.
macro_rules! not_supported {
    ($(fn $name:ident;)*) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> u32 {
            NOT_SUPPORTED
        }
    )* };
}

not_supported! {
    fn nvmlDeviceGetGpuFabricInfoV;
    fn nvmlDeviceGetNvLinkRemoteDeviceType;
    fn nvmlDeviceGetNvLinkRemotePciInfo_v2;
}
