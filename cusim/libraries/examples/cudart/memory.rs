//! Memory: blocks, pools, pinned memory, copies.

use memtrace_cusim_libraries::{OutArg, driver_function};

use crate::{INVALID_VALUE, through_the_driver};

through_the_driver! {
    fn cudaMalloc(address: *mut u64, size: usize) = c"cuMemAlloc_v2";
    fn cudaFree(address: u64) = c"cuMemFree_v2";
    fn cudaMallocManaged(address: *mut u64, size: usize, flags: u32) = c"cuMemAllocManaged";
    fn cudaMallocAsync(address: *mut u64, size: usize, stream: u64) = c"cuMemAllocAsync";
    fn cudaMallocAsync_ptsz(address: *mut u64, size: usize, stream: u64) = c"cuMemAllocAsync_ptsz";
    fn cudaFreeAsync(address: u64, stream: u64) = c"cuMemFreeAsync";
    fn cudaFreeAsync_ptsz(address: u64, stream: u64) = c"cuMemFreeAsync_ptsz";
    fn cudaMallocHost(address: *mut u64, size: usize) = c"cuMemAllocHost_v2";
    fn cudaFreeHost(address: u64) = c"cuMemFreeHost";
    fn cudaMemGetInfo(free: *mut usize, total: *mut usize) = c"cuMemGetInfo_v2";
    fn cudaMemset(address: u64, value: i32, count: usize) =
        c"cuMemsetD8_v2" with (address => u64, value as u8 => u8, count => usize);
    fn cudaMemsetAsync(address: u64, value: i32, count: usize, stream: u64) =
        c"cuMemsetD8Async" with (address => u64, value as u8 => u8, count => usize, stream => u64);
    fn cudaMemsetAsync_ptsz(address: u64, value: i32, count: usize, stream: u64) =
        c"cuMemsetD8Async_ptsz" with (address => u64, value as u8 => u8, count => usize, stream => u64);
    fn cudaMemcpy(to: u64, from: u64, count: usize, _kind: u32) =
        c"cuMemcpy" with (to => u64, from => u64, count => usize);
    fn cudaMemcpyAsync(to: u64, from: u64, count: usize, _kind: u32, stream: u64) =
        c"cuMemcpyAsync" with (to => u64, from => u64, count => usize, stream => u64);
    fn cudaMemcpyAsync_ptsz(to: u64, from: u64, count: usize, _kind: u32, stream: u64) =
        c"cuMemcpyAsync_ptsz" with (to => u64, from => u64, count => usize, stream => u64);
    fn cudaMemcpyPeerAsync(to: u64, _to_device: i32, from: u64, _from_device: i32, count: usize, stream: u64) =
        c"cuMemcpyAsync" with (to => u64, from => u64, count => usize, stream => u64);
    fn cudaHostAlloc(address: *mut u64, size: usize, flags: u32) = c"cuMemHostAlloc";
    fn cudaHostRegister(address: u64, size: usize, flags: u32) = c"cuMemHostRegister_v2";
    fn cudaHostUnregister(address: u64) = c"cuMemHostUnregister";
    fn cudaHostGetDevicePointer(seen: *mut u64, address: u64, flags: u32) = c"cuMemHostGetDevicePointer_v2";
    fn cudaDeviceGetDefaultMemPool(pool: *mut u64, device: i32) = c"cuDeviceGetDefaultMemPool";
    fn cudaMallocFromPoolAsync(address: *mut u64, size: usize, pool: u64, stream: u64) = c"cuMemAllocFromPoolAsync";
    fn cudaMemPoolCreate(pool: *mut u64, properties: usize) = c"cuMemPoolCreate";
    fn cudaMemPoolDestroy(pool: u64) = c"cuMemPoolDestroy";
    fn cudaMemPoolGetAttribute(pool: u64, attribute: u32, value: usize) = c"cuMemPoolGetAttribute";
    fn cudaMemPoolSetAttribute(pool: u64, attribute: u32, value: usize) = c"cuMemPoolSetAttribute";
    fn cudaMemPoolSetAccess(pool: u64, access: usize, count: usize) = c"cuMemPoolSetAccess";
    fn cudaMemPoolTrimTo(pool: u64, keep: usize) = c"cuMemPoolTrimTo";
}

/// `cudaPointerAttributes`.
#[repr(C)]
struct Pointer {
    kind: u32,
    device: i32,
    device_address: u64,
    host_address: u64,
}

/// `CUpointer_attribute`: the kind of memory, by `CUmemorytype`, whose numbers are those of `cudaMemoryType`, too.
const MEMORY_TYPE: u32 = 2;
const DEVICE_ADDRESS: u32 = 3;
const HOST_ADDRESS: u32 = 4;
const IS_MANAGED: u32 = 8;
const DEVICE: u32 = 9;

const UNREGISTERED: u32 = 0;
const MANAGED: u32 = 3;
/// The device number for memory that CUDA does not know.
const NO_DEVICE: i32 = -2;

#[unsafe(no_mangle)]
extern "C" fn cudaPointerGetAttributes(attributes: OutArg<Pointer>, address: u64) -> u32 {
    let of = |number| attribute(number, address);
    let pointer = match of(MEMORY_TYPE) {
        None => Pointer { kind: UNREGISTERED, device: NO_DEVICE, device_address: 0, host_address: address },
        Some(kind) => Pointer {
            kind: if of(IS_MANAGED).is_some_and(|managed| managed != 0) { MANAGED } else { kind as u32 },
            device: of(DEVICE).unwrap_or_default() as i32,
            device_address: of(DEVICE_ADDRESS).unwrap_or_default(),
            host_address: of(HOST_ADDRESS).unwrap_or_default(),
        },
    };
    attributes.set(pointer, INVALID_VALUE)
}

/// The value of an attribute; `None` if the driver does not know the address.
fn attribute(number: u32, address: u64) -> Option<u64> {
    let get = driver_function!(c"cuPointerGetAttribute": fn(*mut u64, u32, u64))?;
    let mut value = 0;
    (get(&mut value, number, address) == 0).then_some(value)
}
