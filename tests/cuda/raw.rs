//! Bindings of driver functions for the tests, each with its result code.

use std::ffi::{CStr, c_void};

use cudarc::driver::sys::{self, CUresult};

pub(crate) type Outcome<T> = Result<T, CUresult>;

fn outcome<T>(result: CUresult, value: T) -> Outcome<T> {
    if result == CUresult::CUDA_SUCCESS { Ok(value) } else { Err(result) }
}

/// `name(arguments) -> type = cuFunction(&mut output, arguments)`, or without an output.
macro_rules! calls {
    ($(fn $name:ident($($arg:ident: $type:ty),*) $(-> $out:ty = $nothing:expr)?, $function:ident;)*) => {$(
        pub(crate) fn $name($($arg: $type),*) -> Outcome<calls!(@type $($out)?)> {
            calls!(@call $function [$($arg),*] $($nothing)?)
        }
    )*};
    (@type) => { () };
    (@type $out:ty) => { $out };
    (@call $function:ident [$($arg:expr),*]) => {
        // SAFETY: the tests pass what they received before; the driver checks it.
        outcome(unsafe { sys::$function($($arg),*) }, ())
    };
    (@call $function:ident [$($arg:expr),*] $nothing:expr) => {{
        let mut answer = $nothing;
        // SAFETY: the output is a local variable; the driver checks the arguments.
        let result = unsafe { sys::$function(&mut answer, $($arg),*) };
        outcome(result, answer)
    }};
}

pub(crate) type Stream = sys::CUstream;
/// The legacy and the per-thread default stream.
pub(crate) const LEGACY: Stream = std::ptr::null_mut();
pub(crate) const PER_THREAD: Stream = std::ptr::without_provenance_mut(2);

calls! {
    fn alloc(size: usize) -> u64 = 0, cuMemAlloc_v2;
    fn managed(size: usize, flags: u32) -> u64 = 0, cuMemAllocManaged;
    fn free(address: u64), cuMemFree_v2;
    fn alloc_async(size: usize, stream: Stream) -> u64 = 0, cuMemAllocAsync;
    fn alloc_from_pool(size: usize, pool: sys::CUmemoryPool, stream: Stream) -> u64 = 0, cuMemAllocFromPoolAsync;
    fn free_async(address: u64, stream: Stream), cuMemFreeAsync;
    fn host_alloc(size: usize, flags: u32) -> *mut c_void = std::ptr::null_mut(), cuMemHostAlloc;
    fn host_alloc_plain(size: usize) -> *mut c_void = std::ptr::null_mut(), cuMemAllocHost_v2;
    fn host_free(address: *mut c_void), cuMemFreeHost;
    fn host_register(address: *mut c_void, size: usize, flags: u32), cuMemHostRegister_v2;
    fn host_unregister(address: *mut c_void), cuMemHostUnregister;
    fn context_create(options: *mut sys::CUctxCreateParams, flags: u32, device: i32) -> sys::CUcontext =
        std::ptr::null_mut(), cuCtxCreate_v4;
    fn init(flags: u32), cuInit;
    fn set_current(context: sys::CUcontext), cuCtxSetCurrent;
    fn pop_current() -> sys::CUcontext = std::ptr::null_mut(), cuCtxPopCurrent_v2;
    fn context_destroy(context: sys::CUcontext), cuCtxDestroy_v2;
    fn primary_retain(device: i32) -> sys::CUcontext = std::ptr::null_mut(), cuDevicePrimaryCtxRetain;
    fn primary_release(device: i32), cuDevicePrimaryCtxRelease_v2;
    fn primary_reset(device: i32), cuDevicePrimaryCtxReset_v2;
    fn default_pool(device: i32) -> sys::CUmemoryPool = std::ptr::null_mut(), cuDeviceGetDefaultMemPool;
    fn pool_trim(pool: sys::CUmemoryPool, keep: usize), cuMemPoolTrimTo;
    fn pool_destroy(pool: sys::CUmemoryPool), cuMemPoolDestroy;
    fn stream_create(flags: u32) -> Stream = std::ptr::null_mut(), cuStreamCreate;
    fn synchronise(stream: Stream), cuStreamSynchronize;
    fn reserve(size: usize, alignment: usize, address: u64, flags: u64) -> u64 = 0, cuMemAddressReserve;
    fn map(address: u64, size: usize, offset: usize, handle: u64, flags: u64), cuMemMap;
    fn unmap(address: u64, size: usize), cuMemUnmap;
    fn release_physical(handle: u64), cuMemRelease;
    fn array_destroy(array: sys::CUarray), cuArrayDestroy;
    fn mipmapped_array_destroy(array: sys::CUmipmappedArray), cuMipmappedArrayDestroy;
    fn external_destroy(memory: sys::CUexternalMemory), cuDestroyExternalMemory;
    fn ipc_close(address: u64), cuIpcCloseMemHandle;
    fn graph_create(flags: u32) -> sys::CUgraph = std::ptr::null_mut(), cuGraphCreate;
    fn graph_destroy(graph: sys::CUgraph), cuGraphDestroy;
    fn instantiate(graph: sys::CUgraph, flags: u64) -> sys::CUgraphExec = std::ptr::null_mut(),
        cuGraphInstantiateWithFlags;
    fn launch(program: sys::CUgraphExec, stream: Stream), cuGraphLaunch;
    fn graph_trim(device: i32), cuDeviceGraphMemTrim;
    fn program_destroy(program: sys::CUgraphExec), cuGraphExecDestroy;
    fn begin_capture(stream: Stream, mode: sys::CUstreamCaptureMode), cuStreamBeginCapture_v2;
}

