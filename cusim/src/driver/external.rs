//! External memory: memory of other libraries, such as Vulkan.

use super::abi::Out;
use super::call::{allocating, freeing};
use super::thread::current;
use crate::code::{INVALID_VALUE, NOT_SUPPORTED, demand};
use crate::machine::Descriptor;

/// `CUDA_EXTERNAL_MEMORY_HANDLE_DESC`, up to its size.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ExternalDescription {
    kind: u32,
    file: i32,
    others: [i32; 3],
    size: u64,
}

/// `CUDA_EXTERNAL_MEMORY_BUFFER_DESC`, up to its flags.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct BufferDescription {
    offset: u64,
    size: u64,
    flags: u32,
}

/// `CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC`, up to its levels.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct LevelsDescription {
    offset: u64,
    descriptor: Descriptor,
    levels: u32,
}

const OPAQUE_FILE: u32 = 1;
/// The last of `CUexternalMemoryHandleType`.
const LAST_KIND: u32 = 9;

driver! {
    /// The file is neither read nor closed.
    fn cuImportExternalMemory(memory: Out<u64>, description: Out<ExternalDescription>) {
        allocating(memory, |machine, context| {
            let ExternalDescription { kind, file, size, .. } = description.get()?;
            match kind {
                OPAQUE_FILE if file >= 0 && size > 0 => machine.import_external(size, context),
                OPAQUE_FILE | 0 => Err(INVALID_VALUE),
                ..=LAST_KIND => Err(NOT_SUPPORTED),
                _ => Err(INVALID_VALUE),
            }
        })
    }

    fn cuExternalMemoryGetMappedBuffer(address: Out<u64>, memory: u64, part: Out<BufferDescription>) {
        let context = current()?;
        address.check()?;
        let BufferDescription { offset, size, flags } = part.get()?;
        demand(flags == 0)?;
        address.set_with(|machine| machine.map_buffer(memory, offset, size, context))
    }

    /// `cuMipmappedArrayDestroy` destroys the array.
    fn cuExternalMemoryGetMappedMipmappedArray(array: Out<u64>, memory: u64, part: Out<LevelsDescription>) {
        let context = current()?;
        let LevelsDescription { offset, descriptor, levels } = part.get()?;
        array.set_with(|machine| machine.map_levels(memory, offset, (descriptor, levels), context))
    }

    fn cuDestroyExternalMemory(memory: u64) => freeing(|machine, context| machine.destroy_external(memory, context));
}
