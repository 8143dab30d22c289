//! Hooks of the driver: each calls the original function and reports the result.
#![expect(unsafe_code, reason = "functions of the driver's C interface")]
#![allow(non_snake_case, reason = "the names are the driver's")]

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::arrays::{self, Array2d, Array3d};
use super::driver::{Function, NOT_FOUND};
use super::events::{alloc, free};
use super::graphs::{self, AllocNode, GRAPHS, PROGRAMS};
use super::handles::{self, HandleKind};
use super::pointers::CallerPtr;
use super::requests::{
    ExternalMemoryDesc, at_once, classic, external, flags_of, host, in_order, of_pool, ordered, physical, pinned,
    registered,
};
use super::types::{Class, Handle, PoolLocation, Size, Stream};
use super::{capture, contexts, imports, init, pools, segments, unseen};
use crate::hook::interpose::dlsym;

/// Defines a hook for each name, from rows `name(arguments) | other_name => expression;`.
///
/// The expression runs before the driver is called, because freed memory may have a new owner by the time that the call
/// returns. Its value is the callback to run with the driver's result, so every function that a row calls returns a
/// callback.
macro_rules! hooks {
    ($($name:ident $args:tt $(| $alias:ident)* => $before:expr;)*) => {
        $(hook! { $name $args $before } $(hook! { $alias $args $before })*)*

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
    ($name:ident ($($arg:ident: $type:ty),*) $before:expr) => {
        mod $name {
            use super::*;

            pub(super) static ORIGINAL: Function = Function::named(concat!(stringify!($name), "\0"));
            /// Whether a null stream is the calling thread's own default stream.
            #[allow(dead_code, reason = "not every function has a stream")]
            const PER_THREAD: bool = matches!(stringify!($name).as_bytes(), [.., b'_', b'p', b't', b's', b'z']);

            /// # Safety
            /// The arguments as the driver's function takes them.
            pub(super) unsafe extern "C" fn hook($($arg: $type),*) -> c_int {
                let Some(address) = ORIGINAL.address() else { return NOT_FOUND };
                // SAFETY: the address is that of the driver's function, which has this signature.
                let original = unsafe {
                    std::mem::transmute::<usize, unsafe extern "C" fn($($type),*) -> c_int>(address)
                };
                let after = $before;
                // SAFETY: the arguments are the caller's.
                let result = unsafe { original($($arg),*) };
                after(result);
                result
            }
        }
    };
}

/// Replaces what `cuGetProcAddress` found, by its address: names and versions do not matter.
fn looked_up(out: CallerPtr<*mut c_void>) -> impl FnOnce(c_int) {
    move |result| {
        let Some(found) = out.written(result) else { return };
        if let Some((_, hook)) = all().find(|(original, _)| original.address() == Some(found.addr())) {
            dlsym::count_answer();
            out.overwrite(std::ptr::with_exposed_provenance_mut(hook));
        }
    }
}

/// `CUipcMemHandle`, passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
struct IpcHandle([u8; 64]);

hooks! {
    cuMemAllocAsync(out: CallerPtr<u64>, size: usize, stream: Handle) | cuMemAllocAsync_ptsz =>
        alloc(ordered(out, size, Stream::of(stream, PER_THREAD)));
    cuMemAllocFromPoolAsync(
        out: CallerPtr<u64>, size: usize, pool: Handle, stream: Handle)
        | cuMemAllocFromPoolAsync_ptsz =>
        alloc(of_pool(out, size, Stream::of(stream, PER_THREAD)));
    cuMemFreeAsync(pointer: u64, stream: Handle) | cuMemFreeAsync_ptsz =>
        free(in_order(pointer, Stream::of(stream, PER_THREAD)));
    cuMemPoolCreate(out: CallerPtr<u64>, properties: CallerPtr<PoolLocation>) => pools::created(out, properties);
    cuMemPoolDestroy(pool: Handle) => segments::then_settle(pools::destroyed(pool));
    cuMemPoolTrimTo(pool: Handle, keep: usize) => segments::settle;

    cuMemAlloc_v2(out: CallerPtr<u64>, size: usize) => alloc(classic(Class::Classic, out, Size::Plain(size)));
    cuMemAllocPitch_v2(out: CallerPtr<u64>, pitch: CallerPtr<usize>, width: usize, height: usize, element: c_uint) =>
        alloc(classic(Class::Classic, out, Size::Pitched(pitch, width, height)));
    cuMemAllocManaged(out: CallerPtr<u64>, size: usize, flags: c_uint) =>
        alloc(classic(Class::Managed, out, Size::Plain(size)));
    cuMemFree_v2(pointer: u64) => free(at_once(pointer));

    cuMemAllocHost_v2(out: CallerPtr<u64>, size: usize) => alloc(pinned(out, size));
    cuMemHostAlloc(out: CallerPtr<u64>, size: usize, flags: c_uint) => alloc(pinned(out, size));
    cuMemHostRegister_v2(pointer: Handle, size: usize, flags: c_uint) => alloc(registered(pointer, size));
    cuMemFreeHost(pointer: Handle) | cuMemHostUnregister => free(host(pointer));

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
        handles::made(arrays::mipmapped(out, description, 1));
    cuMipmappedArrayCreate(out: CallerPtr<u64>, description: CallerPtr<Array3d>, levels: c_uint) =>
        handles::made(arrays::mipmapped(out, description, levels));
    cuArrayDestroy(array: Handle) | cuMipmappedArrayDestroy =>
        handles::released(HandleKind::Array, array.addr() as u64);

    cuGraphCreate(out: CallerPtr<usize>, flags: c_uint) => graphs::created(out);
    cuGraphDestroy(graph: Handle) => GRAPHS.destroying(graph.addr());
    cuGraphAddMemAllocNode(
        out: CallerPtr<usize>, graph: Handle, before: Handle, count: usize, node: CallerPtr<AllocNode>) =>
        graphs::added_alloc(graph, node);
    cuGraphAddMemFreeNode(out: CallerPtr<usize>, graph: Handle, before: Handle, count: usize, pointer: u64) =>
        graphs::added_free(graph, pointer);
    cuGraphAddNode(out: CallerPtr<usize>, graph: Handle, before: Handle, count: usize, node: CallerPtr<c_int>) =>
        graphs::added(graph, node);
    cuGraphAddNode_v2(
        out: CallerPtr<usize>, graph: Handle, before: Handle, edges: Handle, count: usize, node: CallerPtr<c_int>)
        | cuGraphAddNode_v3 =>
        graphs::added(graph, node);
    cuGraphInstantiate(
        out: CallerPtr<usize>, graph: Handle, failed: Handle, log: Handle, length: usize)
        | cuGraphInstantiate_v2 =>
        graphs::instantiated(out, graph, 0);
    cuGraphInstantiateWithFlags(out: CallerPtr<usize>, graph: Handle, flags: u64) =>
        graphs::instantiated(out, graph, flags);
    cuGraphInstantiateWithParams(
        out: CallerPtr<usize>, graph: Handle, parameters: CallerPtr<u64>)
        | cuGraphInstantiateWithParams_ptsz =>
        graphs::instantiated(out, graph, flags_of(parameters));
    cuGraphLaunch(program: Handle, stream: Handle) | cuGraphLaunch_ptsz =>
        graphs::launched(program, Stream::of(stream, PER_THREAD));
    cuGraphExecDestroy(program: Handle) => PROGRAMS.destroying(program.addr());

    cuIpcOpenMemHandle_v2(out: CallerPtr<u64>, handle: IpcHandle, flags: c_uint) => imports::opened(out);
    cuIpcCloseMemHandle(pointer: u64) => imports::closed(pointer);
    cuMemPoolImportPointer(out: CallerPtr<u64>, pool: Handle, data: Handle) => imports::imported(out);
    cuExternalMemoryGetMappedBuffer(out: CallerPtr<u64>, memory: Handle, description: Handle) =>
        imports::mapped(out);
    cuImportExternalMemory(out: CallerPtr<u64>, description: CallerPtr<ExternalMemoryDesc>) =>
        handles::made(external(out, description));
    cuDestroyExternalMemory(memory: Handle) => handles::released(HandleKind::External, memory.addr() as u64);

    cuInit(flags: c_uint) => init::cuda_started;
    cuCtxSynchronize() => segments::settle;
    cuCtxSynchronize_v2(object: Handle) | cuEventSynchronize | cuStreamSynchronize | cuStreamSynchronize_ptsz =>
        segments::settle;
    cuStreamBeginCapture_v2(stream: Handle, mode: c_int) | cuStreamBeginCapture_v2_ptsz =>
        capture::beginning(Stream::of(stream, PER_THREAD));
    cuStreamBeginCaptureToGraph(
        stream: Handle, graph: Handle, before: Handle, edges: Handle, count: usize, mode: c_int)
        | cuStreamBeginCaptureToGraph_ptsz =>
        capture::beginning(Stream::of(stream, PER_THREAD));
    cuStreamEndCapture(stream: Handle, graph: CallerPtr<usize>) | cuStreamEndCapture_ptsz =>
        capture::ending(Stream::of(stream, PER_THREAD), graph);
    cuStreamDestroy_v2(stream: Handle) => capture::destroying(Stream::of(stream, PER_THREAD));

    cuCtxDestroy_v2(context: Handle) => contexts::destroyed(context);
    cuDevicePrimaryCtxRelease_v2(device: c_int) => contexts::primary_released(device);
    cuDevicePrimaryCtxReset_v2(device: c_int) => contexts::primary_reset(device);

    cuMulticastCreate(out: CallerPtr<u64>, properties: Handle) => unseen::MULTICAST.called();

    cuGetProcAddress(name: *const c_char, out: CallerPtr<*mut c_void>, version: c_int, flags: u64) => looked_up(out);
    cuGetProcAddress_v2(
        name: *const c_char, out: CallerPtr<*mut c_void>, version: c_int, flags: u64, status: *mut c_int) =>
        looked_up(out);
}
