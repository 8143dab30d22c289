//! Addresses that go where later uses cannot be followed: textures, other processes. And tensor maps, which can.

use std::ffi::{c_int, c_uint};

use super::submit::{LOOKED, Looked, is_wanted};
use crate::hook::cuda::pointers::CallerPtr;
use crate::record::uses::TensorMapWords;
use crate::record::{guard, uses};

/// The block at an address may be used by anything from now on.
pub(in crate::hook::cuda) fn escaped(address: u64) -> Looked {
    if is_wanted() {
        uses::with(|table| table.escape(address));
    }
    LOOKED
}

/// The first fields of `CUDA_RESOURCE_DESC`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(in crate::hook::cuda) struct TextureResource {
    kind: c_uint,
    address: u64,
}

/// A texture or surface hides the address of linear memory.
pub(in crate::hook::cuda) fn texture(resource: CallerPtr<TextureResource>) -> Looked {
    const LINEAR: c_uint = 2;
    const PITCHED: c_uint = 3;
    match resource.read() {
        Some(resource) if matches!(resource.kind, LINEAR | PITCHED) => escaped(resource.address),
        _ => LOOKED,
    }
}

/// A tensor map was encoded for an address, or given another.
pub(in crate::hook::cuda) fn encoded(map: CallerPtr<u64>, address: u64) -> impl FnOnce(c_int) {
    move |result| {
        if let Some(map) = map.part::<TensorMapWords>(0).written(result).filter(|_| is_wanted()) {
            let _own = guard::own_work();
            uses::with(|table| table.learn_tensor_map(&map, address));
        }
    }
}
