//! Array descriptors and formats, and the bytes that they take, tightly packed.

use crate::code::{Answer, INVALID_VALUE, NOT_SUPPORTED, demand};

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptor {
    pub(crate) width: u64,
    /// 0 for one row.
    pub(crate) height: u64,
    /// 0 for one plane. For layered arrays, the number of layers.
    pub(crate) depth: u64,
    pub(crate) format: u32,
    pub(crate) channels: u32,
    pub(crate) flags: u32,
    pub(crate) padding: u32,
}

const LAYERED: u32 = 0x01;
const CUBEMAP: u32 = 0x04;
const SPARSE: u32 = 0x40;
const DEFERRED_MAPPING: u32 = 0x80;

impl Descriptor {
    /// Whether memory is mapped to the array later.
    pub(crate) fn has_no_memory(&self) -> bool {
        self.flags & (SPARSE | DEFERRED_MAPPING) != 0
    }

    pub(super) fn is_sparse(&self) -> bool {
        self.flags & SPARSE != 0
    }

    /// Layers or faces; 1 for a volume.
    pub(super) fn layers(&self) -> u64 {
        if self.flags & (LAYERED | CUBEMAP) != 0 { self.depth.max(1) } else { 1 }
    }

    /// Width, height and depth of a layer, each at least 1.
    pub(super) fn extents(&self) -> [u64; 3] {
        [self.width.max(1), self.height.max(1), if self.layers() > 1 { 1 } else { self.depth.max(1) }]
    }

    /// Bytes of an element.
    pub(super) fn element(&self) -> Answer<u64> {
        bytes_of(self.format, self.channels)
    }

    pub(crate) fn is_deferred(&self) -> bool {
        self.flags & DEFERRED_MAPPING != 0
    }

    /// A mipmap level: each extent halved `level` times, but not the number of layers.
    pub(crate) fn level(self, level: u32) -> Self {
        let halve = |extent: u64| if extent == 0 { 0 } else { extent.checked_shr(level).unwrap_or(0).max(1) };
        let is_layered = self.flags & (LAYERED | CUBEMAP) != 0;
        let depth = if is_layered { self.depth } else { halve(self.depth) };
        Self { width: halve(self.width), height: halve(self.height), depth, ..self }
    }

    pub(crate) fn most_levels(&self) -> u32 {
        let is_layered = self.flags & (LAYERED | CUBEMAP) != 0;
        let depth = if is_layered { 0 } else { self.depth };
        self.width.max(self.height).max(depth).max(1).ilog2() + 1
    }

    pub(crate) fn bytes(&self) -> Answer<u64> {
        let is_block = is_of_blocks(self.format);
        demand(self.width > 0 && (matches!(self.channels, 1 | 2 | 4) || is_block && self.channels == 3))?;
        let (rows, planes) = (self.height.max(1), self.depth.max(1));
        let side = if is_block { 4 } else { 1 };
        let product = [self.width.div_ceil(side), rows.div_ceil(side), planes, bytes_of(self.format, self.channels)?];
        product.into_iter().try_fold(1, u64::checked_mul).ok_or(INVALID_VALUE)
    }
}

/// Whether elements are compressed in blocks of 4 by 4.
fn is_of_blocks(format: u32) -> bool {
    (0x91..=0x9e).contains(&format)
}

/// Bytes of an element, or of a compressed block. Video formats are not simulated.
fn bytes_of(format: u32, channels: u32) -> Answer<u64> {
    let channels = u64::from(channels);
    let bytes = match format {
        0x01 | 0x08 => channels,
        0x02 | 0x09 | 0x10 => 2 * channels,
        0x03 | 0x0a | 0x20 => 4 * channels,
        0x50 => 4,
        // BC1 and BC4 take half a byte per element, the others one byte.
        0x91 | 0x92 | 0x97 | 0x98 => 8,
        0x93..=0x96 | 0x99..=0x9e => 16,
        // Normalized formats with 1, 2 or 4 channels: unsigned of 8 and 16 bits, then signed.
        0xc0..=0xcb => (1 + u64::from((format - 0xc0) / 3 % 2)) << ((format - 0xc0) % 3),
        0x9f..=0xb5 => return Err(NOT_SUPPORTED),
        _ => return Err(INVALID_VALUE),
    };
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor([width, height, depth]: [u64; 3], format: u32, channels: u32) -> Descriptor {
        Descriptor { width, height, depth, format, channels, flags: 0, padding: 0 }
    }

    #[test]
    fn elements_are_packed_tightly() {
        for (extents, format, channels, bytes) in [
            ([10, 0, 0], 0x20, 1, 40),
            ([10, 3, 0], 0x10, 4, 240),
            ([10, 3, 2], 0x08, 2, 120),
            ([5, 5, 0], 0x91, 4, 32),
            ([5, 5, 0], 0x9b, 3, 64),
            ([3, 0, 0], 0xc2, 4, 12),
            ([3, 0, 0], 0xc4, 2, 12),
            ([3, 0, 0], 0xcb, 4, 24),
        ] {
            assert_eq!(descriptor(extents, format, channels).bytes(), Ok(bytes), "{format:#x}");
        }
        assert_eq!(descriptor([u64::MAX, 2, 0], 0x01, 1).bytes(), Err(INVALID_VALUE));
        assert_eq!(descriptor([1, 1, 0], 0x01, 3).bytes(), Err(INVALID_VALUE));
        assert_eq!(descriptor([1, 1, 0], 0xb0, 1).bytes(), Err(NOT_SUPPORTED));
    }

    #[test]
    fn levels_halve_extents_and_keep_layers() {
        let extents = |descriptor: Descriptor| [descriptor.width, descriptor.height, descriptor.depth];
        let plain = descriptor([20, 7, 6], 0x20, 1);
        assert_eq!((extents(plain.level(2)), plain.most_levels()), ([5, 1, 1], 5));
        let layered = Descriptor { flags: LAYERED, ..descriptor([4, 0, 100], 0x20, 1) };
        assert_eq!((extents(layered.level(1)), layered.most_levels()), ([2, 0, 100], 3));
    }
}
