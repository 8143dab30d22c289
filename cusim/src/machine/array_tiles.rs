//! Physical memory that is mapped to tiles of sparse arrays, and to whole arrays with deferred mapping.
//!
//! According to `cuda.h`, this "Maps or unmaps subregions of sparse CUDA arrays and sparse CUDA mipmapped arrays". A
//! tile has 64 KiB, and the extents that graphics libraries give it (assumed). A new mapping of a tile unmaps what
//! was mapped there before. The end of an array unmaps its tiles (assumed).

use std::ops::Range;

use super::SimMachine;
use super::arrays::Array;
use super::formats::Descriptor;
use crate::code::{Answer, INVALID_VALUE, demand};
use crate::own::{MmapVec, mmap_vec};

pub(crate) const TILE: u64 = 64 << 10;

/// The part of an array that an operation changes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TilePart {
    Level { level: u32, layer: u32, offset: [u32; 3], extent: [u32; 3] },
    Tail { layer: u32, offset: u64, size: u64 },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct TileOperation {
    pub(crate) array: u64,
    pub(crate) has_levels: bool,
    /// Not read for an array with deferred mapping.
    pub(crate) part: Option<TilePart>,
    /// Handle and offset of the memory to map; `None` unmaps.
    pub(crate) memory: Option<(u64, u64)>,
}

/// A tile of an array: what it is part of (the tail or a level, and a layer), and its place there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tile {
    array: u64,
    level: Option<u32>,
    layer: u32,
    at: [u64; 3],
}

/// The layout of a sparse array.
pub(crate) struct SparseLayout {
    pub(crate) tile: [u64; 3],
    pub(crate) first_of_tail: u32,
    /// Bytes of each layer's tail.
    pub(crate) tail: u64,
}

impl Array {
    pub(crate) fn sparse_layout(&self) -> Answer<SparseLayout> {
        demand(self.descriptor.is_sparse())?;
        let tile = self.descriptor.tile()?;
        let levels = self.levels.max(1);
        let fills = |level: &u32| {
            let extents = self.descriptor.level(*level).extents();
            extents.iter().zip(tile).all(|(extent, side)| *extent >= side)
        };
        let first_of_tail = (0..levels).find(|level| !fills(level)).unwrap_or(levels);
        let layers = self.descriptor.layers();
        let sizes = (first_of_tail..levels).map(|level| self.descriptor.level(level).bytes());
        let tail = sizes.sum::<Answer<u64>>()? / layers;
        Ok(SparseLayout { tile, first_of_tail, tail: tail.next_multiple_of(TILE) })
    }
}

impl SimMachine {
    /// Does all operations, or none if one of them is wrong (assumed).
    pub(crate) fn map_tiles(&mut self, operations: &[TileOperation], device: usize, context: u64) -> Answer {
        let mut all = mmap_vec();
        for operation in operations {
            all.push((self.tiles(operation, device)?, operation.memory));
        }
        for (tiles, memory) in all {
            for tile in tiles {
                self.set_tile(tile, memory.map(|(handle, _)| handle), context)?;
            }
        }
        Ok(())
    }

    /// The tiles of an operation. Fails if the documentation does not permit the operation.
    fn tiles(&self, operation: &TileOperation, device: usize) -> Answer<MmapVec<Tile>> {
        let TileOperation { array: handle, has_levels, part, memory } = *operation;
        let array = self.array(handle, has_levels)?;
        demand(array.part_of.is_none() && array.descriptor.has_no_memory())?;
        let tiles = if array.descriptor.is_deferred() {
            let count = array.size.div_ceil(TILE);
            (0..count).map(|at| Tile { array: handle, level: None, layer: 0, at: [at, 0, 0] }).collect_in()
        } else {
            self.tiles_of_part(handle, &array, part.ok_or(INVALID_VALUE)?)?
        };
        if let Some((memory, offset)) = memory {
            let memory = self.virtual_memory(memory)?;
            let end = offset.checked_add(tiles.len() as u64 * TILE).ok_or(INVALID_VALUE)?;
            demand(memory.properties.is_tile_pool() && memory.device == device && end <= memory.size)?;
        }
        Ok(tiles)
    }

