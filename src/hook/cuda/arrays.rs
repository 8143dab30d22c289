//! CUDA arrays. Their size is computed from the array descriptor. The driver's padding is not known and not counted.

use std::ffi::{c_int, c_uint};

use super::device;
use super::handles::{HandleKind, NewHandle};
use super::pointers::CallerPtr;
use super::types::{Class, DeviceHint};

/// `CUDA_ARRAY_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Array2d {
    width: usize,
    height: usize,
    format: c_int,
    channels: c_uint,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Array3d {
    width: usize,
    height: usize,
    depth: usize,
    format: c_int,
    channels: c_uint,
    flags: c_uint,
}

/// `CUDA_ARRAY3D_SPARSE`, `CUDA_ARRAY3D_DEFERRED_MAPPING`: memory is mapped to these arrays later.
const WITHOUT_MEMORY: c_uint = 0x40 | DEFERRED_MAPPING;
const DEFERRED_MAPPING: c_uint = 0x80;
/// `CUDA_ARRAY3D_LAYERED`, `CUDA_ARRAY3D_CUBEMAP`: the depth of these arrays is the number of layers or faces.
const LAYERED: c_uint = 0x01 | 0x04;

impl Array3d {
    /// Whether memory is mapped to the array as a whole. `None` for an array that has memory from the beginning.
    pub(super) fn is_mapped_as_a_whole(self) -> Option<bool> {
        (self.flags & WITHOUT_MEMORY != 0).then_some(self.flags & DEFERRED_MAPPING != 0)
    }
}

pub(super) fn array_2d(out: CallerPtr<u64>, description: CallerPtr<Array2d>) -> NewHandle {
    let size = description.read().map_or(0, |Array2d { width, height, format, channels }| {
        bytes(Array3d { width, height, depth: 0, format, channels, flags: 0 }, 1)
    });
    array(out, size)
}

pub(super) fn mipmapped(out: CallerPtr<u64>, description: CallerPtr<Array3d>, levels: c_uint) -> NewHandle {
    array(out, description.read().map_or(0, |description| bytes(description, levels)))
}

fn array(out: CallerPtr<u64>, size: u64) -> NewHandle {
    let context = device::current_context();
    NewHandle { kind: HandleKind::Array, class: Class::Array, out, size, hint: DeviceHint::Stream, context }
}

/// Bytes of all levels, tightly packed; 0 if the array has no memory or an unknown format.
fn bytes(description: Array3d, levels: c_uint) -> u64 {
    let Array3d { width, height, depth, format, channels, flags } = description;
    if flags & WITHOUT_MEMORY != 0 {
        return 0;
    }
    let element = bytes_of_channel(format).saturating_mul(u64::from(channels));
    let at = |extent: usize, level: c_uint| (extent as u64).checked_shr(level).unwrap_or(0).max(1);
    let layers = if flags & LAYERED == 0 { None } else { Some(depth.max(1) as u64) };
    let level = |level: c_uint| {
        let depth = layers.unwrap_or(at(depth, level));
        [at(width, level), at(height, level), depth].into_iter().fold(element, u64::saturating_mul)
    };
    // The driver creates no more levels once all extents are 1.
    let longest = [width, height, if layers.is_some() { 1 } else { depth }].into_iter().fold(1, usize::max);
    (0..levels.clamp(1, 1 + longest.ilog2())).map(level).fold(0, u64::saturating_add)
}

fn bytes_of_channel(format: c_int) -> u64 {
    match format {
        0x01 | 0x08 => 1,
        0x02 | 0x09 | 0x10 => 2,
        0x03 | 0x0a | 0x20 => 4,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_halve_and_layers_do_not() {
        let deep = Array3d { width: 100, height: 50, depth: 8, format: 0x20, channels: 4, flags: 0 };
        assert_eq!(bytes(deep, 1), 100 * 50 * 8 * 16);
        assert_eq!(bytes(deep, 2), 16 * (100 * 50 * 8 + 50 * 25 * 4));
        for flags in [0x01, 0x04] {
            assert_eq!(bytes(Array3d { flags, ..deep }, 2), 16 * 8 * (100 * 50 + 50 * 25));
            assert_eq!(bytes(Array3d { width: 2, height: 2, flags, ..deep }, 99), 16 * 8 * (4 + 1));
        }
        assert_eq!(bytes(Array3d { height: 0, depth: 0, ..deep }, 99), 16 * (100 + 50 + 25 + 12 + 6 + 3 + 1));
        assert_eq!(bytes(Array3d { width: 1, height: 1, depth: 4, ..deep }, 99), 16 * (4 + 2 + 1));
    }

    #[test]
    fn arrays_whose_pages_are_mapped_later_have_no_bytes() {
        let deep = Array3d { width: 100, height: 50, depth: 8, format: 0x20, channels: 4, flags: 0 };
        assert_eq!([0x40, 0x80, 0xc0].map(|flags| bytes(Array3d { flags, ..deep }, 1)), [0; 3]);
    }

    #[test]
    fn each_format_has_its_bytes() {
        let formats = [0x01, 0x02, 0x03, 0x08, 0x09, 0x0a, 0x10, 0x20, 0xb0];
        assert_eq!(formats.map(bytes_of_channel), [1, 2, 4, 1, 2, 4, 2, 4, 0]);
    }
}
