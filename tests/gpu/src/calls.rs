//! Bindings of driver functions that only this check calls, each with its result code.
#![expect(unsafe_code, reason = "the driver is called in C")]

use std::ffi::{CStr, c_void};

use cudarc::driver::sys::{self, CUdevice_attribute, CUmemPool_attribute, CUresult};

use crate::raw::{Outcome, Stream};

pub(crate) fn outcome<T>(result: CUresult, value: T) -> Outcome<T> {
    if result == CUresult::CUDA_SUCCESS { Ok(value) } else { Err(result) }
}

calls! {
    fn device_count() -> i32 = 0, cuDeviceGetCount;
    fn attribute(of: CUdevice_attribute, device: i32) -> i32 = 0, cuDeviceGetAttribute;
    fn choose_pool(device: i32, pool: sys::CUmemoryPool), cuDeviceSetMemPool;
    fn current_pool(device: i32) -> sys::CUmemoryPool = std::ptr::null_mut(), cuDeviceGetMemPool;
    fn synchronise_all(), cuCtxSynchronize;
    fn free_addresses(address: u64, size: usize), cuMemAddressFree;
    fn upload(program: sys::CUgraphExec, stream: Stream), cuGraphUpload;
    fn trim_graphs(device: i32), cuDeviceGraphMemTrim;
    fn clone_graph(graph: sys::CUgraph) -> sys::CUgraph = std::ptr::null_mut(), cuGraphClone;
    fn ipc_handle(address: u64) -> sys::CUipcMemHandle = sys::CUipcMemHandle { reserved: [0; 64] }, cuIpcGetMemHandle;
    fn ipc_open(handle: sys::CUipcMemHandle, flags: u32) -> u64 = 0, cuIpcOpenMemHandle_v2;
    fn ipc_close(address: u64), cuIpcCloseMemHandle;
    fn module_unload(module: sys::CUmodule), cuModuleUnload;
    fn stream(flags: u32) -> Stream = std::ptr::null_mut(), cuStreamCreate;
    fn stream_destroy(stream: Stream), cuStreamDestroy_v2;
    fn stack_limit_of(limit: sys::CUlimit) -> usize = 0, cuCtxGetLimit;
    fn set_limit(limit: sys::CUlimit, bytes: usize), cuCtxSetLimit;
    fn event(flags: u32) -> sys::CUevent = std::ptr::null_mut(), cuEventCreate;
    fn event_record(event: sys::CUevent, stream: Stream), cuEventRecord;
    fn event_synchronise(event: sys::CUevent), cuEventSynchronize;
    fn event_destroy(event: sys::CUevent), cuEventDestroy_v2;
}

pub(crate) fn function(module: sys::CUmodule, name: &CStr) -> Outcome<sys::CUfunction> {
    let mut function = std::ptr::null_mut();
    // SAFETY: the output is a local variable; the name ends with a zero byte.
    let result = unsafe { sys::cuModuleGetFunction(&mut function, module, name.as_ptr()) };
    outcome(result, function)
}

/// Launches one thread of a kernel that reads no argument.
pub(crate) fn launch_kernel(function: sys::CUfunction, arguments: &mut [*mut c_void], stream: Stream) -> Outcome<()> {
    let (arguments, extra) = (arguments.as_mut_ptr(), std::ptr::null_mut());
    // SAFETY: the arguments are valid for the call.
    let result = unsafe { sys::cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, extra) };
    outcome(result, ())
}

/// Copies words to the device.
pub(crate) fn copy_in(to: u64, words: &[u64]) -> Outcome<()> {
    // SAFETY: the source is valid for the call, which is complete when it returns.
    outcome(unsafe { sys::cuMemcpyHtoD_v2(to, words.as_ptr().cast(), size_of_val(words)) }, ())
}

/// Free and total bytes of the current context's device.
pub(crate) fn memory() -> Outcome<(u64, u64)> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: outputs are local variables.
    let result = unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) };
    outcome(result, (free as u64, total as u64))
}

/// Bytes of the current context's device that are not free.
pub(crate) fn taken() -> Outcome<u64> {
    memory().map(|(free, total)| total - free)
}

/// An attribute of a pool, in bytes.
pub(crate) fn pool_attribute(pool: sys::CUmemoryPool, attribute: CUmemPool_attribute) -> Outcome<u64> {
    let mut value = 0u64;
    // SAFETY: the queried attributes have this size.
    let result = unsafe { sys::cuMemPoolGetAttribute(pool, attribute, (&raw mut value).cast()) };
    outcome(result, value)
}

pub(crate) fn set_threshold(pool: sys::CUmemoryPool, mut bytes: u64) -> Outcome<()> {
    let attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    // SAFETY: this attribute has this size.
    let result = unsafe { sys::cuMemPoolSetAttribute(pool, attribute, (&raw mut bytes).cast()) };
    outcome(result, ())
}

/// A new pool on device 0.
pub(crate) fn own_pool() -> Outcome<sys::CUmemoryPool> {
    let mut words = [0; 11];
    words[..2].copy_from_slice(&[1, 1]);
    crate::raw::pool_create(&mut words)
}

