//! The functions that stand in for the driver's: each calls the real one and tells what came of it.
#![expect(unsafe_code, reason = "functions of the driver's C interface")]
#![allow(non_snake_case, reason = "the names are the driver's")]

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use super::driver::{Function, NOT_FOUND};
use super::events::{self, Address, Class, Request, Size, Stream};
use super::{bulk, lookup};
use crate::snapshot::UnseenCalls;

type Pointer = u64;
type Handle = *mut c_void;

/// Defines a function for each of the driver's, and the look-ups among them.
///
/// `alloc` is told after the call, `free` before and after it: freed memory may have a new owner by the
/// time the call returns. `ends` may end a context and all that is in it. `unseen` makes memory that is
/// not recorded; only its calls are counted.
macro_rules! hooks {
    ($($kind:ident $name:ident($($arg:ident: $type:ty),*) $(=> $event:expr)?;)*) => {
        $(hooks!(@$kind $name($($arg: $type),*) $($event)?);)*

        /// Ours for a symbol of the driver.
        pub(super) fn by_name(name: &[u8]) -> Option<usize> {
            $(if name == stringify!($name).as_bytes() {
                return Some($name::hook as *const () as usize);
            })*
            None
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
            called.map(|(function, calls)| UnseenCalls { function: function.to_owned(), calls }).collect()
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
            let (class, address) = $event;
            let free = events::before_free(class, address);
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
            let before = bulk::before();
            // SAFETY: the arguments are the caller's.
            let result = unsafe { real($($arg),*) };
            bulk::after(result, before);
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
    Request { class: Class::Device, address, size, stream: Some(stream), of_pool: false }
}

fn of_pool(out: *mut Pointer, size: usize, stream: Stream) -> Request {
    Request { of_pool: true, ..ordered(out, size, stream) }
}

fn classic(class: Class, out: *mut Pointer, size: Size) -> Request {
    Request { class, address: Address::Out(out.cast()), size, stream: None, of_pool: false }
}

fn pinned(address: Address, size: usize) -> Request {
    Request { class: Class::Pinned, address, size: Size::Plain(size), stream: None, of_pool: false }
}

fn host(pointer: Handle) -> (Class, u64) {
    (Class::Pinned, pointer.addr() as u64)
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
    free cuMemFreeAsync(pointer: Pointer, stream: Handle) => (Class::Device, pointer);
    free cuMemFreeAsync_ptsz(pointer: Pointer, stream: Handle) => (Class::Device, pointer);

    alloc cuMemAlloc_v2(out: *mut Pointer, size: usize) =>
        classic(Class::Device, out, Size::Plain(size));
    alloc cuMemAllocPitch_v2(out: *mut Pointer, pitch: *mut usize, width: usize, height: usize, element: c_uint) =>
        classic(Class::Device, out, Size::Pitched(pitch, height));
    alloc cuMemAllocManaged(out: *mut Pointer, size: usize, flags: c_uint) =>
        classic(Class::Managed, out, Size::Plain(size));
    free cuMemFree_v2(pointer: Pointer) => (Class::Device, pointer);

    alloc cuMemAllocHost_v2(out: *mut Handle, size: usize) =>
        pinned(Address::Out(out.cast()), size);
    alloc cuMemHostAlloc(out: *mut Handle, size: usize, flags: c_uint) =>
        pinned(Address::Out(out.cast()), size);
    alloc cuMemHostRegister_v2(pointer: Handle, size: usize, flags: c_uint) =>
        pinned(Address::Given(pointer.addr() as u64), size);
    free cuMemFreeHost(pointer: Handle) => host(pointer);
    free cuMemHostUnregister(pointer: Handle) => host(pointer);

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
    lookup::by_name(name).or_else(|| by_name(name))
}
