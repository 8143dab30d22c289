//! Hooks of the driver: each calls the original function and reports the result.
#![expect(unsafe_code, reason = "functions of the driver's C interface")]
#![allow(non_snake_case, reason = "the names are the driver's")]

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::array_mappings::{self, ArrayMapping};
use super::arrays::{self, Array2d, Array3d};
use super::driver::{Function, NOT_FOUND};
use super::events::{alloc, free};
use super::graphs::{self, AllocNode, GRAPHS, PROGRAMS};
use super::handles::{self, HandleKind};
use super::pointers::CallerPtr;
use super::requests::{ExternalMemoryDesc, classic, external, of_pool, ordered, physical, pinned, registered};
use super::types::{Class, FreeRequest, Handle, PoolLocation, Size, Stream};
use super::uses::{self, Arguments, CopyKind, FillNode, KernelNode, LaunchStart, Region2d, Region3d, TextureResource};
use super::{capture, contexts, imports, init, pools, segments, unseen};
use crate::hook::interpose::dlsym;

/// Defines a hook for each name, from rows `name(arguments) | other_name => expression;`. A type after a name, as in
/// `name(arguments)<u8>`, is what the argument type `Value` means for that name.
///
/// The expression runs before the driver is called, because freed memory may have a new owner by the time the call
/// returns. Its value is the callback to run with the driver's result. So every function that a row calls returns a
/// callback.
macro_rules! hooks {
    ($($name:ident $args:tt $(<$value:ty>)? $(| $alias:ident $(<$other:ty>)?)* => $before:expr;)*) => {
        $(hook! { $name $args ($($value)?) $before } $(hook! { $alias $args ($($other)?) $before })*)*

        /// The driver's functions and the addresses of their hooks.
        pub(super) fn all() -> impl Iterator<Item = (&'static Function, usize)> {
            [
                $((&$name::ORIGINAL, $name::hook as *const () as usize),
                $((&$alias::ORIGINAL, $alias::hook as *const () as usize),)*)*
            ]
            .into_iter()
        }
    };
}

macro_rules! hook {
    ($name:ident ($($arg:ident: $type:ty),*) ($($value:ty)?) $before:expr) => {
        mod $name {
            use super::*;

            $(type Value = $value;)?

            pub(super) static ORIGINAL: Function = Function::named(concat!(stringify!($name), "\0"));
            /// Whether a null stream is the calling thread's own default stream.
            const PER_THREAD: bool = matches!(stringify!($name).as_bytes(), [.., b'_', b'p', b't', b's', b'z']);

            #[allow(dead_code, reason = "not every function has a stream")]
            fn at(stream: Handle) -> Stream {
                Stream::of(stream, PER_THREAD)
            }

            #[allow(dead_code, reason = "few functions need their name")]
            const NAME: &str = stringify!($name);

            /// # Safety
            /// The arguments must be those that the driver's function takes.
            pub(super) unsafe extern "C" fn hook($($arg: $type),*) -> c_int {
                let Some(address) = ORIGINAL.address() else { return NOT_FOUND };
                // SAFETY: the address is that of the driver's function, which has this signature.
                let original = unsafe {
                    std::mem::transmute::<usize, unsafe extern "C" fn($($type),*) -> c_int>(address)
                };
                let after = $before;
                // SAFETY: the arguments are the caller's, valid for this function.
                let result = unsafe { original($($arg),*) };
                after(result);
                result
            }
        }
    };
}

/// Replaces the function that `cuGetProcAddress` found by the function's hook. The function is recognized by its
/// address; the name and version that the caller passed do not matter.
fn looked_up(out: CallerPtr<*mut c_void>) -> impl FnOnce(c_int) {
    move |result| {
        let Some(found) = out.written(result) else { return };
        if let Some((_, hook)) = all().find(|(original, _)| original.address() == Some(found.addr())) {
            dlsym::count_answer();
            out.overwrite(std::ptr::with_exposed_provenance_mut(hook));
        }
    }
}

fn both(one: impl FnOnce(c_int), other: impl FnOnce(c_int)) -> impl FnOnce(c_int) {
    move |result| {
        one(result);
        other(result);
    }
}

