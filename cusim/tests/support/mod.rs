//! Loads the built library as a program does, in a child process.

use std::ffi::{CStr, c_char, c_void};
use std::path::PathBuf;
use std::process::Command;

/// Runs `body` in a child process with these variables, and returns the child's stderr. In the child this does not
/// return.
pub(crate) fn in_child(test: &str, variables: &[(&str, &str)], body: impl FnOnce()) -> String {
    if std::env::var("CUSIM_TEST_CHILD").as_deref() == Ok(test) {
        body();
        std::process::exit(0);
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env("CUSIM_TEST_CHILD", test);
    for name in [
        "LOG",
        "FAULTS",
        "MEMORY",
        "DEVICES",
        "POOLS",
        "FILL",
        "NAME",
        "CAPABILITY",
        "OTHERS",
        "CONTEXT",
        "MODULE",
        "RESULTS",
    ] {
        command.env_remove(format!("MEMTRACE_CUSIM_{name}"));
    }
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{}\n{}\n{errors}", output.status, String::from_utf8_lossy(&output.stdout));
    errors
}

/// An IPC handle of 64 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Handle([u64; 8]);

/// A tensor map of 128 bytes.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Map([u64; 16]);

/// A loaded library: the driver or a stand-in.
#[derive(Clone, Copy)]
pub(crate) struct Driver(*mut c_void);

// SAFETY: every thread may use a handle of the loader.
unsafe impl Send for Driver {}
// SAFETY: as above.
unsafe impl Sync for Driver {}

impl Driver {
    /// Loads the library that cargo built for this test.
    pub(crate) fn load() -> Self {
        Self::load_file(std::env::current_exe().unwrap().with_file_name("libmemtrace_cusim.so"))
    }

    pub(crate) fn load_file(path: PathBuf) -> Self {
        let path = std::ffi::CString::new(path.into_os_string().into_string().unwrap()).unwrap();
        // SAFETY: the library runs no code when it is loaded.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null(), "{path:?} is there");
        Self(handle)
    }

    /// Loads and initializes the driver, and makes the first device's primary context current.
    pub(crate) fn start() -> Self {
        let driver = Self::load();
        assert_eq!(driver.init(0), 0);
        driver.enter(0);
        driver
    }

    /// Makes a device's primary context current, and returns it.
    pub(crate) fn enter(self, device: i32) -> u64 {
        let mut context = 0;
        assert_eq!(self.primary_retain(&mut context, device), 0);
        assert_eq!(self.set_current(context), 0);
        context
    }

    pub(crate) fn address(self, name: &CStr) -> usize {
        // SAFETY: the handle is open and the name ends with a zero byte.
        unsafe { libc::dlsym(self.0, name.as_ptr()) as usize }
    }
}

macro_rules! functions {
    ($(fn $name:ident = $symbol:literal($($arg:ident: $type:ty),*);)*) => {
        #[allow(dead_code, clippy::too_many_arguments, reason = "as the driver has them; not every test calls every function")]
        impl Driver { $(
            pub(crate) fn $name(self, $($arg: $type),*) -> u32 {
                let address = self.address($symbol);
                assert_ne!(address, 0, "{:?} is there", $symbol);
                // SAFETY: the function has this type.
                let function = unsafe { std::mem::transmute::<usize, extern "C" fn($($type),*) -> u32>(address) };
                function($($arg),*)
            }
        )* }
    };
}

functions! {
    fn init = c"cuInit"(flags: u32);
    fn device_count = c"cuDeviceGetCount"(count: &mut i32);
    fn device_attribute = c"cuDeviceGetAttribute"(value: &mut i32, attribute: i32, device: i32);
    fn primary_retain = c"cuDevicePrimaryCtxRetain"(context: &mut u64, device: i32);
    fn primary_release = c"cuDevicePrimaryCtxRelease_v2"(device: i32);
    fn set_current = c"cuCtxSetCurrent"(context: u64);
    fn context_create = c"cuCtxCreate_v2"(context: &mut u64, flags: u32, device: i32);
    fn context_destroy = c"cuCtxDestroy_v2"(context: u64);
    fn synchronize = c"cuCtxSynchronize"();
    fn alloc = c"cuMemAlloc_v2"(address: &mut u64, size: usize);
    fn free = c"cuMemFree_v2"(address: u64);
    fn alloc_async = c"cuMemAllocAsync"(address: &mut u64, size: usize, stream: u64);
    fn alloc_async_ptsz = c"cuMemAllocAsync_ptsz"(address: &mut u64, size: usize, stream: u64);
    fn free_async = c"cuMemFreeAsync"(address: u64, stream: u64);
    fn memory = c"cuMemGetInfo_v2"(free: &mut usize, total: &mut usize);
    fn to_device = c"cuMemcpyHtoD_v2"(to: u64, from: *const u8, size: usize);
    fn to_host = c"cuMemcpyDtoH_v2"(to: *mut u8, from: u64, size: usize);
    fn to_peer = c"cuMemcpyPeer"(to: u64, to_context: u64, from: u64, from_context: u64, size: usize);
    fn on_device = c"cuMemcpyDtoDAsync_v2"(to: u64, from: u64, size: usize, stream: u64);
    fn fill = c"cuMemsetD8Async"(to: u64, value: u8, count: usize, stream: u64);
    fn fill_words = c"cuMemsetD32_v2"(to: u64, value: u32, count: usize);
    fn host_alloc = c"cuMemHostAlloc"(address: &mut u64, size: usize, flags: u32);
    fn host_free = c"cuMemFreeHost"(address: u64);
    fn stream_create = c"cuStreamCreate"(stream: &mut u64, flags: u32);
    fn stream_synchronize = c"cuStreamSynchronize"(stream: u64);
    fn begin_capture = c"cuStreamBeginCapture_v2"(stream: u64, mode: u32);
    fn is_capturing = c"cuStreamIsCapturing"(stream: u64, status: &mut u32);
    fn end_capture = c"cuStreamEndCapture"(stream: u64, graph: &mut u64);
    fn exchange_mode = c"cuThreadExchangeStreamCaptureMode"(mode: &mut u32);
    fn event_create = c"cuEventCreate"(event: &mut u64, flags: u32);
    fn load_module = c"cuModuleLoadData"(module: &mut u64, image: *const u8);
    fn get_function = c"cuModuleGetFunction"(function: &mut u64, module: u64, name: *const c_char);
    fn pool_default = c"cuDeviceGetDefaultMemPool"(pool: &mut u64, device: i32);
    fn pool_attribute = c"cuMemPoolGetAttribute"(pool: u64, attribute: u32, value: &mut u64);
    fn pool_set_attribute = c"cuMemPoolSetAttribute"(pool: u64, attribute: u32, value: &mut u64);
    fn pool_trim = c"cuMemPoolTrimTo"(pool: u64, keep: usize);
    fn pool_create = c"cuMemPoolCreate"(pool: &mut u64, properties: &[u32; 22]);
    fn pool_destroy = c"cuMemPoolDestroy"(pool: u64);
    fn pool_choose = c"cuDeviceSetMemPool"(device: i32, pool: u64);
    fn alloc_from_pool = c"cuMemAllocFromPoolAsync"(address: &mut u64, size: usize, pool: u64, stream: u64);
    fn alloc_pitch = c"cuMemAllocPitch_v2"(address: &mut u64, pitch: &mut usize, width: usize, height: usize, element: u32);
    fn alloc_managed = c"cuMemAllocManaged"(address: &mut u64, size: usize, flags: u32);
    fn copy_rows = c"cuMemcpy2D_v2"(rows: &[u64; 16]);
    fn host_register = c"cuMemHostRegister_v2"(address: u64, size: usize, flags: u32);
    fn host_unregister = c"cuMemHostUnregister"(address: u64);
    fn reset = c"cuDevicePrimaryCtxReset_v2"(device: i32);
    fn device_uuid = c"cuDeviceGetUuid"(uuid: &mut [u8; 16], device: i32);
    fn device_name = c"cuDeviceGetName"(name: &mut [u8; 64], length: i32, device: i32);
    fn error_name = c"cuGetErrorName"(code: u32, name: &mut *const c_char);
    fn pointer_attribute = c"cuPointerGetAttribute"(value: &mut u64, attribute: u32, address: u64);
    fn proc_address = c"cuGetProcAddress_v2"(name: *const c_char, function: &mut usize, version: i32, flags: u64, status: &mut u32);
    fn cublas_create = c"cublasCreate_v2"(handle: &mut u64);
    fn cublas_destroy = c"cublasDestroy_v2"(handle: u64);
    fn cuda_malloc_async = c"cudaMallocAsync"(address: &mut u64, size: usize, stream: u64);
    fn cuda_memset = c"cudaMemset"(address: u64, value: i32, count: usize);
    fn cuda_free = c"cudaFree"(address: u64);
    fn cuda_last_error = c"cudaGetLastError"();
    fn cuda_properties_12 = c"cudaGetDeviceProperties_v2"(properties: &mut [u32; 258], device: i32);
    fn cuda_properties_13 = c"cudaGetDeviceProperties"(properties: &mut [u32; 252], device: i32);
    fn cuda_pointer = c"cudaPointerGetAttributes"(attributes: &mut [u64; 3], address: u64);
    fn cuda_host_alloc = c"cudaHostAlloc"(address: &mut u64, size: usize, flags: u32);
    fn cuda_stream = c"cudaStreamCreateWithPriority"(stream: &mut u64, flags: u32, priority: i32);
    fn cuda_begin_capture = c"cudaStreamBeginCapture"(stream: u64, mode: u32);
    fn cuda_capture_info = c"cudaStreamGetCaptureInfo_v2"(stream: u64, status: &mut u32, id: &mut u64, graph: &mut u64, nodes: usize, count: &mut usize);
    fn cuda_end_capture = c"cudaStreamEndCapture"(stream: u64, graph: &mut u64);
    fn cuda_instantiate = c"cudaGraphInstantiate"(executable: &mut u64, graph: u64, flags: u64);
    fn cuda_graph_launch = c"cudaGraphLaunch"(executable: u64, stream: u64);
    fn cuda_entry_point = c"cudaGetDriverEntryPoint"(name: *const c_char, function: &mut usize, flags: u64, found: &mut u32);
    fn nvml_count = c"nvmlDeviceGetCount_v2"(count: &mut u32);
    fn nvml_device = c"nvmlDeviceGetHandleByIndex_v2"(index: u32, handle: &mut usize);
    fn graph_create = c"cuGraphCreate"(graph: &mut u64, flags: u32);
    fn graph_destroy = c"cuGraphDestroy"(graph: u64);
    fn graph_clone = c"cuGraphClone"(clone: &mut u64, graph: u64);
    fn graph_alloc = c"cuGraphAddMemAllocNode"(node: &mut u64, graph: u64, nodes: *const u64, count: usize, parameters: &mut [u64; 15]);
    fn graph_free = c"cuGraphAddMemFreeNode"(node: &mut u64, graph: u64, nodes: *const u64, count: usize, address: u64);
    fn graph_node = c"cuGraphAddNode"(node: &mut u64, graph: u64, nodes: *const u64, count: usize, parameters: &mut [u64; 32]);
    fn graph_node_with_data = c"cuGraphAddNode_v2"(node: &mut u64, graph: u64, nodes: *const u64, data: usize, count: usize, parameters: &mut [u64; 32]);
    fn graph_nodes = c"cuGraphGetNodes"(graph: u64, nodes: *mut u64, count: &mut usize);
    fn node_type = c"cuGraphNodeGetType"(node: u64, kind: &mut u32);
    fn alloc_node_parameters = c"cuGraphMemAllocNodeGetParams"(node: u64, parameters: &mut [u64; 15]);
    fn free_node_parameters = c"cuGraphMemFreeNodeGetParams"(node: u64, address: &mut u64);
    fn instantiate = c"cuGraphInstantiateWithFlags"(executable: &mut u64, graph: u64, flags: u64);
    fn instantiate_old = c"cuGraphInstantiate_v2"(executable: &mut u64, graph: u64, node: &mut u64, log: *mut u8, room: usize);
    fn instantiate_with = c"cuGraphInstantiateWithParams"(executable: &mut u64, graph: u64, parameters: &mut [u64; 4]);
    fn launch = c"cuGraphLaunch"(executable: u64, stream: u64);
    fn executable_destroy = c"cuGraphExecDestroy"(executable: u64);
    fn graph_attribute = c"cuDeviceGetGraphMemAttribute"(device: i32, attribute: u32, value: &mut u64);
    fn graph_set_attribute = c"cuDeviceSetGraphMemAttribute"(device: i32, attribute: u32, value: &mut u64);
    fn graph_trim = c"cuDeviceGraphMemTrim"(device: i32);
    fn capture_info = c"cuStreamGetCaptureInfo_v2"(stream: u64, status: &mut u32, id: &mut u64, graph: &mut u64, nodes: &mut *const u64, count: &mut usize);
    fn capture_into = c"cuStreamBeginCaptureToGraph"(stream: u64, graph: u64, nodes: *const u64, data: usize, count: usize, mode: u32);
    fn memory_create = c"cuMemCreate"(handle: &mut u64, size: usize, properties: &[u64; 4], flags: u64);
    fn memory_release = c"cuMemRelease"(handle: u64);
    fn memory_retain = c"cuMemRetainAllocationHandle"(handle: &mut u64, address: u64);
    fn memory_properties = c"cuMemGetAllocationPropertiesFromHandle"(properties: &mut [u64; 4], handle: u64);
    fn memory_export = c"cuMemExportToShareableHandle"(file: &mut i32, handle: u64, kind: u32, flags: u64);
    fn memory_import = c"cuMemImportFromShareableHandle"(handle: &mut u64, file: usize, kind: u32);
    fn granularity = c"cuMemGetAllocationGranularity"(granularity: &mut usize, properties: &[u64; 4], option: u32);
    fn address_reserve = c"cuMemAddressReserve"(address: &mut u64, size: usize, alignment: usize, hint: u64, flags: u64);
    fn address_free = c"cuMemAddressFree"(address: u64, size: usize);
    fn map = c"cuMemMap"(address: u64, size: usize, offset: usize, handle: u64, flags: u64);
    fn unmap = c"cuMemUnmap"(address: u64, size: usize);
    fn set_access = c"cuMemSetAccess"(address: u64, size: usize, descriptions: *const [u32; 3], count: usize);
    fn access = c"cuMemGetAccess"(flags: &mut u64, location: &[u32; 2], address: u64);
    fn array_create = c"cuArrayCreate_v2"(array: &mut u64, descriptor: &[u64; 3]);
    fn array_create_3d = c"cuArray3DCreate_v2"(array: &mut u64, descriptor: &[u64; 5]);
    fn array_destroy = c"cuArrayDestroy"(array: u64);
    fn array_descriptor = c"cuArrayGetDescriptor_v2"(descriptor: &mut [u64; 3], array: u64);
    fn array_descriptor_3d = c"cuArray3DGetDescriptor_v2"(descriptor: &mut [u64; 5], array: u64);
    fn array_needs = c"cuArrayGetMemoryRequirements"(requirements: &mut [u64; 4], array: u64, device: i32);
    fn mipmaps_create = c"cuMipmappedArrayCreate"(array: &mut u64, descriptor: &[u64; 5], levels: u32);
    fn mipmaps_destroy = c"cuMipmappedArrayDestroy"(array: u64);
    fn mipmaps_level = c"cuMipmappedArrayGetLevel"(level_array: &mut u64, array: u64, level: u32);
    fn module_unload = c"cuModuleUnload"(module: u64);
    fn load_library = c"cuLibraryLoadData"(library: &mut u64, image: *const u8, options: usize, values: usize, count: u32, library_options: usize, library_values: usize, library_count: u32);
    fn unload_library = c"cuLibraryUnload"(library: u64);
    fn kernel_of_library = c"cuLibraryGetKernel"(kernel: &mut u64, library: u64, name: *const c_char);
    fn ipc_handle = c"cuIpcGetMemHandle"(handle: &mut Handle, address: u64);
    fn ipc_open = c"cuIpcOpenMemHandle_v2"(address: &mut u64, handle: Handle, flags: u32);
    fn ipc_close = c"cuIpcCloseMemHandle"(address: u64);
    fn external_import = c"cuImportExternalMemory"(memory: &mut u64, description: &[u64; 13]);
    fn external_buffer = c"cuExternalMemoryGetMappedBuffer"(address: &mut u64, memory: u64, part: &[u64; 11]);
    fn external_levels = c"cuExternalMemoryGetMappedMipmappedArray"(array: &mut u64, memory: u64, part: &[u64; 15]);
    fn map_tiles = c"cuMemMapArrayAsync"(list: &[[u64; 12]; 1], count: u32, stream: u64);
    fn sparse_layout = c"cuArrayGetSparseProperties"(properties: &mut [u64; 6], array: u64);
    fn external_destroy = c"cuDestroyExternalMemory"(memory: u64);
    fn pool_export = c"cuMemPoolExportToShareableHandle"(file: &mut i32, pool: u64, kind: u32, flags: u64);
    fn pool_import = c"cuMemPoolImportFromShareableHandle"(pool: &mut u64, file: usize, kind: u32, flags: u64);
    fn pointer_export = c"cuMemPoolExportPointer"(data: &mut Handle, address: u64);
    fn pointer_import = c"cuMemPoolImportPointer"(address: &mut u64, pool: u64, data: &Handle);
    fn pool_default_at = c"cuMemGetDefaultMemPool"(pool: &mut u64, location: &[u32; 2], allocation: u32);
    fn pool_at = c"cuMemGetMemPool"(pool: &mut u64, location: &[u32; 2], allocation: u32);
    fn pool_choose_at = c"cuMemSetMemPool"(location: &[u32; 2], allocation: u32, pool: u64);
    fn tensor_map_tiled = c"cuTensorMapEncodeTiled"(map: *mut Map, kind: u32, rank: u32, address: u64, sizes: *const u64, strides: *const u64, tile: *const u32, steps: *const u32, layout: u32, swizzle: u32, promotion: u32, fill: u32);
    fn tensor_map_columns = c"cuTensorMapEncodeIm2col"(map: *mut Map, kind: u32, rank: u32, address: u64, sizes: *const u64, strides: *const u64, lower: *const i32, upper: *const i32, channels: u32, pixels: u32, steps: *const u32, layout: u32, swizzle: u32, promotion: u32, fill: u32);
    fn tensor_map_wide = c"cuTensorMapEncodeIm2colWide"(map: *mut Map, kind: u32, rank: u32, address: u64, sizes: *const u64, strides: *const u64, lower: i32, upper: i32, channels: u32, pixels: u32, steps: *const u32, layout: u32, mode: u32, swizzle: u32, promotion: u32, fill: u32);
    fn tensor_map_move = c"cuTensorMapReplaceAddress"(map: *mut Map, address: u64);
    fn graph_destroy_node = c"cuGraphDestroyNode"(node: u64);
}
