//! Descriptors of copies of rows, as the driver takes them.

use std::ffi::c_uint;

use crate::record::uses::UseAccess;

/// One side of a copy: source or destination. Only the kind of memory and the addresses matter.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Side<const PLACE: usize, const REST: usize> {
    place: [usize; PLACE],
    memory: c_uint,
    host: u64,
    device: u64,
    array: u64,
    rest: [usize; REST],
}

/// A copy of rows in `DIMENSIONS` dimensions.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(in crate::hook::cuda) struct Region<const PLACE: usize, const REST: usize, const DIMENSIONS: usize> {
    from: Side<PLACE, REST>,
    to: Side<PLACE, REST>,
    size: [usize; DIMENSIONS],
}

/// `CUDA_MEMCPY2D`.
pub(in crate::hook::cuda) type Region2d = Region<2, 1, 2>;
/// `CUDA_MEMCPY3D` and `CUDA_MEMCPY3D_PEER`.
pub(in crate::hook::cuda) type Region3d = Region<4, 3, 3>;

impl<const PLACE: usize, const REST: usize> Side<PLACE, REST> {
    /// The address, if the memory is `CU_MEMORYTYPE_DEVICE` or `CU_MEMORYTYPE_UNIFIED`. Other kinds
    /// (host memory and arrays) have no known blocks.
    fn end(&self, access: UseAccess) -> Option<(u64, UseAccess)> {
        matches!(self.memory, 2 | 4).then_some((self.device, access))
    }
}

impl<const PLACE: usize, const REST: usize, const DIMENSIONS: usize> Region<PLACE, REST, DIMENSIONS> {
    /// The ends of a copy of rows. The copied data is not searched for addresses of blocks.
    pub(super) fn ends(&self) -> impl Iterator<Item = (u64, UseAccess)> {
        self.from.end(UseAccess::CopyFrom).into_iter().chain(self.to.end(UseAccess::WriteRows))
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
