//! What the arguments of the driver's functions say: how much of which memory, or what goes.

use std::ffi::c_int;

use super::handles::{Kind, Made};
use super::place;
use super::pointers::CallerPtr;
use super::words::{Address, Class, Handle, LocationOfPool, Pointer, Release, Request, Size, Stream, Whose};

/// A stream of the calling thread's own where none is named.
pub(super) fn per_thread(stream: Handle) -> Stream {
    if stream.is_null() { Stream::PER_THREAD } else { Stream::of(stream) }
}

pub(super) fn ordered(out: CallerPtr<Pointer>, size: usize, stream: Stream) -> Request {
    let (address, size) = (Address::Out(out), Size::Plain(size));
    Request { class: Class::Pool, address, size, stream, whose: Whose::Streams }
}

pub(super) fn of_pool(out: CallerPtr<Pointer>, size: usize, stream: Stream) -> Request {
    Request { whose: Whose::Address, ..ordered(out, size, stream) }
}

pub(super) fn classic(class: Class, out: CallerPtr<Pointer>, size: Size) -> Request {
    Request { class, address: Address::Out(out), size, stream: Stream::NONE, whose: Whose::Streams }
}

pub(super) fn pinned(out: CallerPtr<u64>, size: usize) -> Request {
    classic(Class::Pinned, out, Size::Plain(size))
}

pub(super) fn registered(pointer: Handle, size: usize) -> Request {
    let (address, size) = (Address::Given(pointer.addr() as u64), Size::Plain(size));
    Request { class: Class::Registered, address, size, stream: Stream::NONE, whose: Whose::Streams }
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
pub(super) fn physical(out: CallerPtr<u64>, size: usize, properties: CallerPtr<LocationOfPool>) -> Made {
    let ordinal = properties.read().and_then(LocationOfPool::ordinal);
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

pub(super) fn external(out: CallerPtr<u64>, description: CallerPtr<External>) -> Made {
    let size = description.read().map_or(0, |description| description.size);
    let context = place::current_context();
    Made { kind: Kind::External, class: Class::Imported, out, size, whose: Whose::Streams, context }
}

/// The first field of `CUDA_GRAPH_INSTANTIATE_PARAMS`.
pub(super) fn flags_of(parameters: CallerPtr<u64>) -> u64 {
    parameters.read().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::MemoryKind;

    #[test]
    fn physical_memory_is_the_hosts_or_a_devices_as_it_is_described() {
        let class = |properties: &[c_int; 4]| {
            let made = physical(CallerPtr::to(&0), 1, CallerPtr::to(properties).part(0));
            (made.class.is_pinned(), made.class.memory())
        };
        let (device, host) = ([1, 1, 1, 0], [1, 1, 2, 0]);
        assert_eq!(class(&device), (false, MemoryKind::Virtual));
        assert_eq!(class(&host), (true, MemoryKind::Virtual));
    }
}