pub(crate) fn end_capture(stream: Stream) -> Outcome<sys::CUgraph> {
    let mut graph = std::ptr::null_mut();
    // SAFETY: the output is a local variable.
    let result = unsafe { sys::cuStreamEndCapture(stream, &mut graph) };
    outcome(result, graph)
}

/// Returns the previous mode.
pub(crate) fn exchange_mode(mut mode: sys::CUstreamCaptureMode) -> sys::CUstreamCaptureMode {
    // SAFETY: the output is a local variable.
    let result = unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) };
    outcome(result, mode).unwrap()
}

/// Functions that take structures, which are given as words.
macro_rules! described {
    ($(fn $name:ident(words $($arg:ident: $type:ty),*) -> $out:ty = $nothing:expr, $function:ident;)*) => {$(
        pub(crate) fn $name(words: &mut [u64] $(, $arg: $type)*) -> Outcome<$out> {
            let mut answer = $nothing;
            // SAFETY: outputs are local variables of the driver's sizes.
            let result = unsafe { sys::$function(&mut answer, words.as_mut_ptr().cast() $(, $arg)*) };
            outcome(result, answer)
        }
    )*};
}

described! {
    fn array(words) -> sys::CUarray = std::ptr::null_mut(), cuArrayCreate_v2;
    fn deep_array(words) -> sys::CUarray = std::ptr::null_mut(), cuArray3DCreate_v2;
    fn mipmapped_array(words levels: u32) -> sys::CUmipmappedArray = std::ptr::null_mut(), cuMipmappedArrayCreate;
    fn pool_create(words) -> sys::CUmemoryPool = std::ptr::null_mut(), cuMemPoolCreate;
    fn default_pool_at(words allocation: sys::CUmemAllocationType) -> sys::CUmemoryPool = std::ptr::null_mut(),
        cuMemGetDefaultMemPool;
    fn pool_at(words allocation: sys::CUmemAllocationType) -> sys::CUmemoryPool = std::ptr::null_mut(),
        cuMemGetMemPool;
    fn external(words) -> sys::CUexternalMemory = std::ptr::null_mut(), cuImportExternalMemory;
}

/// Creates physical memory on a device.
pub(crate) fn physical(size: usize, device: u64) -> Outcome<u64> {
    let (mut handle, properties) = (0, [1u64, 1 | device << 32, 0, 0]);
    // SAFETY: outputs are local variables; the description is of pinned memory of a device, without shareable handles.
    let result = unsafe { sys::cuMemCreate(&mut handle, size, properties.as_ptr().cast(), 0) };
    outcome(result, handle)
}

/// Creates physical memory on the first device, for tiles of arrays (`CU_MEM_CREATE_USAGE_TILE_POOL`).
pub(crate) fn tile_pool(size: usize) -> Outcome<u64> {
    let (mut handle, properties) = (0, [1u64, 1, 0, 1 << 16]);
    // SAFETY: outputs are local variables; the description is of pinned memory of a device, without shareable handles.
    let result = unsafe { sys::cuMemCreate(&mut handle, size, properties.as_ptr().cast(), 0) };
    outcome(result, handle)
}

