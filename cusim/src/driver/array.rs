//! CUDA arrays and mipmapped arrays. Copies to and from them are not simulated.

use super::abi::Out;
use super::call::{allocating, freeing};
use super::process::with;
use crate::code::{Answer, demand};
use crate::machine::Descriptor;

/// `CUDA_ARRAY_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Plane {
    width: u64,
    height: u64,
    format: u32,
    channels: u32,
}

/// `CUDA_ARRAY_MEMORY_REQUIREMENTS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Requirements {
    size: u64,
    alignment: u64,
    reserved: [u32; 4],
}

driver! {
    fn cuArrayCreate_v2(array: Out<u64>, plane: Out<Plane>) {
        let Plane { width, height, format, channels } = plane.get()?;
        create(array, Descriptor { width, height, depth: 0, format, channels, flags: 0, padding: 0 }, 0)
    }

    fn cuArray3DCreate_v2(array: Out<u64>, descriptor: Out<Descriptor>) => create(array, descriptor.get()?, 0);
    fn cuMipmappedArrayCreate(array: Out<u64>, descriptor: Out<Descriptor>, levels: u32) =>
        create(array, descriptor.get()?, levels.max(1));
    fn cuMipmappedArrayGetLevel(level_array: Out<u64>, array: u64, level: u32) =>
        level_array.set_with(|machine| machine.level_of_array(array, level));
    fn cuArrayDestroy(array: u64) => freeing(|machine, context| machine.destroy_array(array, false, context));
    fn cuMipmappedArrayDestroy(array: u64) => freeing(|machine, context| machine.destroy_array(array, true, context));

    fn cuArrayGetDescriptor_v2(plane: Out<Plane>, array: u64) {
        let Descriptor { width, height, format, channels, .. } = with(|machine| machine.array(array, false))?.descriptor;
        plane.set(Plane { width, height, format, channels })
    }

    fn cuArray3DGetDescriptor_v2(descriptor: Out<Descriptor>, array: u64) =>
        descriptor.set(with(|machine| machine.array(array, false))?.descriptor);
    fn cuArrayGetMemoryRequirements(requirements: Out<Requirements>, array: u64, device: i32) =>
        require(requirements, array, device, false);
    fn cuMipmappedArrayGetMemoryRequirements(requirements: Out<Requirements>, array: u64, device: i32) =>
        require(requirements, array, device, true);
}

fn create(array: Out<u64>, descriptor: Descriptor, levels: u32) -> Answer {
    allocating(array, |machine, context| machine.create_array(descriptor, levels, context, false))
}

/// Memory is mapped to arrays in pages of this size (assumed).
const PAGE: u64 = 64 << 10;

/// According to `cuda.h`, only arrays with deferred mapping have requirements.
fn require(requirements: Out<Requirements>, array: u64, device: i32, has_levels: bool) -> Answer {
    let array = with(|machine| {
        machine.device(device)?;
        machine.array(array, has_levels)
    })?;
    demand(array.descriptor.is_deferred())?;
    requirements.set(Requirements { size: array.size.next_multiple_of(PAGE), alignment: PAGE, reserved: [0; 4] })
}
