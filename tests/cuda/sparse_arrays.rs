//! Memory that is mapped to arrays. (`cuda.h`, "Maps or unmaps subregions of sparse CUDA arrays and sparse CUDA mipmapped
//! arrays", and "Release a memory handle": memory lives until all mappings are unmapped and all handles released.)

use cudarc::driver::CudaContext;
use memtrace::{Device, Session};

use super::raw;
use super::support::on_gpu;
use super::truth::assert_live_equals_truth;
use super::uses_oracle::Random;

const MIB: usize = 1 << 20;
const FLOAT: u64 = 0x20 | 1 << 32;
const LAYERED: u64 = 0x01;
const SPARSE: u64 = 0x40;
const DEFERRED: u64 = 0x80;
const ARRAY: u64 = 0;
const LEVELS: u64 = 1;

/// Maps memory to a part, or unmaps the part if `memory` is 0.
fn operation(array: (u64, u64), kind: u64, part: [u64; 4], memory: u64) -> [u64; 12] {
    let what = if memory == 0 { 2 } else { 1 };
    [array.0, array.1, kind, part[0], part[1], part[2], part[3], what, memory, 0, 1, 0]
}

/// A box of a level and a layer.
fn boxed(level: u64, layer: u64, from: [u64; 2], size: [u64; 2]) -> [u64; 4] {
    [level | layer << 32, from[0] | from[1] << 32, size[0] << 32, size[1] | 1 << 32]
}

/// Live bytes, in MiB.
fn live(session: &Session) -> u64 {
    let snapshot = session.snapshot();
    assert_live_equals_truth(&snapshot);
    assert_eq!((snapshot.health.unknown_frees, snapshot.health.missed_frees), (0, 0));
    snapshot.device(Device::Cuda(0)).map_or(0, |gpu| gpu.stats.allocated_bytes.current >> 20)
}

/// A sparse array of 8 by 4 tiles of 128 by 128 elements, and memory for them.
fn sparse() -> ((u64, u64), u64) {
    let array = raw::deep_array(&mut [1024, 512, 0, FLOAT, SPARSE]).unwrap();
    ((ARRAY, array.addr() as u64), raw::tile_pool(2 * MIB).unwrap())
}

#[test]
fn memory_lives_until_the_last_tile_is_unmapped() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        let (array, memory) = sparse();
        let map = |from, size, memory| raw::map_arrays(&mut [operation(array, 0, boxed(0, 0, from, size), memory)]);
        map([0, 0], [1024, 512], memory).unwrap();
        raw::release_physical(memory).unwrap();
        assert_eq!(live(&session), 2, "it is mapped");
        // A hole in the middle, then what is around it, in pieces that are not those that were mapped.
        map([128, 128], [512, 256], 0).unwrap();
        map([0, 0], [1024, 128], 0).unwrap();
        map([0, 128], [256, 384], 0).unwrap();
        map([256, 384], [768, 128], 0).unwrap();
        assert_eq!(live(&session), 2, "tiles are left");
        map([640, 128], [384, 256], 0).unwrap();
        assert_eq!(live(&session), 0);
        raw::array_destroy(array.1 as *mut _).unwrap();
    });
}

#[test]
fn a_tile_that_is_mapped_over_no_longer_keeps_its_memory() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        let (array, first) = sparse();
        let second = raw::tile_pool(4 * MIB).unwrap();
        let whole = boxed(0, 0, [0, 0], [1024, 512]);
        raw::map_arrays(&mut [operation(array, 0, whole, first), operation(array, 0, whole, second)]).unwrap();
        raw::release_physical(first).unwrap();
        assert_eq!(live(&session), 4);
        raw::release_physical(second).unwrap();
        assert_eq!(live(&session), 4);
        raw::array_destroy(array.1 as *mut _).unwrap();
        assert_eq!(live(&session), 0, "its end unmaps it");
    });
}

#[test]
fn a_refused_list_changes_nothing() {
    on_gpu(&[("MEMTRACE_CUSIM_FAULTS", "fail@free:3")], || {
        let session = memtrace::start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        let (array, memory) = sparse();
        let [whole, half] = [512, 256].map(|rows| boxed(0, 0, [0, 0], [1024, rows]));
        raw::map_arrays(&mut [operation(array, 0, whole, memory)]).unwrap();
        raw::release_physical(memory).unwrap();
        let other = raw::tile_pool(4 * MIB).unwrap();
        let wrong = operation(array, 0, boxed(0, 0, [5, 0], [128, 128]), 0);
        let list =
            [operation(array, 0, half, 0), operation(array, 0, whole, other), operation(array, 0, whole, 0), wrong];
        raw::map_arrays(&mut list.clone()).unwrap_err();
        assert_eq!(live(&session), 6, "the one is mapped, the other has a handle");
        raw::release_physical(other).unwrap();
        assert_eq!(live(&session), 2);
        raw::array_destroy(array.1 as *mut _).expect_err("the third free fails");
        assert_eq!(live(&session), 2);
        raw::map_arrays(&mut [operation(array, 0, whole, 0)]).unwrap();
        assert_eq!(live(&session), 0);
    });
}