/// Maps or unmaps parts of arrays; each operation is a `CUarrayMapInfo`.
pub(crate) fn map_arrays(list: &mut [[u64; 12]]) -> Outcome<()> {
    assert_eq!(size_of::<[u64; 12]>(), size_of::<sys::CUarrayMapInfo>());
    // SAFETY: the list has so many operations.
    let result = unsafe { sys::cuMemMapArrayAsync(list.as_mut_ptr().cast(), list.len() as u32, LEGACY) };
    outcome(result, ())
}

/// A mipmapped array at the start of external memory.
pub(crate) fn external_levels(
    memory: sys::CUexternalMemory,
    descriptor: [u64; 5],
    levels: u64,
) -> Outcome<sys::CUmipmappedArray> {
    let (mut array, mut words) = (std::ptr::null_mut(), [0u64; 15]);
    words[1..6].copy_from_slice(&descriptor);
    words[6] = levels;
    // SAFETY: outputs are local variables of the driver's sizes.
    let result = unsafe { sys::cuExternalMemoryGetMappedMipmappedArray(&mut array, memory, words.as_ptr().cast()) };
    outcome(result, array)
}

/// Opens memory of another process.
pub(crate) fn ipc_open(handle: [u64; 8]) -> Outcome<u64> {
    let mut address = 0;
    // SAFETY: the handle is as long as the driver's.
    let handle = unsafe { std::mem::transmute::<[u64; 8], sys::CUipcMemHandle>(handle) };
    // SAFETY: the output is a local variable; the driver checks the handle.
    let result = unsafe { sys::cuIpcOpenMemHandle_v2(&mut address, handle, 1) };
    outcome(result, address)
}

