//! Descriptors of tensors in memory, by which kernels copy parts of them. They are checked by what CUDA's documentation
//! demands, and are never read: no kernel runs.

use super::abi::Out;
use super::process::with;
use crate::code::{Answer, INVALID_VALUE, NOT_SUPPORTED};

/// `CUtensorMap`: opaque to programs.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Map {
    address: u64,
    /// What an address has to be a multiple of. 0 in what no call has written.
    alignment: u64,
    form: [u64; 14],
}

/// Bytes of an element, by the number of its type. The last three are packed, and what goes by bytes is not checked for them.
const ELEMENTS: [u64; 16] = [1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4, 0, 0, 0];
/// Numbers of types that have numbers which are none.
const FLOATS: std::ops::RangeInclusive<u32> = 6..=12;
/// The most bytes of a row in shared memory, by the number of the swizzle.
const ROWS: [u64; 7] = [u64::MAX, 32, 64, 128, 128, 128, 128];
/// Numbers of layouts and swizzles.
const PLAIN: u32 = 0;
const INTERLEAVED_32: u32 = 2;
const SWIZZLED_32: u32 = 1;

/// What all functions take.
struct Tensor {
    kind: u32,
    rank: u32,
    address: u64,
    sizes: Out<u64>,
    strides: Out<u64>,
    steps: Out<u32>,
    layout: u32,
    swizzle: u32,
    promotion: u32,
    fill: u32,
}

driver! {
    fn cuTensorMapEncodeTiled(
        map: Out<Map>, kind: u32, rank: u32, address: u64, sizes: Out<u64>, strides: Out<u64>, tile: Out<u32>,
        steps: Out<u32>, layout: u32, swizzle: u32, promotion: u32, fill: u32,
    ) {
        let tensor = Tensor { kind, rank, address, sizes, strides, steps, layout, swizzle, promotion, fill };
        tensor.check(if layout == PLAIN { 1 } else { 3 })?;
        all(tile, rank, |side| (1..=256).contains(&side))?;
        let row = tensor.row(tile.get()?)?;
        demand(layout != PLAIN || row.is_multiple_of(16))?;
        tensor.write(map)
    }

    fn cuTensorMapEncodeIm2col(
        map: Out<Map>, kind: u32, rank: u32, address: u64, sizes: Out<u64>, strides: Out<u64>, lower: Out<i32>,
        upper: Out<i32>, channels: u32, pixels: u32, steps: Out<u32>, layout: u32, swizzle: u32, promotion: u32, fill: u32,
    ) {
        let tensor = Tensor { kind, rank, address, sizes, strides, steps, layout, swizzle, promotion, fill };
        tensor.check(3)?;
        let furthest = [1 << 15, 1 << 7, 1 << 4][rank as usize - 3];
        for corner in [lower, upper] {
            all(corner, rank - 2, |at| (-furthest..furthest).contains(&at))?;
        }
        tensor.columns(map, channels, pixels)
    }

    fn cuTensorMapEncodeIm2colWide(
        map: Out<Map>, kind: u32, rank: u32, address: u64, sizes: Out<u64>, strides: Out<u64>, lower: i32, upper: i32,
        channels: u32, pixels: u32, steps: Out<u32>, layout: u32, mode: u32, swizzle: u32, promotion: u32, fill: u32,
    ) {
        let tensor = Tensor { kind, rank, address, sizes, strides, steps, layout, swizzle, promotion, fill };
        tensor.check(3)?;
        demand(mode <= 1 && [lower, upper].iter().all(|at| i16::try_from(*at).is_ok()))?;
        tensor.columns(map, channels, pixels)
    }

    fn cuTensorMapReplaceAddress(map: Out<Map>, address: u64) {
        check_map(map)?;
        let known = map.get()?;
        demand(known.alignment > 0 && address.is_multiple_of(known.alignment))?;
        map.set(Map { address, ..known })
    }
}

impl Tensor {
    fn check(&self, least_rank: u32) -> Answer {
        with(|machine| if machine.config.capability.0 < 9 { Err(NOT_SUPPORTED) } else { Ok(()) })?;
        demand((least_rank..=5).contains(&self.rank))?;
        self.check_choices()?;
        demand(self.address.is_multiple_of(self.alignment()))?;
        all(self.sizes, self.rank, |size| (1..=1 << 32).contains(&size))?;
        all(self.strides, self.rank - 1, |stride| stride < 1 << 40 && stride.is_multiple_of(self.alignment()))?;
        all(self.steps, self.rank, |step| (1..=8).contains(&step))
    }

    fn check_choices(&self) -> Answer {
        let is_known = (self.kind as usize) < ELEMENTS.len() && (self.swizzle as usize) < ROWS.len();
        demand(is_known && self.layout <= INTERLEAVED_32 && self.promotion <= 3 && self.fill <= 1)?;
        demand(self.layout != INTERLEAVED_32 || self.swizzle == SWIZZLED_32)?;
        demand(self.fill == 0 || FLOATS.contains(&self.kind))
    }

    /// Of the address and of the strides.
    fn alignment(&self) -> u64 {
        if self.layout == INTERLEAVED_32 || self.kind > 13 { 32 } else { 16 }
    }

    /// Bytes of so many elements, which must not be more than the swizzle takes.
    fn row(&self, elements: u32) -> Answer<u64> {
        let bytes = u64::from(elements) * ELEMENTS[self.kind as usize];
        demand(self.layout != PLAIN || bytes <= ROWS[self.swizzle as usize])?;
        Ok(bytes)
    }

    fn columns(&self, map: Out<Map>, channels: u32, pixels: u32) -> Answer {
        demand((1..=256).contains(&channels) && (1..=1024).contains(&pixels))?;
        self.row(channels)?;
        self.write(map)
    }

    fn write(&self, map: Out<Map>) -> Answer {
        check_map(map)?;
        let mut form = [0; 14];
        form[0] = u64::from(self.kind) | u64::from(self.rank) << 8 | u64::from(self.layout) << 16;
        for (index, size) in form[1..=self.rank as usize].iter_mut().enumerate() {
            *size = self.sizes.at(index).get()?;
        }
        map.set(Map { address: self.address, alignment: self.alignment(), form })
    }
}

/// Checked before it is read or written.
fn check_map(map: Out<Map>) -> Answer {
    map.check()?;
    demand(map.address().is_multiple_of(64))
}

fn demand(is_met: bool) -> Answer {
    if is_met { Ok(()) } else { Err(INVALID_VALUE) }
}

fn all<T: Copy>(values: Out<T>, count: u32, is_allowed: impl Fn(T) -> bool) -> Answer {
    for index in 0..count as usize {
        values.check()?;
        demand(is_allowed(values.at(index).get()?))?;
    }
    Ok(())
}
