//! Sparse arrays and their tiles, through the built library.

#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "a driver is called through C")]

mod support;

use memtrace_cusim::code::INVALID_VALUE;
use support::{Driver, in_child};

const FLOAT: u64 = 0x20 | 1 << 32;
const SPARSE: u64 = 0x40;
/// Memory of the first device, for tiles.
const PROPERTIES: [u64; 4] = [1, 1, 0, 1 << 16];

fn taken(driver: Driver) -> usize {
    let (mut free, mut total) = (0, 0);
    assert_eq!(driver.memory(&mut free, &mut total), 0);
    total - free
}

/// An operation on a box of the array's first level.
fn operation(array: u64, [from, size]: [[u64; 2]; 2], memory: u64) -> [[u64; 12]; 1] {
    let kind = if memory == 0 { 2 } else { 1 };
    let part = [0, from[0] | from[1] << 32, size[0] << 32, size[1] | 1 << 32];
    [[0, array, 0, part[0], part[1], part[2], part[3], kind, memory, 0, 1, 0]]
}

#[test]
fn tiles_keep_memory_until_the_last_one_is_unmapped() {
    in_child("tiles_keep_memory_until_the_last_one_is_unmapped", &[], || {
        let driver = Driver::start();
        let (mut array, mut memory, mut layout) = (0, 0, [9; 6]);
        assert_eq!(driver.array_create_3d(&mut array, &[512, 256, 0, FLOAT, SPARSE]), 0);
        assert_eq!((driver.sparse_layout(&mut layout, array), layout[0], taken(driver)), (0, 128 | 128 << 32, 0));
        assert_eq!(driver.memory_create(&mut memory, 2 << 20, &PROPERTIES, 0), 0);
        assert_eq!(driver.map_tiles(&operation(array, [[0, 0], [512, 256]], memory), 1, 0), 0);
        assert_eq!(driver.memory_release(memory), 0);
        for wrong in [[[1, 0], [128, 128]], [[0, 0], [100, 128]], [[0, 0], [640, 128]], [[0, 0], [0, 128]]] {
            assert_eq!(driver.map_tiles(&operation(array, wrong, 0), 1, 0), INVALID_VALUE, "{wrong:?}");
        }
        assert_eq!(driver.map_tiles(&operation(array, [[0, 0], [512, 128]], 0), 1, 0), 0);
        assert_eq!(taken(driver), 2 << 20);
        assert_eq!(driver.map_tiles(&operation(array, [[0, 128], [384, 128]], 0), 1, 0), 0);
        assert_eq!(taken(driver), 2 << 20, "a tile is left");
        assert_eq!(driver.map_tiles(&operation(array, [[384, 128], [128, 128]], 0), 1, 0), 0);
        assert_eq!(taken(driver), 0);
        assert_eq!(driver.memory_create(&mut memory, 2 << 20, &PROPERTIES, 0), 0);
        assert_eq!(driver.map_tiles(&operation(array, [[0, 0], [128, 128]], memory), 1, 0), 0);
        assert_eq!((driver.memory_release(memory), taken(driver)), (0, 2 << 20));
        assert_eq!((driver.array_destroy(array), taken(driver)), (0, 0), "the array's end unmaps it");
    });
}

#[test]
fn an_array_in_external_memory_takes_none() {
    in_child("an_array_in_external_memory_takes_none", &[], || {
        let driver = Driver::start();
        let (mut memory, mut array) = (0, 0);
        let mut description = [0; 13];
        (description[0], description[3]) = (1, 1 << 20);
        assert_eq!(driver.external_import(&mut memory, &description), 0);
        let mut part = [0; 15];
        part[1..7].copy_from_slice(&[64, 64, 0, FLOAT, 0, 3]);
        assert_eq!(driver.external_levels(&mut array, memory, &part), 0);
        assert_eq!((taken(driver), driver.external_destroy(memory), driver.mipmaps_destroy(array)), (0, 0, 0));
        part[0] = 1 << 20;
        assert_eq!(driver.external_import(&mut memory, &description), 0);
        assert_eq!(driver.external_levels(&mut array, memory, &part), INVALID_VALUE, "it begins behind the memory");
    });
}
