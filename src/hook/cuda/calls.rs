//! The functions that stand in for the driver's: each calls the real one and tells what came of it.
#![expect(unsafe_code, reason = "functions of the driver's C interface")]
#![allow(non_snake_case, reason = "the names are the driver's")]

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::arrays::{self, Deep, Flat};
use super::driver::{Function, NOT_FOUND};
use super::events::{alloc, free};
use super::graphs::{self, AllocNode, GRAPHS, PROGRAMS};
use super::handles::{self, Kind};
use super::pointers::CallerPtr;
use super::requests::{
    External, at_once, classic, external, flags_of, host, in_order, of_pool, ordered, per_thread, physical, pinned,
    registered,
};
use super::words::{Class, Handle, LocationOfPool, Pointer, Size, Stream};
use super::{bulk, capture, imports, pools, segments, started, unseen};
use crate::hook::interpose::dlsym;

/// Defines a function for each of the driver's. What stands behind the arrow is evaluated before the driver is called, and
/// gives the callback to run with the driver's answer: freed memory may have a new owner by the time the call returns.
macro_rules! hooks {
    ($($name:ident($($arg:ident: $type:ty),*) => $before:expr;)*) => {
        $(mod $name {
            use super::*;

            pub(super) static REAL: Function = Function::named(concat!(stringify!($name), "\0"));

            /// # Safety
            /// The arguments as the driver's function takes them.
            pub(super) unsafe extern "C" fn hook($($arg: $type),*) -> c_int {
                let Some(address) = REAL.address() else { return NOT_FOUND };
                // SAFETY: the address is that of the driver's function, which has this signature.
                let real = unsafe {
                    std::mem::transmute::<usize, unsafe extern "C" fn($($type),*) -> c_int>(address)
                };
                let after = $before;
                // SAFETY: the arguments are the caller's.
                let result = unsafe { real($($arg),*) };
                after(result);
                result
            }
        })*

        /// The driver's functions and ours.
        pub(super) fn all() -> impl Iterator<Item = (&'static Function, usize)> {
            [$((&$name::REAL, $name::hook as *const () as usize)),*].into_iter()
        }
    };
}

/// Returns the callback to run with the result of `cuGetProcAddress`: it puts our function where the driver's was found, by
/// its address, so names and versions do not matter.
fn looked_up(out: CallerPtr<*mut c_void>) -> impl FnOnce(c_int) {
    move |result| {
        let Some(found) = out.written(result) else { return };
        if let Some((_, ours)) = all().find(|(real, _)| real.address() == Some(found.addr())) {
            dlsym::count_answer();
            out.overwrite(std::ptr::with_exposed_provenance_mut(ours));
        }
    }
}

/// `CUipcMemHandle`, passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
struct IpcHandle([u8; 64]);

