//! Addresses whose later uses cannot be followed, because they are in textures or in other processes. Also
//! addresses in tensor maps, whose uses can be followed.

use std::ffi::{c_int, c_uint};

use super::submit::{LOOKED, Looked, is_wanted, looked};
use crate::hook::cuda::pointers::CallerPtr;
use crate::record::uses::TensorMapWords;
use crate::record::{guard, uses};

/// From now on, any operation may use the block at this address.
pub(in crate::hook::cuda) fn escaped(address: u64) -> Looked {
    looked(|| _ = uses::with(|table| table.escape(address)))
}

/// The first fields of `CUDA_RESOURCE_DESC`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(in crate::hook::cuda) struct TextureResource {
    kind: c_uint,
    address: u64,
}

/// A texture or surface was created for linear memory. It contains the address in an encoded form, so its later
/// uses are not seen.
pub(in crate::hook::cuda) fn texture(resource: CallerPtr<TextureResource>) -> Looked {
    const LINEAR: c_uint = 2;
    const PITCHED: c_uint = 3;
    match resource.read() {
        Some(resource) if matches!(resource.kind, LINEAR | PITCHED) => escaped(resource.address),
        _ => LOOKED,
    }
}

/// A tensor map was encoded for an address, or given another address.
pub(in crate::hook::cuda) fn encoded(map: CallerPtr<u64>, address: u64) -> impl FnOnce(c_int) {
    move |result| {
        if let Some(map) = map.part::<TensorMapWords>(0).written(result).filter(|_| is_wanted()) {
            let _own = guard::own_work();
            uses::with(|table| table.learn_tensor_map(&map, address));
        }
    }
}