    fn tiles_of_part(&self, handle: u64, array: &Array, part: TilePart) -> Answer<MmapVec<Tile>> {
        let layout = array.sparse_layout()?;
        let is_layer = |layer: u32| u64::from(layer) < array.descriptor.layers();
        match part {
            TilePart::Tail { layer, offset, size } => {
                let end = offset.checked_add(size).filter(|end| *end <= layout.tail).ok_or(INVALID_VALUE)?;
                demand(is_layer(layer) && size > 0 && offset.is_multiple_of(TILE) && size.is_multiple_of(TILE))?;
                let tile = |at| Tile { array: handle, level: None, layer, at: [at, 0, 0] };
                Ok((offset / TILE..end / TILE).map(tile).collect_in())
            }
            TilePart::Level { level, layer, offset, extent } => {
                let whole = array.descriptor.level(level).extents();
                demand(level < layout.first_of_tail && is_layer(layer))?;
                let [x, y, z] =
                    [0, 1, 2].map(|axis| in_tiles(offset[axis], extent[axis], layout.tile[axis], whole[axis]));
                let (x, y, z) = (x?, y?, z?);
                let rows = z.flat_map(|z| y.clone().map(move |y| (y, z)));
                let places = rows.flat_map(|(y, z)| x.clone().map(move |x| [x, y, z]));
                Ok(places.map(|at| Tile { array: handle, level: Some(level), layer, at }).collect_in())
            }
        }
    }

    fn set_tile(&mut self, tile: Tile, memory: Option<u64>, context: u64) -> Answer {
        let before = match memory {
            Some(handle) => {
                self.virtuals.get_mut(&handle).ok_or(INVALID_VALUE)?.mappings += 1;
                self.tiles.insert(tile, handle)
            }
            None => self.tiles.remove(&tile),
        };
        let Some(handle) = before else { return Ok(()) };
        self.virtuals.get_mut(&handle).ok_or(INVALID_VALUE)?.mappings -= 1;
        self.drop_if_unused(handle, context)
    }

    /// Unmaps everything that is mapped to an array.
    pub(super) fn end_tiles_of(&mut self, array: u64, context: u64) {
        while let Some((&tile, _)) = self.tiles.iter().find(|(tile, _)| tile.array == array) {
            let _ = self.set_tile(tile, None, context);
        }
    }
}

/// Converts a range of elements to a range of tiles. It must begin and end at the edges of tiles.
fn in_tiles(from: u32, size: u32, tile: u64, whole: u64) -> Answer<Range<u64>> {
    let (from, size) = (u64::from(from), u64::from(size));
    let fits = size > 0 && from + size <= whole.next_multiple_of(tile);
    let is_aligned = from.is_multiple_of(tile) && size.is_multiple_of(tile);
    if fits && is_aligned { Ok(from / tile..(from + size) / tile) } else { Err(INVALID_VALUE) }
}

/// Collects into the simulator's own memory.
trait CollectIn: Iterator + Sized {
    fn collect_in(self) -> MmapVec<Self::Item> {
        let mut list = mmap_vec();
        list.extend(self);
        list
    }
}

impl<I: Iterator> CollectIn for I {}

impl Descriptor {
    /// The extents of a tile, in elements.
    fn tile(&self) -> Answer<[u64; 3]> {
        let power = self.element()?.trailing_zeros();
        let is_deep = self.depth > 0 && self.layers() == 1;
        match power {
            0..=4 if is_deep => Ok([64 >> power.div_ceil(3), 32 >> (power / 3), 32 >> ((power + 1) / 3)]),
            0..=4 => Ok([256 >> (power / 2), 256 >> power.div_ceil(2), 1]),
            _ => Err(INVALID_VALUE),
        }
    }
}
