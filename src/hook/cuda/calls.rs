//! The functions that stand in for the driver's: each calls the real one and tells what came of it.
#![expect(unsafe_code, reason = "functions of the driver's C interface")]
#![allow(non_snake_case, reason = "the names are the driver's")]

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use super::copies::Listener;
use super::driver::{Function, NOT_FOUND};
use super::events::{self, Address, Class, Release, Request, Size, Stream};
use super::patch::Pair;
use super::{bulk, capture, copies, lookup, start};
use crate::snapshot::UnseenCalls;

type Pointer = u64;
type Handle = *mut c_void;

/// Defines a function for each of the driver's, and the look-ups among them.
///
/// `alloc` is told after the call, `free` before and after it: freed memory may have a new owner by the
/// time the call returns. `starts` is the first call of all. `ends` may end a context and all that is in it. `begins` and `finishes` are the
/// captures of streams. `unseen` makes memory that is not recorded; only its calls are counted.
macro_rules! hooks {
    ($($kind:ident $name:ident($($arg:ident: $type:ty),*) $(=> $event:expr)?;)*) => {
        $(hooks!(@$kind $name($($arg: $type),*) $($event)?);)*

        /// The driver's function of that name, and ours.
        fn known(name: &[u8]) -> Option<(&'static Function, usize)> {
            $(if name == stringify!($name).as_bytes() {
                return Some((&$name::REAL, $name::hook as *const () as usize));
            })*
            None
        }

        /// Asks the driver for all its functions, once each.
        pub(super) fn look_up_all() {
            $($name::REAL.address();)*
            lookup::look_up_all();
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
            // SAFETY: the arguments are the caller's.
            let result = unsafe { real($($arg),*) };
            if events::watching() {
                // SAFETY: the pointers among the arguments are what the driver was given.
                unsafe { events::after_alloc(result, $event) };
            }
            result
        });
    };
    (@free $name:ident($($arg:ident: $type:ty),*) $event:expr) => {
        hooks!(@function $name($($arg: $type),*) |real| {
            if !events::watching() {
                // SAFETY: the arguments are the caller's.
                return unsafe { real($($arg),*) };
            }
            let free = events::before_free($event);
            // SAFETY: the arguments are the caller's.
            let result = unsafe { real($($arg),*) };
            events::after_free(result, free);
            result
        });
    };
    (@ends $name:ident($($arg:ident: $type:ty),*)) => {
        hooks!(@function $name($($arg: $type),*) |real| {
            if !events::watching() {
                // SAFETY: the arguments are the caller's.
                return unsafe { real($($arg),*) };
            }
            copies::each(Listener::before_end);
            let before = bulk::before();
            // SAFETY: the arguments are the caller's.
            let result = unsafe { real($($arg),*) };
            bulk::after(result, before);
            copies::each(|listener| listener.after_end(result));
            result
        });
    };
    (@begins $name:ident($($arg:ident: $type:ty),*)) => {
        hooks!(@function $name($($arg: $type),*) |real| {
            // SAFETY: the arguments are the caller's.
            let result = unsafe { real($($arg),*) };
            capture::begun(result);
            result
        });
    };
    (@finishes $name:ident($($arg:ident: $type:ty),*)) => {
        hooks!(@function $name($($arg: $type),*) |real| {
            capture::finished();
            // SAFETY: the arguments are the caller's.
            unsafe { real($($arg),*) }
        });
    };
    (@starts $name:ident($($arg:ident: $type:ty),*)) => {
        hooks!(@function $name($($arg: $type),*) |real| {
            // SAFETY: the arguments are the caller's.
            let result = unsafe { real($($arg),*) };
            start::cuda_started(result);
            result
        });
    };
    (@unseen $name:ident($($arg:ident: $type:ty),*)) => {
        hooks!(@function $name($($arg: $type),*) |real| {
            if events::watching() {
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

/// A stream of the calling thread's own where none is named.
fn per_thread(stream: Handle) -> Stream {
    if stream.is_null() { Stream::PER_THREAD } else { Stream::of(stream) }
}

fn ordered(out: *mut Pointer, size: usize, stream: Stream) -> Request {
    let (address, size) = (Address::Out(out.cast()), Size::Plain(size));
    Request { class: Class::Device, address, size, stream, of_pool: false }
}

fn of_pool(out: *mut Pointer, size: usize, stream: Stream) -> Request {
    Request { of_pool: true, ..ordered(out, size, stream) }
}

fn classic(class: Class, out: *mut Pointer, size: Size) -> Request {
    Request { class, address: Address::Out(out.cast()), size, stream: Stream::NONE, of_pool: false }
}

fn pinned(address: Address, size: usize) -> Request {
    Request { class: Class::Pinned, address, size: Size::Plain(size), stream: Stream::NONE, of_pool: false }
}

fn device_memory(pointer: Pointer, stream: Stream) -> Release {
    Release { class: Class::Device, address: pointer, stream }
}

fn host(pointer: Handle) -> Release {
    Release { class: Class::Pinned, address: pointer.addr() as u64, stream: Stream::NONE }
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
    free cuMemFreeAsync(pointer: Pointer, stream: Handle) => device_memory(pointer, Stream::of(stream));
    free cuMemFreeAsync_ptsz(pointer: Pointer, stream: Handle) => device_memory(pointer, per_thread(stream));

    alloc cuMemAlloc_v2(out: *mut Pointer, size: usize) =>
        classic(Class::Device, out, Size::Plain(size));
    alloc cuMemAllocPitch_v2(out: *mut Pointer, pitch: *mut usize, width: usize, height: usize, element: c_uint) =>
        classic(Class::Device, out, Size::Pitched(pitch, height));
    alloc cuMemAllocManaged(out: *mut Pointer, size: usize, flags: c_uint) =>
        classic(Class::Managed, out, Size::Plain(size));
    free cuMemFree_v2(pointer: Pointer) => device_memory(pointer, Stream::NONE);

    alloc cuMemAllocHost_v2(out: *mut Handle, size: usize) =>
        pinned(Address::Out(out.cast()), size);
    alloc cuMemHostAlloc(out: *mut Handle, size: usize, flags: c_uint) =>
        pinned(Address::Out(out.cast()), size);
    alloc cuMemHostRegister_v2(pointer: Handle, size: usize, flags: c_uint) =>
        pinned(Address::Given(pointer.addr() as u64), size);
    free cuMemFreeHost(pointer: Handle) => host(pointer);
    free cuMemHostUnregister(pointer: Handle) => host(pointer);

    starts cuInit(flags: c_uint);
    begins cuStreamBeginCapture_v2(stream: Handle, mode: c_int);
    begins cuStreamBeginCapture_v2_ptsz(stream: Handle, mode: c_int);
    begins cuStreamBeginCaptureToGraph(
        stream: Handle, graph: Handle, before: Handle, edges: Handle, count: usize, mode: c_int);
    begins cuStreamBeginCaptureToGraph_ptsz(
        stream: Handle, graph: Handle, before: Handle, edges: Handle, count: usize, mode: c_int);
    finishes cuStreamEndCapture(stream: Handle, graph: Handle);
    finishes cuStreamEndCapture_ptsz(stream: Handle, graph: Handle);

    ends cuCtxDestroy_v2(context: Handle);
    ends cuDevicePrimaryCtxRelease_v2(device: c_int);
    ends cuDevicePrimaryCtxReset_v2(device: c_int);

    unseen cuMemCreate(out: *mut u64, size: usize, properties: Handle, flags: u64);
    unseen cuMemImportFromShareableHandle(out: *mut u64, handle: Handle, kind: c_int);
    unseen cuMulticastCreate(out: *mut u64, properties: Handle);
    unseen cuArrayCreate_v2(out: *mut Handle, descriptor: Handle);
    unseen cuArray3DCreate_v2(out: *mut Handle, descriptor: Handle);
    unseen cuMipmappedArrayCreate(out: *mut Handle, descriptor: Handle, levels: c_uint);
    unseen cuGraphAddMemAllocNode(out: *mut Handle, graph: Handle, before: Handle, count: usize, node: Handle);
    unseen cuIpcOpenMemHandle_v2(out: *mut Pointer, handle: IpcHandle, flags: c_uint);
    unseen cuImportExternalMemory(out: *mut Handle, descriptor: Handle);
    unseen cuMemPoolImportPointer(out: *mut Pointer, pool: Handle, data: Handle);
}

/// Ours for a symbol of the driver, the look-ups among them.
pub(super) fn replacement(name: &[u8]) -> Option<usize> {
    lookup::known(name).or_else(|| known(name)).map(|(_, ours)| ours)
}

/// The driver's function of that name and ours, as far as they were looked up.
pub(super) fn pair(name: &[u8]) -> Option<Pair> {
    let (function, ours) = lookup::known(name).or_else(|| known(name))?;
    Some(Pair { real: function.known_address()?, ours, interposed: function.is_interposed() })
}
