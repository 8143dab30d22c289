//! Converts the arguments of driver calls into requests: the size and kind of the memory, or the block that is freed.

use std::ffi::c_int;

use memtrace_core::snapshot::Device;

use super::device;
use super::handles::{HandleKind, NewHandle};
use super::pointers::CallerPtr;
use super::types::{AddressSource, Class, DeviceHint, Handle, PoolLocation, Request, Size, Stream};

pub(super) fn ordered(out: CallerPtr<u64>, size: usize, stream: Stream) -> Request {
    Request { stream, ..classic(Class::Pool, out, Size::Plain(size)) }
}

pub(super) fn of_pool(out: CallerPtr<u64>, size: usize, pool: Handle, stream: Stream) -> Request {
    Request { hint: DeviceHint::Pool(pool.addr() as u64), ..ordered(out, size, stream) }
}

pub(super) fn classic(class: Class, out: CallerPtr<u64>, size: Size) -> Request {
    Request { class, address: AddressSource::Out(out), size, stream: Stream::NONE, hint: DeviceHint::Stream }
}

pub(super) fn pinned(out: CallerPtr<u64>, size: usize) -> Request {
    classic(Class::Pinned, out, Size::Plain(size))
}

pub(super) fn registered(pointer: Handle, size: usize) -> Request {
    let (address, size) = (AddressSource::Given(pointer.addr() as u64), Size::Plain(size));
    Request { class: Class::Registered, address, size, stream: Stream::NONE, hint: DeviceHint::Stream }
}

/// Converts the arguments of `cuMemCreate`. They include a `CUmemAllocationProp`, which begins like `CUmemPoolProps`.
pub(super) fn physical(out: CallerPtr<u64>, size: usize, properties: CallerPtr<PoolLocation>) -> NewHandle {
    let (class, hint) = match properties.read().and_then(PoolLocation::device) {
        Some(Device::Cuda(ordinal)) => (Class::Virtual, DeviceHint::Ordinal(ordinal)),
        _ => (Class::VirtualHost, DeviceHint::Stream),
    };
    NewHandle { kind: HandleKind::Physical, class, out, size: size as u64, hint, context: 0 }
}

/// The first fields of `CUDA_EXTERNAL_MEMORY_HANDLE_DESC`, up to `size`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ExternalMemoryDesc {
    kind: c_int,
    handle: [u64; 2],
    size: u64,
}

pub(super) fn external(out: CallerPtr<u64>, description: CallerPtr<ExternalMemoryDesc>) -> NewHandle {
    let size = description.read().map_or(0, |description| description.size);
    let context = device::current_context();
    NewHandle { kind: HandleKind::External, class: Class::Imported, out, size, hint: DeviceHint::Stream, context }
}

#[cfg(test)]
mod tests {
    use memtrace_core::snapshot::MemoryKind;

    use super::*;

    #[test]
    fn physical_memory_is_the_hosts_or_a_devices_as_it_is_described() {
        let class = |properties: &[c_int; 4]| {
            let handle = physical(CallerPtr::to(&0), 1, CallerPtr::to(properties).part(0));
            (handle.class.is_pinned(), handle.class.memory())
        };
        let (device, host) = ([1, 1, 1, 0], [1, 1, 2, 0]);
        assert_eq!(class(&device), (false, MemoryKind::Virtual));
        assert_eq!(class(&host), (true, MemoryKind::Virtual));
    }
}