#[test]
fn levels_layers_and_tails_are_mapped_apart() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        let array = raw::mipmapped_array(&mut [256, 256, 2, FLOAT, SPARSE | LAYERED], 9).unwrap();
        let array = (LEVELS, array.addr() as u64);
        // The first two levels have tiles; all further levels are the tail.
        let parts = [
            (0, boxed(0, 0, [0, 0], [256, 256])),
            (0, boxed(0, 1, [0, 0], [256, 256])),
            (0, boxed(1, 0, [0, 0], [128, 128])),
            (0, boxed(1, 1, [0, 0], [128, 128])),
            (1, [0, 0, 64 << 10, 0]),
            (1, [1, 0, 64 << 10, 0]),
        ];
        let memories = parts.map(|(kind, part)| {
            let memory = raw::tile_pool(2 * MIB).unwrap();
            raw::map_arrays(&mut [operation(array, kind, part, memory)]).unwrap();
            raw::release_physical(memory).unwrap();
            memory
        });
        assert_eq!(live(&session), 2 * memories.len() as u64);
        for (at, (kind, part)) in parts.into_iter().enumerate() {
            raw::map_arrays(&mut [operation(array, kind, part, 0)]).unwrap();
            assert_eq!(live(&session), 2 * (5 - at) as u64, "{kind} {part:?}");
        }
    });
}

#[test]
fn an_array_with_deferred_mapping_is_mapped_as_a_whole() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let primary = CudaContext::new(0).unwrap();
        let array = raw::deep_array(&mut [1024, 512, 0, FLOAT, DEFERRED]).unwrap();
        let array = (ARRAY, array.addr() as u64);
        let memory = raw::tile_pool(2 * MIB).unwrap();
        // What part it is does not matter.
        raw::map_arrays(&mut [operation(array, 7, [1, 2, 3, 4], memory)]).unwrap();
        raw::release_physical(memory).unwrap();
        assert_eq!(live(&session), 2);
        raw::map_arrays(&mut [operation(array, 9, [5, 6, 7, 8], 0)]).unwrap();
        assert_eq!(live(&session), 0);
        // The end of a context ends its arrays.
        let other = raw::context_create(std::ptr::null_mut(), 0, 0).unwrap();
        let (array, memory) = sparse();
        raw::map_arrays(&mut [operation(array, 0, boxed(0, 0, [0, 0], [128, 128]), memory)]).unwrap();
        raw::release_physical(memory).unwrap();
        assert_eq!(live(&session), 2);
        raw::context_destroy(other).unwrap();
        assert_eq!(live(&session), 0);
        drop(primary);
    });
}

/// Boxes of two arrays are mapped, mapped over and unmapped, and handles released, in any order. The simulator keeps each tile
/// by itself.
#[test]
fn any_mappings_keep_memory_as_long_as_the_simulator_says() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        let mut random = Random(0x5EED);
        let (one, memory) = sparse();
        let (other, second) = sparse();
        let mut handles = vec![memory, second];
        for _ in 0..150 {
            let operations: Vec<[u64; 12]> = (0..=random.below(2))
                .map(|_| {
                    let [x, y] = [8, 4].map(|tiles| {
                        let from = random.below(tiles);
                        [from as u64, 1 + random.below(tiles - from) as u64].map(|tiles| tiles * 128)
                    });
                    let memory = if random.one_in(2) { 0 } else { handles[random.below(handles.len())] };
                    let array = if random.one_in(2) { one } else { other };
                    operation(array, 0, boxed(0, 0, [x[0], y[0]], [x[1], y[1]]), memory)
                })
                .collect();
            raw::map_arrays(&mut operations.clone()).unwrap();
            if random.one_in(3) {
                let size = 2 + 2 * random.below(8);
                let gone = std::mem::replace(&mut handles[random.below(2)], raw::tile_pool(size * MIB).unwrap());
                raw::release_physical(gone).unwrap();
            }
            live(&session);
        }
        let whole = boxed(0, 0, [0, 0], [1024, 512]);
        raw::map_arrays(&mut [one, other].map(|array| operation(array, 0, whole, 0))).unwrap();
        handles.into_iter().for_each(|handle| raw::release_physical(handle).unwrap());
        assert_eq!(live(&session), 0);
    });
}

/// `cuda.h`, "Maps a CUDA mipmapped array onto an external memory object": the array lies in memory that is recorded at its
/// import, and is ended by `cuMipmappedArrayDestroy`.
#[test]
fn an_array_in_external_memory_is_part_of_it() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        let imported = || {
            let snapshot = session.snapshot();
            assert_live_equals_truth(&snapshot);
            assert_eq!((snapshot.health.unknown_frees, snapshot.health.refused_frees), (0, 0));
            snapshot
                .devices
                .iter()
                .filter(|device| device.device != Device::Cpu)
                .map(|device| device.live.len())
                .sum::<usize>()
        };
        let external = raw::external(&mut [1, 0, 0, 4 << 20, 0]).unwrap();
        let array = raw::external_levels(external, [64, 64, 0, FLOAT, 0], 3).unwrap();
        assert_eq!(imported(), 1);
        raw::mipmapped_array_destroy(array).unwrap();
        assert_eq!(imported(), 1, "the memory is there still");
        raw::external_destroy(external).unwrap();
        assert_eq!(imported(), 0);
    });
}
