//! Sparse arrays: their layout, and the memory that is mapped to their tiles.

use super::abi::Out;
use super::process::with;
use super::thread::current;
use crate::SimMachine;
use crate::code::{Answer, INVALID_VALUE, demand};
use crate::machine::{TileOperation, TilePart};
use crate::own::mmap_vec;

/// `CUarrayMapInfo`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct MapInfo {
    resource: u32,
    array: u64,
    subresource: u32,
    /// For a level, eight numbers of 32 bits. For the tail, a layer, and an offset and a size of 64 bits.
    part: [u64; 4],
    operation: u32,
    handle_type: u32,
    memory: u64,
    offset: u64,
    devices: u32,
    flags: u32,
    reserved: [u32; 2],
}

/// `CUDA_ARRAY_SPARSE_PROPERTIES`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct SparseProperties {
    tile: [u32; 3],
    first_of_tail: u32,
    tail: u64,
    flags: u32,
    reserved: [u32; 4],
}

const MAP: u32 = 1;
const UNMAP: u32 = 2;
const LEVEL: u32 = 0;
const TAIL: u32 = 1;

driver! {
    fn cuMemMapArrayAsync(list: Out<MapInfo>, count: u32, stream: u64) | cuMemMapArrayAsync_ptsz(stream) {
        with(|machine| {
            let context = machine.context_of(stream, current())?;
            let device = machine.context(context)?.device;
            let mut operations = mmap_vec();
            for index in 0..count as usize {
                operations.push(operation(list.at(index).get()?, device)?);
            }
            machine.map_tiles(&operations, device, context)
        })
    }

    fn cuArrayGetSparseProperties(properties: Out<SparseProperties>, array: u64) =>
        with(|machine| properties_of(machine, properties, array, false));
    fn cuMipmappedArrayGetSparseProperties(properties: Out<SparseProperties>, array: u64) =>
        with(|machine| properties_of(machine, properties, array, true));
}

fn operation(info: MapInfo, device: usize) -> Answer<TileOperation> {
    let MapInfo { resource, array, subresource, part: [one, two, three, four], memory, offset, .. } = info;
    let others = [info.handle_type, info.flags, info.reserved[0], info.reserved[1]];
    demand(resource <= 1 && info.devices == 1 << device && others == [0; 4])?;
    let halves = |word: u64| [word as u32, (word >> 32) as u32];
    let ([level, layer], [x, y], [z, width], [height, depth]) = (halves(one), halves(two), halves(three), halves(four));
    let part = match subresource {
        LEVEL => Some(TilePart::Level { level, layer, offset: [x, y, z], extent: [width, height, depth] }),
        TAIL => Some(TilePart::Tail { layer: level, offset: two, size: three }),
        _ => None,
    };
    let memory = match info.operation {
        MAP => Some((memory, offset)),
        UNMAP if memory == 0 => None,
        _ => return Err(INVALID_VALUE),
    };
    Ok(TileOperation { array, has_levels: resource == 1, part, memory })
}

fn properties_of(machine: &SimMachine, properties: Out<SparseProperties>, array: u64, has_levels: bool) -> Answer {
    let layout = machine.array(array, has_levels)?.sparse_layout()?;
    let (first_of_tail, tail) = (layout.first_of_tail, layout.tail);
    properties.set(SparseProperties {
        tile: layout.tile.map(|side| side as u32),
        first_of_tail,
        tail,
        flags: 0,
        reserved: [0; 4],
    })
}
