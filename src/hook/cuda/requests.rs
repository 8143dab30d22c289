//! What the arguments of the driver's functions say: how much of which memory, or what goes.

#![expect(unsafe_code, reason = "descriptions lie behind the caller's pointers")]

use std::ffi::c_int;

use super::handles::{Kind, Made};
use super::place;
use super::words::{Address, Class, Handle, LocationOfPool, Pointer, Release, Request, Size, Stream, Whose};

/// A stream of the calling thread's own where none is named.
pub(super) fn per_thread(stream: Handle) -> Stream {
    if stream.is_null() { Stream::PER_THREAD } else { Stream::of(stream) }
}

pub(super) fn ordered(out: *mut Pointer, size: usize, stream: Stream) -> Request {
    let (address, size) = (Address::Out(out.cast()), Size::Plain(size));
    Request { class: Class::Pool, address, size, stream, whose: Whose::Streams }
}

pub(super) fn of_pool(out: *mut Pointer, size: usize, stream: Stream) -> Request {
    Request { whose: Whose::Address, ..ordered(out, size, stream) }
}

pub(super) fn classic(class: Class, out: *mut Pointer, size: Size) -> Request {
    Request { class, address: Address::Out(out.cast()), size, stream: Stream::NONE, whose: Whose::Streams }
}

pub(super) fn pinned(out: *mut Handle, size: usize) -> Request {
    classic(Class::Pinned, out.cast(), Size::Plain(size))
}

pub(super) fn registered(pointer: Handle, size: usize) -> Request {
    let address = Address::Given(pointer.addr() as u64);
    Request { address, ..classic(Class::Registered, std::ptr::null_mut(), Size::Plain(size)) }
}

pub(super) fn in_order(pointer: Pointer, stream: Stream) -> Release {
    Release { class: Class::Pool, address: pointer, stream }
}

/// `cuMemFree` takes memory of pools, too.
pub(super) fn at_once(pointer: Pointer) -> Release {
    Release { class: Class::Classic, address: pointer, stream: Stream::NONE }
}

pub(super) fn host(pointer: Handle) -> Release {
    Release { class: Class::Pinned, address: pointer.addr() as u64, stream: Stream::NONE }
}

/// `cuMemCreate`; the description begins as that of a pool.
pub(super) fn physical(out: *mut u64, size: usize, properties: *const LocationOfPool) -> Made {
    // SAFETY: null, or the caller's description.
    let ordinal = unsafe { properties.as_ref() }.and_then(|properties| properties.ordinal());
    let (class, whose) =
        ordinal.map_or((Class::VirtualHost, Whose::Streams), |ordinal| (Class::Virtual, Whose::Ordinal(ordinal)));
    Made { kind: Kind::Physical, class, out, size: size as u64, whose, context: 0 }
}

/// `CUDA_EXTERNAL_MEMORY_HANDLE_DESC`, as far as its size.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct External {
    kind: c_int,
    handle: [u64; 2],
    size: u64,
}

pub(super) fn external(out: *mut Handle, description: *const External) -> Made {
    // SAFETY: null, or the caller's description.
    let size = unsafe { description.as_ref() }.map_or(0, |description| description.size);
    let context = place::current_context();
    Made { kind: Kind::External, class: Class::Imported, out: out.cast(), size, whose: Whose::Streams, context }
}

/// The first field of `CUDA_GRAPH_INSTANTIATE_PARAMS`.
pub(super) fn flags_of(parameters: *const u64) -> u64 {
    // SAFETY: null, or the caller's parameters.
    unsafe { parameters.as_ref() }.copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::MemoryKind;

    #[test]
    fn physical_memory_is_the_hosts_or_a_devices_as_it_is_described() {
        let class = |properties: &[c_int; 4]| {
            let made = physical(std::ptr::null_mut(), 1, std::ptr::from_ref(properties).cast());
            (made.class.is_pinned(), made.class.memory())
        };
        let (device, host) = ([1, 1, 1, 0], [1, 1, 2, 0]);
        assert_eq!(class(&device), (false, MemoryKind::Virtual));
        assert_eq!(class(&host), (true, MemoryKind::Virtual));
    }
}