/// `CUipcMemHandle`, passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
struct IpcHandle([u8; 64]);

hooks! {
    cuMemAllocAsync(out: CallerPtr<u64>, size: usize, stream: Handle) | cuMemAllocAsync_ptsz =>
        alloc(ordered(out, size, at(stream)));
    cuMemAllocFromPoolAsync(
        out: CallerPtr<u64>, size: usize, pool: Handle, stream: Handle)
        | cuMemAllocFromPoolAsync_ptsz => alloc(of_pool(out, size, pool, at(stream)));
    cuMemFreeAsync(address: u64, stream: Handle) | cuMemFreeAsync_ptsz =>
        free(FreeRequest { class: Class::Pool, address, stream: at(stream) });
    cuMemPoolCreate(out: CallerPtr<u64>, properties: CallerPtr<PoolLocation>) => pools::created(out, properties);
    cuMemPoolDestroy(pool: Handle) => both(pools::destroyed(pool), segments::settle);
    cuMemGetDefaultMemPool(out: CallerPtr<u64>, location: CallerPtr<[c_int; 2]>, allocation: c_int) | cuMemGetMemPool =>
        pools::at_location(out, location, allocation);
    cuMemPoolTrimTo(pool: Handle, keep: usize) => segments::settle;

    cuMemAlloc_v2(out: CallerPtr<u64>, size: usize) => alloc(classic(Class::Classic, out, Size::Plain(size)));
    cuMemAllocPitch_v2(out: CallerPtr<u64>, pitch: CallerPtr<usize>, width: usize, height: usize, element: c_uint) =>
        alloc(classic(Class::Classic, out, Size::Pitched(pitch, width, height)));
    cuMemAllocManaged(out: CallerPtr<u64>, size: usize, flags: c_uint) =>
        alloc(classic(Class::Managed, out, Size::Plain(size)));
    // `cuMemFree` also frees memory of pools.
    cuMemFree_v2(pointer: u64) => free(FreeRequest::at_once(Class::Classic, pointer));

    cuMemAllocHost_v2(out: CallerPtr<u64>, size: usize) => alloc(pinned(out, size));
    cuMemHostAlloc(out: CallerPtr<u64>, size: usize, flags: c_uint) => alloc(pinned(out, size));
    cuMemHostRegister_v2(pointer: Handle, size: usize, flags: c_uint) | cuMemHostRegister =>
        alloc(registered(pointer, size));
    cuMemFreeHost(pointer: Handle) | cuMemHostUnregister =>
        free(FreeRequest::at_once(Class::Pinned, pointer.addr() as u64));

    cuMemCreate(out: CallerPtr<u64>, size: usize, properties: CallerPtr<PoolLocation>, flags: u64) =>
        handles::made(physical(out, size, properties));
    cuMemImportFromShareableHandle(out: CallerPtr<u64>, handle: Handle, kind: c_int) => handles::retained(out);
    cuMemRetainAllocationHandle(out: CallerPtr<u64>, pointer: Handle) => handles::retained(out);
    cuMemRelease(handle: u64) => handles::released(HandleKind::Physical, handle);
    cuMemMap(pointer: u64, size: usize, offset: usize, handle: u64, flags: u64) =>
        handles::mapped(pointer, size as u64, handle);
    cuMemUnmap(pointer: u64, size: usize) => handles::unmapped(pointer, size as u64);

    cuArrayCreate_v2(out: CallerPtr<u64>, description: CallerPtr<Array2d>) =>
        handles::made(arrays::array_2d(out, description));
    cuArray3DCreate_v2(out: CallerPtr<u64>, description: CallerPtr<Array3d>) =>
        both(handles::made(arrays::mipmapped(out, description, 1)), array_mappings::created(out, description));
    cuMipmappedArrayCreate(out: CallerPtr<u64>, description: CallerPtr<Array3d>, levels: c_uint) =>
        both(handles::made(arrays::mipmapped(out, description, levels)), array_mappings::created(out, description));
    cuArrayDestroy(array: Handle) | cuMipmappedArrayDestroy =>
        both(array_mappings::destroying(array), handles::released(HandleKind::Array, array.addr() as u64));
    cuMemMapArrayAsync(list: CallerPtr<ArrayMapping>, count: c_uint, stream: Handle) | cuMemMapArrayAsync_ptsz =>
        array_mappings::mapped(list, count);

    cuGraphCreate(out: CallerPtr<usize>, flags: c_uint) => graphs::created(out);
    cuGraphDestroy(graph: Handle) => GRAPHS.destroying(graph.addr());
    cuGraphAddMemAllocNode(
        out: CallerPtr<usize>, graph: Handle, before: Handle, count: usize, node: CallerPtr<AllocNode>) =>
        graphs::added_alloc(graph, node);
    cuGraphAddMemFreeNode(out: CallerPtr<usize>, graph: Handle, before: Handle, count: usize, pointer: u64) =>
        graphs::added_free(graph, pointer);
    cuGraphAddNode(out: CallerPtr<usize>, graph: Handle, before: Handle, count: usize, node: CallerPtr<c_int>) =>
        both(uses::added(graph, || uses::any_node(node)), graphs::added(graph, node));
    cuGraphAddNode_v2(
        out: CallerPtr<usize>, graph: Handle, before: Handle, edges: Handle, count: usize, node: CallerPtr<c_int>)
        | cuGraphAddNode_v3 => both(uses::added(graph, || uses::any_node(node)), graphs::added(graph, node));
    cuGraphInstantiate(
        out: CallerPtr<usize>, graph: Handle, failed: Handle, log: Handle, length: usize)
        | cuGraphInstantiate_v2 => graphs::instantiated(out, graph, 0);
    cuGraphInstantiateWithFlags(out: CallerPtr<usize>, graph: Handle, flags: u64) =>
        graphs::instantiated(out, graph, flags);
    cuGraphInstantiateWithParams(
        out: CallerPtr<usize>, graph: Handle, parameters: CallerPtr<u64>)
        | cuGraphInstantiateWithParams_ptsz => graphs::instantiated(out, graph, parameters.read().unwrap_or(0));
    cuGraphLaunch(program: Handle, stream: Handle) | cuGraphLaunch_ptsz => uses::graph_launched(program, at(stream));
    cuGraphExecDestroy(program: Handle) => PROGRAMS.destroying(program.addr());

    cuIpcOpenMemHandle_v2(out: CallerPtr<u64>, handle: IpcHandle, flags: c_uint) => imports::opened(out);
    cuIpcCloseMemHandle(pointer: u64) => imports::closed(pointer);
    cuMemPoolImportPointer(out: CallerPtr<u64>, pool: Handle, data: Handle) => imports::imported(out);
    cuExternalMemoryGetMappedBuffer(out: CallerPtr<u64>, memory: Handle, description: Handle) => imports::mapped(out);
    cuImportExternalMemory(out: CallerPtr<u64>, description: CallerPtr<ExternalMemoryDesc>) =>
        handles::made(external(out, description));
    cuDestroyExternalMemory(memory: Handle) => handles::released(HandleKind::External, memory.addr() as u64);

    cuInit(flags: c_uint) => init::cuda_started;
    cuCtxSynchronize() => segments::settle;
    cuCtxSynchronize_v2(object: Handle) | cuEventSynchronize | cuStreamSynchronize | cuStreamSynchronize_ptsz =>
        segments::settle;
    cuStreamBeginCapture_v2(stream: Handle, mode: c_int) | cuStreamBeginCapture_v2_ptsz =>
        capture::beginning(at(stream), true);
    cuStreamBeginCaptureToGraph(
        stream: Handle, graph: Handle, before: Handle, edges: Handle, count: usize, mode: c_int)
        | cuStreamBeginCaptureToGraph_ptsz => capture::beginning(at(stream), false);
    cuStreamEndCapture(stream: Handle, graph: CallerPtr<usize>) | cuStreamEndCapture_ptsz =>
        capture::ending(at(stream), graph);
    cuStreamDestroy_v2(stream: Handle) | cuStreamDestroy => capture::destroying(at(stream));

    cuCtxDestroy_v2(context: Handle) | cuCtxDestroy => both(uses::forget(), contexts::destroyed(context));
    cuDevicePrimaryCtxRelease_v2(device: c_int) | cuDevicePrimaryCtxRelease =>
        both(uses::forget(), contexts::primary_released(device));
    cuDevicePrimaryCtxReset_v2(device: c_int) | cuDevicePrimaryCtxReset =>
        both(uses::forget(), contexts::primary_reset(device));

    cuModuleLoadData(out: CallerPtr<usize>, image: *const c_char) | cuModuleLoadFatBinary => uses::loaded(out, image);
    cuModuleLoadDataEx(out: CallerPtr<usize>, image: *const c_char, count: c_uint, options: Handle, values: Handle) =>
        uses::loaded(out, image);
    cuLibraryLoadData(
        out: CallerPtr<usize>, image: *const c_char, options: Handle, values: Handle, count: c_uint,
        library_options: Handle, library_values: Handle, library_count: c_uint) => uses::loaded(out, image);
    cuModuleLoad(out: CallerPtr<usize>, path: *const c_char) => uses::loaded_file(out, path);
    cuLibraryLoadFromFile(
        out: CallerPtr<usize>, path: *const c_char, options: Handle, values: Handle, count: c_uint,
        library_options: Handle, library_values: Handle, library_count: c_uint) => uses::loaded_file(out, path);
    cuModuleUnload(module: Handle) | cuLibraryUnload => uses::unloading(module);
    cuModuleGetFunction(out: CallerPtr<usize>, module: Handle, name: *const c_char) | cuLibraryGetKernel =>
        uses::found(out, module, name);
    cuKernelGetFunction(out: CallerPtr<usize>, kernel: Handle) => uses::function_of(out, kernel);

    cuLaunchKernel(
        function: Handle, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: Handle, parameters: CallerPtr<*const c_void>,
        extra: CallerPtr<usize>)
        | cuLaunchKernel_ptsz => uses::launch(function, at(stream), Arguments { parameters, extra });
    cuLaunchCooperativeKernel(
        function: Handle, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: Handle, parameters: CallerPtr<*const c_void>)
        | cuLaunchCooperativeKernel_ptsz => uses::launch(function, at(stream), Arguments::of(parameters));
    cuLaunchKernelEx(
        config: CallerPtr<LaunchStart>, function: Handle, parameters: CallerPtr<*const c_void>,
        extra: CallerPtr<usize>)
        | cuLaunchKernelEx_ptsz =>
        uses::launch(function, uses::stream_of(config, PER_THREAD), Arguments { parameters, extra });

    cuMemcpyHtoD_v2(to: u64, from: u64, size: usize) | cuMemcpyHtoD_v2_ptds =>
        uses::copy(NAME, CopyKind::ToDevice, to, from, size, Stream::NONE);
    cuMemcpyDtoH_v2(to: u64, from: u64, size: usize) | cuMemcpyDtoH_v2_ptds =>
        uses::copy(NAME, CopyKind::ToHost, to, from, size, Stream::NONE);
    cuMemcpyDtoD_v2(to: u64, from: u64, size: usize) | cuMemcpyDtoD_v2_ptds =>
        uses::copy(NAME, CopyKind::OnDevice, to, from, size, Stream::NONE);
    cuMemcpy(to: u64, from: u64, size: usize) | cuMemcpy_ptds =>
        uses::copy(NAME, CopyKind::Unified, to, from, size, Stream::NONE);
    cuMemcpyHtoDAsync_v2(to: u64, from: u64, size: usize, stream: Handle) | cuMemcpyHtoDAsync_v2_ptsz =>
        uses::copy(NAME, CopyKind::ToDevice, to, from, size, at(stream));
    cuMemcpyDtoHAsync_v2(to: u64, from: u64, size: usize, stream: Handle) | cuMemcpyDtoHAsync_v2_ptsz =>
        uses::copy(NAME, CopyKind::ToHost, to, from, size, at(stream));
    cuMemcpyDtoDAsync_v2(to: u64, from: u64, size: usize, stream: Handle) | cuMemcpyDtoDAsync_v2_ptsz =>
        uses::copy(NAME, CopyKind::OnDevice, to, from, size, at(stream));
    cuMemcpyAsync(to: u64, from: u64, size: usize, stream: Handle) | cuMemcpyAsync_ptsz =>
        uses::copy(NAME, CopyKind::Unified, to, from, size, at(stream));
    cuMemcpyPeer(to: u64, to_context: Handle, from: u64, from_context: Handle, size: usize) | cuMemcpyPeer_ptds =>
        uses::copy(NAME, CopyKind::OnDevice, to, from, size, Stream::NONE);
    cuMemcpyPeerAsync(
        to: u64, to_context: Handle, from: u64, from_context: Handle, size: usize, stream: Handle)
        | cuMemcpyPeerAsync_ptsz => uses::copy(NAME, CopyKind::OnDevice, to, from, size, at(stream));
    cuMemcpyDtoA_v2(array: Handle, offset: usize, from: u64, size: usize) | cuMemcpyDtoA_v2_ptds =>
        uses::copy(NAME, CopyKind::ToHost, 0, from, size, Stream::NONE);
    cuMemcpyAtoD_v2(to: u64, array: Handle, offset: usize, size: usize) | cuMemcpyAtoD_v2_ptds =>
        uses::fill(NAME, to, size, Stream::NONE);
    cuMemcpy2D_v2(region: CallerPtr<Region2d>)
        | cuMemcpy2D_v2_ptds | cuMemcpy2DUnaligned_v2 | cuMemcpy2DUnaligned_v2_ptds =>
        uses::copy_rows(NAME, region, Stream::NONE);
    cuMemcpy2DAsync_v2(region: CallerPtr<Region2d>, stream: Handle) | cuMemcpy2DAsync_v2_ptsz =>
        uses::copy_rows(NAME, region, at(stream));
    cuMemcpy3D_v2(region: CallerPtr<Region3d>) | cuMemcpy3D_v2_ptds | cuMemcpy3DPeer | cuMemcpy3DPeer_ptds =>
        uses::copy_rows(NAME, region, Stream::NONE);
    cuMemcpy3DAsync_v2(region: CallerPtr<Region3d>, stream: Handle)
        | cuMemcpy3DAsync_v2_ptsz | cuMemcpy3DPeerAsync | cuMemcpy3DPeerAsync_ptsz =>
        uses::copy_rows(NAME, region, at(stream));
    cuMemcpyBatchAsync(
        to: Handle, from: Handle, sizes: Handle, count: usize, attributes: Handle, indices: Handle,
        attribute_count: usize, failed: Handle, stream: Handle)
        | cuMemcpyBatchAsync_ptsz => uses::batch(NAME, at(stream));
    cuMemcpyBatchAsync_v2(
        to: Handle, from: Handle, sizes: Handle, count: usize, attributes: Handle, indices: Handle,
        attribute_count: usize, stream: Handle) | cuMemcpyBatchAsync_v2_ptsz => uses::batch(NAME, at(stream));
    cuMemcpy3DBatchAsync(count: usize, list: Handle, failed: Handle, flags: u64, stream: Handle)
        | cuMemcpy3DBatchAsync_ptsz => uses::batch(NAME, at(stream));
    cuMemcpy3DBatchAsync_v2(count: usize, list: Handle, flags: u64, stream: Handle)
        | cuMemcpy3DBatchAsync_v2_ptsz => uses::batch(NAME, at(stream));
    cuMemcpyWithAttributesAsync(to: u64, from: u64, size: usize, attributes: Handle, stream: Handle)
        | cuMemcpyWithAttributesAsync_ptsz => uses::copy(NAME, CopyKind::Unified, to, from, size, at(stream));
    cuMemcpy3DWithAttributesAsync(list: Handle, flags: u64, stream: Handle) | cuMemcpy3DWithAttributesAsync_ptsz =>
        uses::batch(NAME, at(stream));

    cuMemsetD8_v2(to: u64, value: Value, count: usize)<u8> | cuMemsetD8_v2_ptds<u8> | cuMemsetD16_v2<u16>
        | cuMemsetD16_v2_ptds<u16> | cuMemsetD32_v2<u32> | cuMemsetD32_v2_ptds<u32> =>
        uses::fill(NAME, to, count.saturating_mul(size_of::<Value>()), Stream::NONE);
    cuMemsetD8Async(to: u64, value: Value, count: usize, stream: Handle)<u8> | cuMemsetD8Async_ptsz<u8>
        | cuMemsetD16Async<u16> | cuMemsetD16Async_ptsz<u16> | cuMemsetD32Async<u32> | cuMemsetD32Async_ptsz<u32> =>
        uses::fill(NAME, to, count.saturating_mul(size_of::<Value>()), at(stream));
    cuMemsetD2D8_v2(to: u64, pitch: usize, value: Value, width: usize, height: usize)<u8> | cuMemsetD2D8_v2_ptds<u8>
        | cuMemsetD2D16_v2<u16> | cuMemsetD2D16_v2_ptds<u16> | cuMemsetD2D32_v2<u32> | cuMemsetD2D32_v2_ptds<u32> =>
        uses::fill_2d(NAME, to, (pitch, width.saturating_mul(size_of::<Value>()), height), Stream::NONE);
    cuMemsetD2D8Async(to: u64, pitch: usize, value: Value, width: usize, height: usize, stream: Handle)<u8>
        | cuMemsetD2D8Async_ptsz<u8> | cuMemsetD2D16Async<u16> | cuMemsetD2D16Async_ptsz<u16>
        | cuMemsetD2D32Async<u32> | cuMemsetD2D32Async_ptsz<u32> =>
        uses::fill_2d(NAME, to, (pitch, width.saturating_mul(size_of::<Value>()), height), at(stream));
    cuStreamWriteValue32_v2(stream: Handle, to: u64, value: Value, flags: c_uint)<u32>
        | cuStreamWriteValue32_v2_ptsz<u32> | cuStreamWaitValue32_v2<u32> | cuStreamWaitValue32_v2_ptsz<u32>
        | cuStreamWriteValue64_v2<u64> | cuStreamWriteValue64_v2_ptsz<u64> | cuStreamWaitValue64_v2<u64>
        | cuStreamWaitValue64_v2_ptsz<u64> => uses::value(NAME, to, at(stream));
    cuStreamBatchMemOp_v2(stream: Handle, count: c_uint, list: Handle, flags: c_uint)
        | cuStreamBatchMemOp_v2_ptsz => uses::batch(NAME, at(stream));

    cuGraphClone(out: CallerPtr<usize>, graph: Handle) => uses::cloned(out, graph);
    cuGraphAddKernelNode(
        out: CallerPtr<usize>, graph: Handle, before: Handle, count: usize, node: CallerPtr<KernelNode>)
        | cuGraphAddKernelNode_v2 => uses::added(graph, || uses::kernel_node(node, NAME.ends_with("_v2")));
    cuGraphAddMemcpyNode(
        out: CallerPtr<usize>, graph: Handle, before: Handle, count: usize, node: CallerPtr<Region3d>,
        context: Handle) => uses::added(graph, || uses::copy_node(node));
    cuGraphAddMemsetNode(
        out: CallerPtr<usize>, graph: Handle, before: Handle, count: usize, node: CallerPtr<FillNode>,
        context: Handle) => uses::added(graph, || uses::fill_node(node));
    cuGraphAddChildGraphNode(out: CallerPtr<usize>, graph: Handle, before: Handle, count: usize, child: Handle) =>
        uses::added(graph, || uses::child_graph(child.addr()));
    cuGraphAddBatchMemOpNode(out: CallerPtr<usize>, graph: Handle, before: Handle, count: usize, node: Handle) =>
        uses::added(graph, || uses::opaque(NAME));
    cuGraphKernelNodeSetParams(node: Handle, parameters: CallerPtr<KernelNode>)
        | cuGraphKernelNodeSetParams_v2 => uses::set(None, || uses::kernel_node(parameters, NAME.ends_with("_v2")));
    cuGraphMemcpyNodeSetParams(node: Handle, parameters: CallerPtr<Region3d>) =>
        uses::set(None, || uses::copy_node(parameters));
    cuGraphMemsetNodeSetParams(node: Handle, parameters: CallerPtr<FillNode>) =>
        uses::set(None, || uses::fill_node(parameters));
    cuGraphNodeSetParams(node: Handle, parameters: CallerPtr<c_int>) => uses::set(None, || uses::any_node(parameters));
    cuGraphExecKernelNodeSetParams(program: Handle, node: Handle, parameters: CallerPtr<KernelNode>)
        | cuGraphExecKernelNodeSetParams_v2 =>
        uses::set(Some(program), || uses::kernel_node(parameters, NAME.ends_with("_v2")));
    cuGraphExecMemcpyNodeSetParams(
        program: Handle, node: Handle, parameters: CallerPtr<Region3d>, context: Handle) =>
        uses::set(Some(program), || uses::copy_node(parameters));
    cuGraphExecMemsetNodeSetParams(
        program: Handle, node: Handle, parameters: CallerPtr<FillNode>, context: Handle) =>
        uses::set(Some(program), || uses::fill_node(parameters));
    cuGraphExecChildGraphNodeSetParams(program: Handle, node: Handle, child: Handle) =>
        uses::set(Some(program), || uses::child_graph(child.addr()));
    cuGraphExecNodeSetParams(program: Handle, node: Handle, parameters: CallerPtr<c_int>) =>
        uses::set(Some(program), || uses::any_node(parameters));
    cuGraphExecUpdate(program: Handle, graph: Handle, node: Handle, result: Handle) =>
        uses::set(Some(program), || uses::child_graph(graph.addr()));
    cuGraphExecUpdate_v2(program: Handle, graph: Handle, result: Handle) =>
        uses::set(Some(program), || uses::child_graph(graph.addr()));

    cuTensorMapEncodeTiled(
        map: CallerPtr<u64>, kind: c_int, rank: c_uint, address: u64, sizes: Handle, strides: Handle, boxes: Handle,
        element_strides: Handle, interleave: c_int, swizzle: c_int, promotion: c_int, fill: c_int) =>
        uses::encoded(map, address);
    cuTensorMapEncodeIm2col(
        map: CallerPtr<u64>, kind: c_int, rank: c_uint, address: u64, sizes: Handle, strides: Handle, lower: Handle,
        upper: Handle, channels: c_uint, pixels: c_uint, element_strides: Handle, interleave: c_int, swizzle: c_int,
        promotion: c_int, fill: c_int) => uses::encoded(map, address);
    cuTensorMapEncodeIm2colWide(
        map: CallerPtr<u64>, kind: c_int, rank: c_uint, address: u64, sizes: Handle, strides: Handle, lower: c_int,
        upper: c_int, channels: c_uint, pixels: c_uint, element_strides: Handle, interleave: c_int, mode: c_int,
        swizzle: c_int, promotion: c_int, fill: c_int) => uses::encoded(map, address);
    cuTensorMapReplaceAddress(map: CallerPtr<u64>, address: u64) => uses::encoded(map, address);
    cuTexObjectCreate(
        out: CallerPtr<u64>, resource: CallerPtr<TextureResource>, texture: Handle, view: Handle) =>
        uses::texture(resource);
    cuSurfObjectCreate(out: CallerPtr<u64>, resource: CallerPtr<TextureResource>) => uses::texture(resource);
    cuTexRefSetAddress_v2(offset: Handle, texture: Handle, address: u64, size: usize) => uses::escaped(address);
    cuIpcGetMemHandle(out: Handle, address: u64) | cuMemPoolExportPointer => uses::escaped(address);

    cuMulticastCreate(out: CallerPtr<u64>, properties: Handle) => unseen::MULTICAST.called();

    cuGetProcAddress(name: *const c_char, out: CallerPtr<*mut c_void>, version: c_int, flags: u64) => looked_up(out);
    cuGetProcAddress_v2(
        name: *const c_char, out: CallerPtr<*mut c_void>, version: c_int, flags: u64, status: *mut c_int) =>
        looked_up(out);
}
