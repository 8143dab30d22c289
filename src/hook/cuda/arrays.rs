//! Arrays: their size follows from what was asked for. (The driver's padding is its own affair.)

use std::ffi::{c_int, c_uint};

use super::handles::{Kind, Made};
use super::place;
use super::pointers::CallerPtr;
use super::words::{Class, Whose};

/// `CUDA_ARRAY_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Flat {
    width: usize,
    height: usize,
    format: c_int,
    channels: c_uint,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Deep {
    width: usize,
    height: usize,
    depth: usize,
    format: c_int,
    channels: c_uint,
    flags: c_uint,
}

/// The memory of these comes later, by mapping: `CUDA_ARRAY3D_SPARSE`, `CUDA_ARRAY3D_DEFERRED_MAPPING`.
const WITHOUT_MEMORY: c_uint = 0x40 | 0x80;
/// The depth of these is a number of layers, or of faces: `CUDA_ARRAY3D_LAYERED`, `CUDA_ARRAY3D_CUBEMAP`.
const LAYERED: c_uint = 0x01 | 0x04;

pub(super) fn flat(out: CallerPtr<u64>, description: CallerPtr<Flat>) -> Made {
    let size = description.read().map_or(0, |Flat { width, height, format, channels }| {
        bytes(Deep { width, height, depth: 0, format, channels, flags: 0 }, 1)
    });
    array(out, size)
}

pub(super) fn deep(out: CallerPtr<u64>, description: CallerPtr<Deep>) -> Made {
    mipmapped(out, description, 1)
}

pub(super) fn mipmapped(out: CallerPtr<u64>, description: CallerPtr<Deep>, levels: c_uint) -> Made {
    array(out, description.read().map_or(0, |deep| bytes(deep, levels)))
}

fn array(out: CallerPtr<u64>, size: u64) -> Made {
    let context = place::current_context();
    Made { kind: Kind::Array, class: Class::Array, out, size, whose: Whose::Streams, context }
}

/// All levels, tightly packed; 0 if it has no memory, or its format is not known.
fn bytes(description: Deep, levels: c_uint) -> u64 {
    let Deep { width, height, depth, format, channels, flags } = description;
    if flags & WITHOUT_MEMORY != 0 {
        return 0;
    }
    let element = bytes_of(format).saturating_mul(u64::from(channels));
    let at = |extent: usize, level: c_uint| (extent as u64).checked_shr(level).unwrap_or(0).max(1);
    let layers = if flags & LAYERED == 0 { None } else { Some(depth.max(1) as u64) };
    let level = |level: c_uint| {
        let depth = layers.unwrap_or(at(depth, level));
        [at(width, level), at(height, level), depth].into_iter().fold(element, u64::saturating_mul)
    };
    // The driver makes no more levels than there are until all extents are 1.
    let longest = [width, height, if layers.is_some() { 1 } else { depth }].into_iter().fold(1, usize::max);
    (0..levels.clamp(1, 1 + longest.ilog2())).map(level).fold(0, u64::saturating_add)
}

/// Bytes of one channel.
fn bytes_of(format: c_int) -> u64 {
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
        let deep = Deep { width: 100, height: 50, depth: 8, format: 0x20, channels: 4, flags: 0 };
        assert_eq!(bytes(deep, 1), 100 * 50 * 8 * 16);
        assert_eq!(bytes(deep, 2), 16 * (100 * 50 * 8 + 50 * 25 * 4));
        for flags in [0x01, 0x04] {
            assert_eq!(bytes(Deep { flags, ..deep }, 2), 16 * 8 * (100 * 50 + 50 * 25));
            assert_eq!(bytes(Deep { width: 2, height: 2, flags, ..deep }, 99), 16 * 8 * (4 + 1));
        }
        assert_eq!(bytes(Deep { height: 0, depth: 0, ..deep }, 99), 16 * (100 + 50 + 25 + 12 + 6 + 3 + 1));
        assert_eq!(bytes(Deep { width: 1, height: 1, depth: 4, ..deep }, 99), 16 * (4 + 2 + 1));
    }

    #[test]
    fn arrays_whose_pages_are_mapped_later_have_no_bytes() {
        let deep = Deep { width: 100, height: 50, depth: 8, format: 0x20, channels: 4, flags: 0 };
        assert_eq!([0x40, 0x80, 0xc0].map(|flags| bytes(Deep { flags, ..deep }, 1)), [0; 3]);
    }

    #[test]
    fn each_format_has_its_bytes() {
        let formats = [0x01, 0x02, 0x03, 0x08, 0x09, 0x0a, 0x10, 0x20, 0xb0];
        assert_eq!(formats.map(bytes_of), [1, 2, 4, 1, 2, 4, 2, 4, 0]);
    }
}
