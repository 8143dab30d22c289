//! The functions that stand in for the driver's: each calls the real one and tells what came of it.
#![expect(unsafe_code, reason = "functions of the driver's C interface")]
#![allow(non_snake_case, reason = "the names are the driver's")]

use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicU64, Ordering};

use super::arrays::{self, Deep, Flat};
use super::bulk::{self, Ending};
use super::driver::{self, NOT_FOUND};
use super::graphs::{self, AllocNode, AnyNode};
use super::handles::{self, Kind};
use super::requests::{
    External, at_once, classic, external, flags_of, host, in_order, of_pool, ordered, per_thread, physical, pinned,
    registered,
};
use super::words::{Class, Handle, LocationOfPool, Pointer, Size, Stream};
use super::{attention, capture, events, imports, pools, segments, started};
use crate::record::ticks;
use crate::snapshot::UnseenCalls;

type Function = driver::Function;

/// Defines a function for each of the driver's, and the look-ups among them.
///
/// `alloc` is told after the call, `free` before and after it: freed memory may have a new owner by the
/// time the call returns. `around` begins with something before the call and ends with what that gave after it.
/// `starts` is the first call of all. `ends` may end a context and all that is in it. `unseen` makes memory that is not recorded; only its calls are counted.
macro_rules! hooks {
    ($($kind:ident $name:ident($($arg:ident: $type:ty),*) $(=> $event:expr)?;)*) => {
        $(hooks!(@$kind $name($($arg: $type),*) $($event)?);)*

        /// The driver's function of that name, and ours.
        pub(super) fn known(name: &[u8]) -> Option<(&'static Function, usize)> {
            $(if name == stringify!($name).as_bytes() {
                return Some((&$name::REAL, $name::hook as *const () as usize));
            })*
            None
        }

        /// Asks the driver for all its functions, once each.
        pub(super) fn look_up_all() {
            $($name::REAL.address();)*
        }

        /// Ours for a function of the driver, by its address.
        pub(super) fn by_address(address: usize) -> Option<usize> {
            $(if $name::REAL.address() == Some(address) {
                return Some($name::hook as *const () as usize);
            })*
            None
        }

        /// Calls that made memory which is not recorded.
        pub(super) fn unseen() -> Vec<UnseenCalls> {
            let counts = [$((stringify!($name), &$name::UNSEEN)),*];
            let counts = counts.map(|(function, count)| (function, count.load(Ordering::Relaxed)));
            let called = counts.into_iter().filter(|(_, calls)| *calls > 0);
            let captured = [(capture::WORDS, capture::unseen())].into_iter().filter(|(_, calls)| *calls > 0);
            let named = |(function, calls): (&str, u64)| UnseenCalls { function: function.to_owned(), calls };
            called.chain(captured).map(named).collect()
        }
    };
    (@alloc $name:ident($($arg:ident: $type:ty),*) $event:expr) => {
        hooks!(@function $name($($arg: $type),*) |real| {
            if attention::is_idle() {
                // SAFETY: the arguments are the caller's.
                return unsafe { real($($arg),*) };
            }
            let began = ticks::now();
            // SAFETY: the arguments are the caller's.
            let result = unsafe { real($($arg),*) };
            // SAFETY: the pointers among the arguments are what the driver was given.
            unsafe { events::after_alloc(result, $event, began) };
            result
        });
    };
    (@free $name:ident($($arg:ident: $type:ty),*) $event:expr) => {
        hooks!(@function $name($($arg: $type),*) |real| {
            if attention::is_idle() {
                // SAFETY: the arguments are the caller's.
                return unsafe { real($($arg),*) };
            }
            let freeing = events::before_free($event);
            // SAFETY: the arguments are the caller's.
            let result = unsafe { real($($arg),*) };
            freeing.done(result);
            result
        });
    };
    (@around $name:ident($($arg:ident: $type:ty),*) $event:expr) => {
        hooks!(@function $name($($arg: $type),*) |real| {
            let done = $event;
            // SAFETY: the arguments are the caller's.
            let result = unsafe { real($($arg),*) };
            done(result);
            result
        });
    };
    (@ends $name:ident($($arg:ident: $type:ty),*) $event:expr) => {
        hooks!(@function $name($($arg: $type),*) |real| {
            if attention::is_idle() && !handles::any_of_contexts() {
                // SAFETY: the arguments are the caller's.
                return unsafe { real($($arg),*) };
            }
            let (before, ending) = (bulk::before(), $event);
            // SAFETY: the arguments are the caller's.
            let result = unsafe { real($($arg),*) };
            bulk::after(result, before);
            ending.done(result);
            result
        });
    };
    (@starts $name:ident($($arg:ident: $type:ty),*)) => {
        hooks!(@function $name($($arg: $type),*) |real| {
            // SAFETY: the arguments are the caller's.
            let result = unsafe { real($($arg),*) };
            started::cuda_started(result);
            result
        });
    };
    (@unseen $name:ident($($arg:ident: $type:ty),*)) => {
        hooks!(@function $name($($arg: $type),*) |real| {
            if attention::watching() {
                UNSEEN.fetch_add(1, Ordering::Relaxed);
            }
            // SAFETY: the arguments are the caller's.
            unsafe { real($($arg),*) }
        });
    };
    (@function $name:ident($($arg:ident: $type:ty),*) |$real:ident| $body:block) => {
        mod $name {
            use super::*;

            /// # Safety
            /// The arguments as the driver's function takes them.
            pub(super) unsafe extern "C" fn hook($($arg: $type),*) -> c_int {
                let Some(address) = REAL.address() else { return NOT_FOUND };
                // SAFETY: the address is that of the driver's function, which has this signature.
                let $real = unsafe {
                    std::mem::transmute::<usize, unsafe extern "C" fn($($type),*) -> c_int>(address)
                };
                $body
            }

            pub(super) static REAL: Function = Function::named(concat!(stringify!($name), "\0"));
            pub(super) static UNSEEN: AtomicU64 = AtomicU64::new(0);
        }
    };
}

