//! Tensor maps: descriptors that kernels use to copy parts of tensors.
//!
//! Arguments are checked as CUDA's documentation demands. No kernel runs, so the descriptors are never read.

use super::abi::Out;
use super::process::with;
use crate::code::{Answer, NOT_SUPPORTED, demand, demand_or};

/// `CUtensorMap`, which is opaque to programs.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct TensorMap {
    /// The address, inverted. In a GPU's tensor map, too, programs cannot read the address.
    hidden: u64,
    /// The required alignment of the address; 0 in memory that no call has written.
    alignment: u64,
    form: [u64; 14],
}

/// Bytes of an element, by data type. The last three types are packed; checks that depend on bytes are skipped for
/// them.
const ELEMENTS: [u64; 16] = [1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4, 0, 0, 0];
/// Floating-point data types.
const FLOATS: std::ops::RangeInclusive<u32> = 6..=12;
/// The maximal bytes of a row in shared memory, by swizzle mode.
const ROWS: [u64; 7] = [u64::MAX, 32, 64, 128, 128, 128, 128];
/// Layouts and swizzle modes.
const PLAIN: u32 = 0;
const INTERLEAVED_32: u32 = 2;
const SWIZZLED_32: u32 = 1;

/// Arguments that all functions have in common.
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
        map: Out<TensorMap>, kind: u32, rank: u32, address: u64, sizes: Out<u64>, strides: Out<u64>, tile: Out<u32>,
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
        map: Out<TensorMap>, kind: u32, rank: u32, address: u64, sizes: Out<u64>, strides: Out<u64>, lower: Out<i32>,
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
        map: Out<TensorMap>, kind: u32, rank: u32, address: u64, sizes: Out<u64>, strides: Out<u64>, lower: i32, upper: i32,
        channels: u32, pixels: u32, steps: Out<u32>, layout: u32, mode: u32, swizzle: u32, promotion: u32, fill: u32,
    ) {
        let tensor = Tensor { kind, rank, address, sizes, strides, steps, layout, swizzle, promotion, fill };
        tensor.check(3)?;
        demand(mode <= 1 && [lower, upper].iter().all(|at| i16::try_from(*at).is_ok()))?;
        tensor.columns(map, channels, pixels)
    }

    fn cuTensorMapReplaceAddress(map: Out<TensorMap>, address: u64) {
        check_map(map)?;
        let known = map.get()?;
        demand(known.alignment > 0 && address.is_multiple_of(known.alignment))?;
        map.set(TensorMap { hidden: !address, ..known })
    }
}

impl Tensor {
    fn check(&self, least_rank: u32) -> Answer {
        with(|machine| demand_or(machine.config.capability.0 >= 9, NOT_SUPPORTED))?;
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

    /// The required alignment of the address and the strides.
    fn alignment(&self) -> u64 {
        if self.layout == INTERLEAVED_32 || self.kind > 13 { 32 } else { 16 }
    }

    /// Bytes of a row, which the swizzle mode limits.
    fn row(&self, elements: u32) -> Answer<u64> {
        let bytes = u64::from(elements) * ELEMENTS[self.kind as usize];
        demand(self.layout != PLAIN || bytes <= ROWS[self.swizzle as usize])?;
        Ok(bytes)
    }

    fn columns(&self, map: Out<TensorMap>, channels: u32, pixels: u32) -> Answer {
        demand((1..=256).contains(&channels) && (1..=1024).contains(&pixels))?;
        self.row(channels)?;
        self.write(map)
    }

    fn write(&self, map: Out<TensorMap>) -> Answer {
        check_map(map)?;
        let mut form = [0; 14];
        form[0] = u64::from(self.kind) | u64::from(self.rank) << 8 | u64::from(self.layout) << 16;
        for (index, size) in form[1..=self.rank as usize].iter_mut().enumerate() {
            *size = self.sizes.at(index).get()?;
        }
        map.set(TensorMap { hidden: !self.address, alignment: self.alignment(), form })
    }
}

fn check_map(map: Out<TensorMap>) -> Answer {
    map.check()?;
    demand(map.address().is_multiple_of(64))
}

fn all<T: Copy>(values: Out<T>, count: u32, is_allowed: impl Fn(T) -> bool) -> Answer {
    for index in 0..count as usize {
        values.check()?;
        demand(is_allowed(values.at(index).get()?))?;
    }
    Ok(())
}