hooks! {
    cuMemAllocAsync(out: CallerPtr<Pointer>, size: usize, stream: Handle) =>
        alloc(ordered(out, size, Stream::of(stream)));
    cuMemAllocAsync_ptsz(out: CallerPtr<Pointer>, size: usize, stream: Handle) =>
        alloc(ordered(out, size, per_thread(stream)));
    cuMemAllocFromPoolAsync(out: CallerPtr<Pointer>, size: usize, pool: Handle, stream: Handle) =>
        alloc(of_pool(out, size, Stream::of(stream)));
    cuMemAllocFromPoolAsync_ptsz(out: CallerPtr<Pointer>, size: usize, pool: Handle, stream: Handle) =>
        alloc(of_pool(out, size, per_thread(stream)));
    cuMemFreeAsync(pointer: Pointer, stream: Handle) => free(in_order(pointer, Stream::of(stream)));
    cuMemFreeAsync_ptsz(pointer: Pointer, stream: Handle) => free(in_order(pointer, per_thread(stream)));
    cuMemPoolCreate(out: CallerPtr<u64>, properties: CallerPtr<LocationOfPool>) => pools::created(out, properties);
    cuMemPoolDestroy(pool: Handle) => segments::then_settle(pools::destroyed(pool));
    cuMemPoolTrimTo(pool: Handle, keep: usize) => segments::settle;

    cuMemAlloc_v2(out: CallerPtr<Pointer>, size: usize) => alloc(classic(Class::Classic, out, Size::Plain(size)));
    cuMemAllocPitch_v2(out: CallerPtr<Pointer>, pitch: CallerPtr<usize>, width: usize, height: usize, element: c_uint) =>
        alloc(classic(Class::Classic, out, Size::Pitched(pitch, width, height)));
    cuMemAllocManaged(out: CallerPtr<Pointer>, size: usize, flags: c_uint) =>
        alloc(classic(Class::Managed, out, Size::Plain(size)));
    cuMemFree_v2(pointer: Pointer) => free(at_once(pointer));

    cuMemAllocHost_v2(out: CallerPtr<u64>, size: usize) => alloc(pinned(out, size));
    cuMemHostAlloc(out: CallerPtr<u64>, size: usize, flags: c_uint) => alloc(pinned(out, size));
    cuMemHostRegister_v2(pointer: Handle, size: usize, flags: c_uint) => alloc(registered(pointer, size));
    cuMemFreeHost(pointer: Handle) => free(host(pointer));
    cuMemHostUnregister(pointer: Handle) => free(host(pointer));

    cuMemCreate(out: CallerPtr<u64>, size: usize, properties: CallerPtr<LocationOfPool>, flags: u64) =>
        handles::made(physical(out, size, properties));
    cuMemImportFromShareableHandle(out: CallerPtr<u64>, handle: Handle, kind: c_int) => handles::retained(out);
    cuMemRetainAllocationHandle(out: CallerPtr<u64>, pointer: Handle) => handles::retained(out);
    cuMemRelease(handle: u64) => handles::released(Kind::Physical, handle);
    cuMemMap(pointer: Pointer, size: usize, offset: usize, handle: u64, flags: u64) =>
        handles::mapped(pointer, size as u64, handle);
    cuMemUnmap(pointer: Pointer, size: usize) => handles::unmapped(pointer, size as u64);

    cuArrayCreate_v2(out: CallerPtr<u64>, description: CallerPtr<Flat>) =>
        handles::made(arrays::flat(out, description));
    cuArray3DCreate_v2(out: CallerPtr<u64>, description: CallerPtr<Deep>) =>
        handles::made(arrays::deep(out, description));
    cuMipmappedArrayCreate(out: CallerPtr<u64>, description: CallerPtr<Deep>, levels: c_uint) =>
        handles::made(arrays::mipmapped(out, description, levels));
    cuArrayDestroy(array: Handle) => handles::released(Kind::Array, array.addr() as u64);
    cuMipmappedArrayDestroy(array: Handle) => handles::released(Kind::Array, array.addr() as u64);

    cuGraphCreate(out: CallerPtr<usize>, flags: c_uint) => graphs::created(out);
    cuGraphDestroy(graph: Handle) => GRAPHS.removed(graph.addr());
    cuGraphAddMemAllocNode(
        out: CallerPtr<usize>, graph: Handle, before: Handle, count: usize, node: CallerPtr<AllocNode>) =>
        graphs::added_alloc(graph, node);
    cuGraphAddMemFreeNode(out: CallerPtr<usize>, graph: Handle, before: Handle, count: usize, pointer: Pointer) =>
        graphs::added_free(graph, pointer);
    cuGraphAddNode(out: CallerPtr<usize>, graph: Handle, before: Handle, count: usize, node: CallerPtr<c_int>) =>
        graphs::added(graph, node);
    cuGraphAddNode_v2(
        out: CallerPtr<usize>, graph: Handle, before: Handle, edges: Handle, count: usize, node: CallerPtr<c_int>) =>
        graphs::added(graph, node);
    cuGraphAddNode_v3(
        out: CallerPtr<usize>, graph: Handle, before: Handle, edges: Handle, count: usize, node: CallerPtr<c_int>) =>
        graphs::added(graph, node);
    cuGraphInstantiate(out: CallerPtr<usize>, graph: Handle, failed: Handle, log: Handle, length: usize) =>
        graphs::instantiated(out, graph, 0);
    cuGraphInstantiate_v2(out: CallerPtr<usize>, graph: Handle, failed: Handle, log: Handle, length: usize) =>
        graphs::instantiated(out, graph, 0);
    cuGraphInstantiateWithFlags(out: CallerPtr<usize>, graph: Handle, flags: u64) =>
        graphs::instantiated(out, graph, flags);
    cuGraphInstantiateWithParams(out: CallerPtr<usize>, graph: Handle, parameters: CallerPtr<u64>) =>
        graphs::instantiated(out, graph, flags_of(parameters));
    cuGraphInstantiateWithParams_ptsz(out: CallerPtr<usize>, graph: Handle, parameters: CallerPtr<u64>) =>
        graphs::instantiated(out, graph, flags_of(parameters));
    cuGraphLaunch(program: Handle, stream: Handle) => graphs::launched(program, Stream::of(stream));
    cuGraphLaunch_ptsz(program: Handle, stream: Handle) => graphs::launched(program, per_thread(stream));
    cuGraphExecDestroy(program: Handle) => PROGRAMS.removed(program.addr());

    cuIpcOpenMemHandle_v2(out: CallerPtr<Pointer>, handle: IpcHandle, flags: c_uint) => imports::opened(out);
    cuIpcCloseMemHandle(pointer: Pointer) => imports::closed(pointer);
    cuMemPoolImportPointer(out: CallerPtr<Pointer>, pool: Handle, data: Handle) => imports::imported(out);
    cuExternalMemoryGetMappedBuffer(out: CallerPtr<Pointer>, memory: Handle, description: Handle) =>
        imports::mapped(out);
    cuImportExternalMemory(out: CallerPtr<u64>, description: CallerPtr<External>) =>
        handles::made(external(out, description));
    cuDestroyExternalMemory(memory: Handle) => handles::released(Kind::External, memory.addr() as u64);

    cuInit(flags: c_uint) => started::cuda_started;
    cuStreamSynchronize(stream: Handle) => segments::settle;
    cuStreamSynchronize_ptsz(stream: Handle) => segments::settle;
    cuEventSynchronize(event: Handle) => segments::settle;
    cuCtxSynchronize() => segments::settle;
    cuCtxSynchronize_v2(context: Handle) => segments::settle;
    cuStreamBeginCapture_v2(stream: Handle, mode: c_int) => capture::beginning(Stream::of(stream));
    cuStreamBeginCapture_v2_ptsz(stream: Handle, mode: c_int) => capture::beginning(per_thread(stream));
    cuStreamBeginCaptureToGraph(
        stream: Handle, graph: Handle, before: Handle, edges: Handle, count: usize, mode: c_int) =>
        capture::beginning(Stream::of(stream));
    cuStreamBeginCaptureToGraph_ptsz(
        stream: Handle, graph: Handle, before: Handle, edges: Handle, count: usize, mode: c_int) =>
        capture::beginning(per_thread(stream));
    cuStreamDestroy_v2(stream: Handle) => capture::destroying(Stream::of(stream));
    cuStreamEndCapture(stream: Handle, graph: CallerPtr<usize>) => capture::ending(Stream::of(stream), graph);
    cuStreamEndCapture_ptsz(stream: Handle, graph: CallerPtr<usize>) =>
        capture::ending(per_thread(stream), graph);

    cuCtxDestroy_v2(context: Handle) => bulk::context_destroyed(context);
    cuDevicePrimaryCtxRelease_v2(device: c_int) => bulk::primary_released(device);
    cuDevicePrimaryCtxReset_v2(device: c_int) => bulk::primary_reset(device);

    cuMulticastCreate(out: CallerPtr<u64>, properties: Handle) => unseen::MULTICAST.called();

    cuGetProcAddress(name: *const c_char, out: CallerPtr<*mut c_void>, version: c_int, flags: u64) => looked_up(out);
    cuGetProcAddress_v2(
        name: *const c_char, out: CallerPtr<*mut c_void>, version: c_int, flags: u64, status: *mut c_int) =>
        looked_up(out);
}
