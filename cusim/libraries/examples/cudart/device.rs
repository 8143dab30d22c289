//! Devices, and what they have.

use memtrace_cusim_libraries::{OutArg, done, driver_function};

use crate::{INVALID_VALUE, NO_DRIVER, RUNTIME_VERSION, remember, through_the_driver};

through_the_driver! {
    fn cudaDeviceSynchronize() = c"cuCtxSynchronize";
    fn cudaGetDeviceCount(count: *mut i32) = c"cuDeviceGetCount";
    fn cudaGetDevice(device: *mut i32) = c"cuCtxGetDevice";
    fn cudaDeviceGetAttribute(value: *mut i32, attribute: u32, device: i32) = c"cuDeviceGetAttribute";
    fn cudaDeviceGetPCIBusId(text: usize, length: i32, device: i32) = c"cuDeviceGetPCIBusId";
    fn cudaDeviceCanAccessPeer(can: *mut i32, device: i32, peer: i32) = c"cuDeviceCanAccessPeer";
    fn cudaDeviceGetStreamPriorityRange(least: *mut i32, greatest: *mut i32) = c"cuCtxGetStreamPriorityRange";
    fn cudaDriverGetVersion(version: *mut i32) = c"cuDriverGetVersion";
    fn cudaGetDriverEntryPoint(name: usize, function: *mut usize, flags: u64, found: *mut u32) =
        c"cuGetProcAddress_v2" with (name => usize, function => *mut usize, RUNTIME_VERSION => i32, flags => u64, found => *mut u32);
    fn cudaGetDriverEntryPointByVersion(name: usize, function: *mut usize, version: i32, flags: u64, found: *mut u32) =
        c"cuGetProcAddress_v2" with (name => usize, function => *mut usize, version => i32, flags => u64, found => *mut u32);
}

done! {
    fn cudaProfilerStart;
    fn cudaProfilerStop;
}

/// Makes a device's primary context current.
#[unsafe(no_mangle)]
extern "C" fn cudaSetDevice(device: i32) -> u32 {
    remember(set_device(device).unwrap_or(NO_DRIVER))
}

fn set_device(device: i32) -> Option<u32> {
    let init = driver_function!(c"cuInit": fn(u32))?;
    let retain = driver_function!(c"cuDevicePrimaryCtxRetain": fn(*mut u64, i32))?;
    let set = driver_function!(c"cuCtxSetCurrent": fn(u64))?;
    let mut context = 0;
    let codes = [init(0), retain(&mut context, device), set(context)];
    Some(codes.into_iter().find(|code| *code != 0).unwrap_or(0))
}

/// Gives a thread without a context the context of the first device.
pub(crate) fn ensure_context() {
    let Some(current) = driver_function!(c"cuCtxGetCurrent": fn(*mut u64)) else { return };
    let mut context = 0;
    if current(&mut context) != 0 || context == 0 {
        set_device(0);
    }
}

/// A number of `cudaDeviceProp`: the device's attribute, its bytes, and its offsets in CUDA 12 and in CUDA 13.
struct Property(u32, usize, [usize; 2]);

const PROPERTIES: [Property; 23] = [
    Property(8, 8, [296, 296]),  // shared memory a block
    Property(12, 4, [304, 304]), // registers a block
    Property(10, 4, [308, 308]), // warp
    Property(11, 8, [312, 312]), // pitch
    Property(1, 4, [320, 320]),  // threads a block
    Property(2, 4, [324, 324]),  // block x
    Property(3, 4, [328, 328]),  // block y
    Property(4, 4, [332, 332]),  // block z
    Property(5, 4, [336, 336]),  // grid x
    Property(6, 4, [340, 340]),  // grid y
    Property(7, 4, [344, 344]),  // grid z
    Property(9, 8, [352, 352]),  // constant memory
    Property(75, 4, [360, 360]), // major
    Property(76, 4, [364, 364]), // minor
    Property(14, 8, [368, 368]), // texture alignment
    Property(16, 4, [388, 384]), // multiprocessors
    Property(18, 4, [396, 388]), // integrated
    Property(33, 4, [584, 568]), // PCI bus
    Property(38, 4, [616, 596]), // L2 cache
    Property(39, 4, [624, 604]), // threads a multiprocessor
    Property(81, 8, [640, 624]), // shared memory a multiprocessor
    Property(82, 4, [648, 632]), // registers a multiprocessor
    Property(97, 8, [696, 672]), // shared memory a block, opted in
];

const NAME: usize = 256;
const UUID: usize = 256;
const TOTAL: usize = 288;

/// The struct as in CUDA 12.
#[unsafe(no_mangle)]
extern "C" fn cudaGetDeviceProperties_v2(properties: OutArg<[u8; 1032]>, device: i32) -> u32 {
    remember(self::properties(device, 0).map_or_else(|code| code, |known| properties.set(known, INVALID_VALUE)))
}

/// The struct as in CUDA 13.
#[unsafe(no_mangle)]
extern "C" fn cudaGetDeviceProperties(properties: OutArg<[u8; 1008]>, device: i32) -> u32 {
    remember(self::properties(device, 1).map_or_else(|code| code, |known| properties.set(known, INVALID_VALUE)))
}

/// The struct's bytes, by the offsets of column `of`. Fields that are not listed are 0.
fn properties<const SIZE: usize>(device: i32, of: usize) -> Result<[u8; SIZE], u32> {
    let name = driver_function!(c"cuDeviceGetName": fn(*mut u8, i32, i32)).ok_or(NO_DRIVER)?;
    let uuid = driver_function!(c"cuDeviceGetUuid": fn(*mut u8, i32)).ok_or(NO_DRIVER)?;
    let total = driver_function!(c"cuDeviceTotalMem_v2": fn(*mut usize, i32)).ok_or(NO_DRIVER)?;
    let attribute = driver_function!(c"cuDeviceGetAttribute": fn(*mut i32, u32, i32)).ok_or(NO_DRIVER)?;
    ensure_context();
    let (mut bytes, mut memory) = ([0; SIZE], 0);
    done_or(name(bytes.as_mut_ptr(), NAME as i32, device))?;
    done_or(uuid(bytes[UUID..].as_mut_ptr(), device))?;
    done_or(total(&mut memory, device))?;
    bytes[TOTAL..TOTAL + 8].copy_from_slice(&memory.to_ne_bytes());
    for Property(number, size, offsets) in &PROPERTIES {
        let mut value = 0;
        done_or(attribute(&mut value, *number, device))?;
        bytes[offsets[of]..][..*size].copy_from_slice(&i64::from(value).to_le_bytes()[..*size]);
    }
    Ok(bytes)
}

fn done_or(code: u32) -> Result<(), u32> {
    if code == 0 { Ok(()) } else { Err(code) }
}
