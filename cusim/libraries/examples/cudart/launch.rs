//! Kernels are registered and never run.

use std::ffi::{c_char, c_void};
use std::sync::atomic::AtomicPtr;

use memtrace_cusim_libraries::{OutArg, done};

use crate::INVALID_VALUE;

/// Functions that code compiled by nvcc calls before `main` and at each launch. Kernels are registered and never run.
#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterFatBinary(_binary: usize) -> *const AtomicPtr<c_void> {
    static HANDLE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    &raw const HANDLE
}

#[unsafe(no_mangle)]
extern "C" fn __cudaInitModule(_handle: usize) -> c_char {
    1
}

#[unsafe(no_mangle)]
extern "C" fn __cudaGetKernel(kernel: OutArg<u64>, function: u64) -> u32 {
    kernel.set(function, INVALID_VALUE)
}

/// The launch configuration, which does not matter because nothing runs.
#[unsafe(no_mangle)]
extern "C" fn __cudaPopCallConfiguration(
    grid: OutArg<[u32; 3]>,
    block: OutArg<[u32; 3]>,
    shared: OutArg<usize>,
    stream: OutArg<u64>,
) -> u32 {
    grid.set([1; 3], INVALID_VALUE)
        | block.set([1; 3], INVALID_VALUE)
        | shared.set(0, INVALID_VALUE)
        | stream.set(0, INVALID_VALUE)
}

done! {
    fn __cudaRegisterFatBinaryEnd;
    fn __cudaUnregisterFatBinary;
    fn __cudaRegisterFunction;
    fn __cudaRegisterVar;
    fn __cudaPushCallConfiguration;
    fn __cudaLaunchKernel;
    fn __cudaLaunchKernel_ptsz;
    fn cudaLaunchKernel;
    fn cudaLaunchKernel_ptsz;
    fn cudaLaunchKernelExC;
    fn cudaLaunchKernelExC_ptsz;
    fn cudaFuncSetAttribute;
    fn cudaFuncSetCacheConfig;
}

/// `cudaFuncAttributes`. All of its numbers are 0, except for some of those that have a name here.
#[repr(C)]
struct Attributes {
    memory: [usize; 3],
    max_threads_per_block: i32,
    registers: i32,
    ptx_version: i32,
    binary_version: i32,
    rest: [i32; 26],
}

/// The versions are those of a GPU of the Hopper generation: CUB refuses kernels that were compiled for another
/// generation.
#[unsafe(no_mangle)]
extern "C" fn cudaFuncGetAttributes(attributes: OutArg<Attributes>, _function: usize) -> u32 {
    let known = Attributes {
        memory: [0; 3],
        max_threads_per_block: 1024,
        registers: 0,
        ptx_version: 90,
        binary_version: 90,
        rest: [0; 26],
    };
    attributes.set(known, INVALID_VALUE)
}

#[unsafe(no_mangle)]
extern "C" fn cudaOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: OutArg<i32>,
    _function: usize,
    _threads: i32,
    _shared: usize,
) -> u32 {
    blocks.set(1, INVALID_VALUE)
}

#[unsafe(no_mangle)]
extern "C" fn cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    blocks: OutArg<i32>,
    _function: usize,
    _threads: i32,
    _shared: usize,
    _flags: u32,
) -> u32 {
    blocks.set(1, INVALID_VALUE)
}