/// Maps a buffer at the start of external memory.
pub(crate) fn external_buffer(memory: sys::CUexternalMemory, size: u64) -> Outcome<u64> {
    let (mut address, words) = (0, [0u64, size, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    // SAFETY: outputs are local variables of the driver's sizes.
    let result = unsafe { sys::cuExternalMemoryGetMappedBuffer(&mut address, memory, words.as_ptr().cast()) };
    outcome(result, address)
}

/// Creates a pool that can be exported.
pub(crate) fn shared_pool(device: u64) -> Outcome<sys::CUmemoryPool> {
    let mut words = [0; 11];
    words[..2].copy_from_slice(&[1 | 1 << 32, 1 | device << 32]);
    pool_create(&mut words)
}

/// Imports the same pool, as another process would.
pub(crate) fn import_pool(pool: sys::CUmemoryPool) -> Outcome<sys::CUmemoryPool> {
    let kind = sys::CUmemAllocationHandleType_enum::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    let (mut file, mut imported) = (0i32, std::ptr::null_mut());
    // SAFETY: the output is a local variable; the driver checks the arguments.
    let result = unsafe { sys::cuMemPoolExportToShareableHandle((&raw mut file).cast(), pool, kind, 0) };
    outcome(result, ())?;
    let file = file as usize as *mut c_void;
    // SAFETY: as above.
    let result = unsafe { sys::cuMemPoolImportFromShareableHandle(&mut imported, file, kind, 0) };
    outcome(result, imported)
}

/// Imports another process's block of an imported pool.
pub(crate) fn import_pointer(pool: sys::CUmemoryPool, mut handle: [u64; 8]) -> Outcome<u64> {
    let mut address = 0;
    // SAFETY: outputs are local variables of the driver's sizes.
    let result = unsafe { sys::cuMemPoolImportPointer(&mut address, pool, handle.as_mut_ptr().cast()) };
    outcome(result, address)
}

/// A further handle of the memory mapped at an address.
pub(crate) fn retain_physical(address: u64) -> Outcome<u64> {
    let mut handle = 0;
    // SAFETY: the output is a local variable; the driver checks the address.
    let result = unsafe { sys::cuMemRetainAllocationHandle(&mut handle, address as *mut c_void) };
    outcome(result, handle)
}

/// Imports shared memory by its file descriptor.
pub(crate) fn import_physical(descriptor: i32) -> Outcome<u64> {
    let mut handle = 0;
    let kind = sys::CUmemAllocationHandleType_enum::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    // SAFETY: the output is a local variable; the driver checks the descriptor.
    let result = unsafe { sys::cuMemImportFromShareableHandle(&mut handle, descriptor as usize as *mut c_void, kind) };
    outcome(result, handle)
}

/// Adds an allocation node; returns the address that its memory will have.
pub(crate) fn graph_alloc(graph: sys::CUgraph, size: u64) -> Outcome<u64> {
    let (mut node, mut words) = (std::ptr::null_mut(), [0u64; 15]);
    (words[0], words[1], words[13]) = (1, 1, size);
    let parameters = words.as_mut_ptr().cast();
    // SAFETY: outputs are local variables of the driver's sizes.
    let result = unsafe { sys::cuGraphAddMemAllocNode(&mut node, graph, std::ptr::null(), 0, parameters) };
    outcome(result, words[14])
}

pub(crate) fn graph_free(graph: sys::CUgraph, address: u64) -> Outcome<()> {
    let mut node = std::ptr::null_mut();
    // SAFETY: the output is a local variable; the driver checks the arguments.
    let result = unsafe { sys::cuGraphAddMemFreeNode(&mut node, graph, std::ptr::null(), 0, address) };
    outcome(result, ())
}

/// A driver function by name, as a program's own look-up finds it; not every version of the driver has it.
fn by_name<F: Copy>(name: &CStr) -> F {
    assert_eq!(size_of::<F>(), size_of::<usize>());
    // SAFETY: opens a loaded library.
    let driver = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
    // SAFETY: the handle is open and the name ends with a zero byte.
    let address = unsafe { libc::dlsym(driver, name.as_ptr()) };
    assert!(!address.is_null(), "{name:?} is there");
    // SAFETY: the caller names the function's type.
    unsafe { std::mem::transmute_copy(&address) }
}

/// Adds a node of any type with these parameters; returns them as the driver changed them.
pub(crate) fn graph_add(graph: sys::CUgraph, kind: u64, parameters: &[u64]) -> Outcome<[u64; 30]> {
    type Add = extern "C" fn(&mut usize, sys::CUgraph, usize, usize, *mut u64) -> CUresult;
    let (mut node, mut words) = (0, [0; 32]);
    words[0] = kind;
    words[2..2 + parameters.len()].copy_from_slice(parameters);
    let result = by_name::<Add>(c"cuGraphAddNode")(&mut node, graph, 0, 0, words.as_mut_ptr());
    outcome(result, std::array::from_fn(|at| words[at + 2]))
}

/// A null stream means the per-thread default stream.
pub(crate) fn launch_per_thread(program: sys::CUgraphExec, stream: Stream) -> Outcome<()> {
    type Launch = extern "C" fn(sys::CUgraphExec, Stream) -> CUresult;
    outcome(by_name::<Launch>(c"cuGraphLaunch_ptsz")(program, stream), ())
}

/// `flags` are passed in a structure.
pub(crate) fn instantiate_with(graph: sys::CUgraph, flags: u64) -> Outcome<sys::CUgraphExec> {
    let (mut program, mut words) = (std::ptr::null_mut(), [flags, 0, 0, 0]);
    // SAFETY: outputs are local variables of the driver's sizes.
    let result = unsafe { sys::cuGraphInstantiateWithParams(&mut program, graph, words.as_mut_ptr().cast()) };
    outcome(result, program)
}

/// Returns the address and the bytes of a row.
pub(crate) fn alloc_pitch(width: usize, rows: usize) -> Outcome<(u64, usize)> {
    let (mut address, mut pitch) = (0, 0);
    // SAFETY: outputs are local variables.
    let result = unsafe { sys::cuMemAllocPitch_v2(&mut address, &mut pitch, width, rows, 4) };
    outcome(result, (address, pitch))
}

/// The result of `cuGetProcAddress_v2`.
pub(crate) fn get_proc_address(name: &CStr, version: i32, flags: u64) -> usize {
    let (mut found, mut status) =
        (std::ptr::null_mut(), sys::CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SUCCESS);
    // SAFETY: outputs are local variables; the name ends with a zero byte.
    let result = unsafe { sys::cuGetProcAddress_v2(name.as_ptr(), &mut found, version, flags, &mut status) };
    outcome(result, found as usize).unwrap()
}

/// The segment that contains an address: (address, size).
pub(crate) fn mapping(address: u64) -> (u64, u64) {
    use sys::CUpointer_attribute_enum::{CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, CU_POINTER_ATTRIBUTE_MAPPING_SIZE};
    let [start, size] = [CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, CU_POINTER_ATTRIBUTE_MAPPING_SIZE].map(|attribute| {
        let mut value = 0u64;
        // SAFETY: the output is a local variable; both attributes are words.
        let result = unsafe { sys::cuPointerGetAttribute((&raw mut value).cast(), attribute, address) };
        outcome(result, value).unwrap()
    });
    (start, size)
}