/// Used and reserved bytes of a device's graphs.
pub(crate) fn graph_memory(device: i32) -> Outcome<(u64, u64)> {
    use sys::CUgraphMem_attribute_enum as Attribute;
    let ask = |attribute| {
        let mut value = 0u64;
        // SAFETY: these attributes have this size.
        let result = unsafe { sys::cuDeviceGetGraphMemAttribute(device, attribute, (&raw mut value).cast::<c_void>()) };
        outcome(result, value)
    };
    let used = ask(Attribute::CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT)?;
    Ok((used, ask(Attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT)?))
}

/// Adds a node that allocates on device 0. Returns the node and the address that its memory will have.
pub(crate) fn alloc_node(
    graph: sys::CUgraph,
    size: u64,
    after: &[sys::CUgraphNode],
) -> Outcome<(sys::CUgraphNode, u64)> {
    let (mut node, mut words) = (std::ptr::null_mut(), [0u64; 15]);
    (words[0], words[1], words[13]) = (1, 1, size);
    let parameters = words.as_mut_ptr().cast();
    // SAFETY: outputs are local variables of the driver's sizes.
    let result = unsafe { sys::cuGraphAddMemAllocNode(&mut node, graph, after.as_ptr(), after.len(), parameters) };
    outcome(result, (node, words[14]))
}

/// Adds a node that frees. It depends on the node that allocates, if that is in the same graph.
pub(crate) fn free_node(graph: sys::CUgraph, address: u64, after: &[sys::CUgraphNode]) -> Outcome<sys::CUgraphNode> {
    let mut node = std::ptr::null_mut();
    // SAFETY: outputs are local variables.
    let result = unsafe { sys::cuGraphAddMemFreeNode(&mut node, graph, after.as_ptr(), after.len(), address) };
    outcome(result, node)
}

/// The granularity of physical memory.
pub(crate) fn granularity() -> Outcome<usize> {
    let option = sys::CUmemAllocationGranularity_flags_enum::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
    let (mut granularity, properties) = (0, [1u64, 1, 0, 0]);
    // SAFETY: outputs are local variables of the driver's sizes.
    let result = unsafe { sys::cuMemGetAllocationGranularity(&mut granularity, properties.as_ptr().cast(), option) };
    outcome(result, granularity)
}

/// Loads a module with an empty kernel.
pub(crate) fn module() -> Outcome<sys::CUmodule> {
    load(c".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry nothing()\n{\nret;\n}\n")
}

/// Loads a module with empty kernels that have parameters: `four` pointers, and pointers `scattered` among other words.
pub(crate) fn kernels() -> Outcome<sys::CUmodule> {
    load(
        c".version 6.0\n.target sm_50\n.address_size 64\n\
        .visible .entry four(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d)\n{\nret;\n}\n\
        .visible .entry scattered(.param .u64 a, .param .u32 n, .param .u64 b, .param .align 8 .b8 c[24])\n{\nret;\n}\n",
    )
}

/// Loads a module with a kernel `deep`, each thread of which needs 8 KiB of local memory.
pub(crate) fn deep_kernel() -> Outcome<sys::CUmodule> {
    load(
        c".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry deep(.param .u64 a)\n{\n\
        .local .align 16 .b8 depot[8192];\n.reg .b64 %d<7>;\n.reg .b32 %r<3>;\n.reg .pred %p<2>;\n\
        ld.param.u64 %d1, [a];\nmov.u64 %d2, depot;\ncvta.local.u64 %d3, %d2;\nand.b64 %d4, %d1, 8188;\n\
        add.s64 %d5, %d3, %d4;\nmov.u32 %r1, %tid.x;\nst.u32 [%d5], %r1;\nxor.b64 %d4, %d4, 64;\n\
        add.s64 %d6, %d3, %d4;\nld.u32 %r2, [%d6];\nsetp.eq.u32 %p1, %r2, 7;\n@%p1 trap;\nret;\n}\n",
    )
}

/// Bytes of stack of each thread in the current context.
pub(crate) fn stack_limit() -> Outcome<u64> {
    stack_limit_of(sys::CUlimit::CU_LIMIT_STACK_SIZE).map(|bytes| bytes as u64)
}

pub(crate) fn set_stack_limit(bytes: usize) -> Outcome<()> {
    set_limit(sys::CUlimit::CU_LIMIT_STACK_SIZE, bytes)
}

/// The threads that the first device can run at once.
pub(crate) fn threads() -> Outcome<u64> {
    let count = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0)?;
    let of_each = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 0)?;
    Ok((count * of_each) as u64)
}

fn load(text: &CStr) -> Outcome<sys::CUmodule> {
    let mut module = std::ptr::null_mut();
    // SAFETY: the output is a local variable; the text ends with a zero byte.
    let result = unsafe { sys::cuModuleLoadData(&mut module, text.as_ptr().cast()) };
    outcome(result, module)
}