/// `CUipcMemHandle`, passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
struct IpcHandle([u8; 64]);

hooks! {
    alloc cuMemAllocAsync(out: *mut Pointer, size: usize, stream: Handle) =>
        ordered(out, size, Stream::of(stream));
    alloc cuMemAllocAsync_ptsz(out: *mut Pointer, size: usize, stream: Handle) =>
        ordered(out, size, per_thread(stream));
    alloc cuMemAllocFromPoolAsync(out: *mut Pointer, size: usize, pool: Handle, stream: Handle) =>
        of_pool(out, size, Stream::of(stream));
    alloc cuMemAllocFromPoolAsync_ptsz(out: *mut Pointer, size: usize, pool: Handle, stream: Handle) =>
        of_pool(out, size, per_thread(stream));
    free cuMemFreeAsync(pointer: Pointer, stream: Handle) => in_order(pointer, Stream::of(stream));
    free cuMemFreeAsync_ptsz(pointer: Pointer, stream: Handle) => in_order(pointer, per_thread(stream));
    around cuMemPoolCreate(out: *mut Handle, properties: *const LocationOfPool) => pools::created(out, properties);
    around cuMemPoolDestroy(pool: Handle) => segments::then_settle(pools::destroyed(pool));
    around cuMemPoolTrimTo(pool: Handle, keep: usize) => segments::settle;

    alloc cuMemAlloc_v2(out: *mut Pointer, size: usize) =>
        classic(Class::Classic, out, Size::Plain(size));
    alloc cuMemAllocPitch_v2(out: *mut Pointer, pitch: *mut usize, width: usize, height: usize, element: c_uint) =>
        classic(Class::Classic, out, Size::Pitched(pitch, width, height));
    alloc cuMemAllocManaged(out: *mut Pointer, size: usize, flags: c_uint) =>
        classic(Class::Managed, out, Size::Plain(size));
    free cuMemFree_v2(pointer: Pointer) => at_once(pointer);

    alloc cuMemAllocHost_v2(out: *mut Handle, size: usize) => pinned(out, size);
    alloc cuMemHostAlloc(out: *mut Handle, size: usize, flags: c_uint) => pinned(out, size);
    alloc cuMemHostRegister_v2(pointer: Handle, size: usize, flags: c_uint) => registered(pointer, size);
    free cuMemFreeHost(pointer: Handle) => host(pointer);
    free cuMemHostUnregister(pointer: Handle) => host(pointer);

    around cuMemCreate(out: *mut u64, size: usize, properties: *const LocationOfPool, flags: u64) =>
        handles::made(physical(out, size, properties));
    around cuMemImportFromShareableHandle(out: *mut u64, handle: Handle, kind: c_int) => handles::retained(out);
    around cuMemRetainAllocationHandle(out: *mut u64, pointer: Handle) => handles::retained(out);
    around cuMemRelease(handle: u64) => handles::released(Kind::Physical, handle);
    around cuMemMap(pointer: Pointer, size: usize, offset: usize, handle: u64, flags: u64) =>
        handles::mapped(pointer, size as u64, handle);
    around cuMemUnmap(pointer: Pointer, size: usize) => handles::unmapped(pointer, size as u64);

    around cuArrayCreate_v2(out: *mut Handle, description: *const Flat) =>
        handles::made(arrays::flat(out, description));
    around cuArray3DCreate_v2(out: *mut Handle, description: *const Deep) =>
        handles::made(arrays::deep(out, description));
    around cuMipmappedArrayCreate(out: *mut Handle, description: *const Deep, levels: c_uint) =>
        handles::made(arrays::mipmapped(out, description, levels));
    around cuArrayDestroy(array: Handle) => handles::released(Kind::Array, array.addr() as u64);
    around cuMipmappedArrayDestroy(array: Handle) => handles::released(Kind::Array, array.addr() as u64);

    around cuGraphCreate(out: *mut Handle, flags: c_uint) => graphs::created(out);
    around cuGraphDestroy(graph: Handle) => graphs::destroyed(graph);
    around cuGraphAddMemAllocNode(
        out: *mut Handle, graph: Handle, before: Handle, count: usize, node: *const AllocNode) =>
        graphs::added_alloc(graph, node);
    around cuGraphAddMemFreeNode(out: *mut Handle, graph: Handle, before: Handle, count: usize, pointer: Pointer) =>
        graphs::added_free(graph, pointer);
    around cuGraphAddNode(out: *mut Handle, graph: Handle, before: Handle, count: usize, node: *const AnyNode) =>
        graphs::added(graph, node);
    around cuGraphAddNode_v2(
        out: *mut Handle, graph: Handle, before: Handle, edges: Handle, count: usize, node: *const AnyNode) =>
        graphs::added(graph, node);
    around cuGraphAddNode_v3(
        out: *mut Handle, graph: Handle, before: Handle, edges: Handle, count: usize, node: *const AnyNode) =>
        graphs::added(graph, node);
    around cuGraphInstantiate(out: *mut Handle, graph: Handle, failed: Handle, log: Handle, length: usize) =>
        graphs::instantiated(out, graph, 0);
    around cuGraphInstantiate_v2(out: *mut Handle, graph: Handle, failed: Handle, log: Handle, length: usize) =>
        graphs::instantiated(out, graph, 0);
    around cuGraphInstantiateWithFlags(out: *mut Handle, graph: Handle, flags: u64) =>
        graphs::instantiated(out, graph, flags);
    around cuGraphInstantiateWithParams(out: *mut Handle, graph: Handle, parameters: *const u64) =>
        graphs::instantiated(out, graph, flags_of(parameters));
    around cuGraphInstantiateWithParams_ptsz(out: *mut Handle, graph: Handle, parameters: *const u64) =>
        graphs::instantiated(out, graph, flags_of(parameters));
    around cuGraphLaunch(program: Handle, stream: Handle) => graphs::launched(program, Stream::of(stream));
    around cuGraphLaunch_ptsz(program: Handle, stream: Handle) => graphs::launched(program, per_thread(stream));
    around cuGraphExecDestroy(program: Handle) => graphs::program_destroyed(program);

    around cuIpcOpenMemHandle_v2(out: *mut Pointer, handle: IpcHandle, flags: c_uint) => imports::opened(out);
    around cuIpcCloseMemHandle(pointer: Pointer) => imports::closed(pointer);
    around cuMemPoolImportPointer(out: *mut Pointer, pool: Handle, data: Handle) => imports::imported(out);
    around cuExternalMemoryGetMappedBuffer(out: *mut Pointer, memory: Handle, description: Handle) =>
        imports::mapped(out);
    around cuImportExternalMemory(out: *mut Handle, description: *const External) =>
        handles::made(external(out, description));
    around cuDestroyExternalMemory(memory: Handle) => handles::released(Kind::External, memory.addr() as u64);

    starts cuInit(flags: c_uint);
    around cuStreamSynchronize(stream: Handle) => segments::settle;
    around cuStreamSynchronize_ptsz(stream: Handle) => segments::settle;
    around cuEventSynchronize(event: Handle) => segments::settle;
    around cuCtxSynchronize() => segments::settle;
    around cuCtxSynchronize_v2(context: Handle) => segments::settle;
    around cuStreamBeginCapture_v2(stream: Handle, mode: c_int) => capture::beginning(Stream::of(stream));
    around cuStreamBeginCapture_v2_ptsz(stream: Handle, mode: c_int) => capture::beginning(per_thread(stream));
    around cuStreamBeginCaptureToGraph(
        stream: Handle, graph: Handle, before: Handle, edges: Handle, count: usize, mode: c_int) =>
        capture::beginning(Stream::of(stream));
    around cuStreamBeginCaptureToGraph_ptsz(
        stream: Handle, graph: Handle, before: Handle, edges: Handle, count: usize, mode: c_int) =>
        capture::beginning(per_thread(stream));
    around cuStreamDestroy_v2(stream: Handle) => capture::destroying(Stream::of(stream));
    around cuStreamEndCapture(stream: Handle, graph: *mut Handle) => capture::ending(Stream::of(stream), graph);
    around cuStreamEndCapture_ptsz(stream: Handle, graph: *mut Handle) =>
        capture::ending(per_thread(stream), graph);

    ends cuCtxDestroy_v2(context: Handle) => Ending::of_context(context.addr());
    ends cuDevicePrimaryCtxRelease_v2(device: c_int) => Ending::of_release(device);
    ends cuDevicePrimaryCtxReset_v2(device: c_int) => Ending::of_reset(device);

    unseen cuMulticastCreate(out: *mut u64, properties: Handle);
}
