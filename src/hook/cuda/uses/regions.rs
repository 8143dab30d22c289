//! Descriptors of copies of rows, as the driver takes them.

use std::ffi::c_uint;

use crate::record::uses::UseAccess;

/// One side of `CUDA_MEMCPY2D`. Only its addresses are used.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Side2d {
    x: usize,
    y: usize,
    memory: c_uint,
    host: u64,
    device: u64,
    array: u64,
    pitch: usize,
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(in crate::hook::cuda) struct Region2d {
    from: Side2d,
    to: Side2d,
    width: usize,
    height: usize,
}

/// One side of `CUDA_MEMCPY3D` and `CUDA_MEMCPY3D_PEER`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Side3d {
    position: [usize; 4],
    memory: c_uint,
    host: u64,
    device: u64,
    array: u64,
    context: u64,
    pitch: usize,
    height: usize,
}

/// `CUDA_MEMCPY3D` and `CUDA_MEMCPY3D_PEER`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(in crate::hook::cuda) struct Region3d {
    from: Side3d,
    to: Side3d,
    size: [usize; 3],
}

/// `CU_MEMORYTYPE_DEVICE` and `CU_MEMORYTYPE_UNIFIED`. Host memory and arrays have no known blocks.
fn is_linear(memory: c_uint) -> bool {
    memory == 2 || memory == 4
}

/// The ends of a copy of rows. The copied data is not searched for addresses of blocks.
fn ends(from: (c_uint, u64), to: (c_uint, u64)) -> impl Iterator<Item = (u64, UseAccess)> {
    let from = is_linear(from.0).then_some((from.1, UseAccess::CopyFrom));
    from.into_iter().chain(is_linear(to.0).then_some((to.1, UseAccess::WriteRows)))
}

impl Region2d {
    pub(super) fn ends(&self) -> impl Iterator<Item = (u64, UseAccess)> {
        ends((self.from.memory, self.from.device), (self.to.memory, self.to.device))
    }
}

impl Region3d {
    pub(super) fn ends(&self) -> impl Iterator<Item = (u64, UseAccess)> {
        ends((self.from.memory, self.from.device), (self.to.memory, self.to.device))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_descriptions_are_as_long_as_the_drivers() {
        assert_eq!((size_of::<Region2d>(), size_of::<Region3d>()), (128, 200));
        assert_eq!(std::mem::offset_of!(Region3d, size), 176);
    }
}
