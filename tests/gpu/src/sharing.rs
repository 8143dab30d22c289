//! Bindings of driver functions that share memory with other processes.
#![expect(unsafe_code, reason = "the driver is called in C")]

use std::ffi::c_void;
use std::os::fd::{FromRawFd, OwnedFd};

use cudarc::driver::sys::{self, CUdevice_attribute as Attribute, CUmemAllocationHandleType, CUmemoryPool};

use crate::calls::outcome;
use crate::gpu::needs;
use crate::raw::{self, Outcome};

const FILE: CUmemAllocationHandleType = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
/// In the first word of a memory description: it can be exported as a file descriptor.
const AS_FILE: u64 = 1 << 32;

/// Physical memory of device 0.
pub(crate) fn physical(size: usize) -> Outcome<u64> {
    needs(Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)?;
    let (mut handle, properties) = (0, [1 | AS_FILE, 1, 0, 0]);
    // SAFETY: outputs are local variables of the driver's sizes.
    let result = unsafe { sys::cuMemCreate(&mut handle, size, properties.as_ptr().cast(), 0) };
    outcome(result, handle)
}

/// Exports physical memory as a file descriptor.
pub(crate) fn export_physical(handle: u64) -> Outcome<i32> {
    let mut file = -1i32;
    // SAFETY: the output is a local variable; this kind of handle is a file descriptor.
    let result = unsafe { sys::cuMemExportToShareableHandle((&raw mut file).cast(), handle, FILE, 0) };
    outcome(result, file)
}

/// A pool of device 0.
pub(crate) fn pool() -> Outcome<CUmemoryPool> {
    let mut words = [0; 11];
    words[..2].copy_from_slice(&[1 | AS_FILE, 1]);
    raw::pool_create(&mut words)
}

/// Exports a pool as a file descriptor.
pub(crate) fn export_pool(pool: CUmemoryPool) -> Outcome<i32> {
    let mut file = -1i32;
    // SAFETY: as for physical memory.
    let result = unsafe { sys::cuMemPoolExportToShareableHandle((&raw mut file).cast(), pool, FILE, 0) };
    outcome(result, file)
}

pub(crate) fn import_pool(file: i32) -> Outcome<CUmemoryPool> {
    let mut pool = std::ptr::null_mut();
    let number: *mut c_void = std::ptr::without_provenance_mut(file as usize);
    // SAFETY: the output is a local variable; for this kind of handle the pointer is a file descriptor.
    let result = unsafe { sys::cuMemPoolImportFromShareableHandle(&mut pool, number, FILE, 0) };
    outcome(result, pool)
}

/// Exports a block of a pool as 64 bytes.
pub(crate) fn export_pointer(address: u64) -> Outcome<[u8; 64]> {
    let mut data = [0u64; 8];
    // SAFETY: the output is a local variable of the driver's size.
    let result = unsafe { sys::cuMemPoolExportPointer(data.as_mut_ptr().cast(), address) };
    let mut bytes = [0; 64];
    let words = data.iter().flat_map(|word| word.to_ne_bytes());
    bytes.iter_mut().zip(words).for_each(|(place, byte)| *place = byte);
    outcome(result, bytes)
}

pub(crate) fn import_pointer(pool: CUmemoryPool, bytes: [u8; 64]) -> Outcome<u64> {
    let (mut address, mut data) = (0, [0u64; 8]);
    for (word, bytes) in data.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    }
    // SAFETY: outputs are local variables of the driver's sizes.
    let result = unsafe { sys::cuMemPoolImportPointer(&mut address, pool, data.as_mut_ptr().cast()) };
    outcome(result, address)
}

/// Closes a file descriptor.
pub(crate) fn close(file: i32) {
    // SAFETY: the driver returned the descriptor to the caller, who owns it.
    drop(unsafe { OwnedFd::from_raw_fd(file) });
}
