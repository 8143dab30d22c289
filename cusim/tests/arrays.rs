//! CUDA arrays, through the built library.

#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "a driver is called through C")]

#[path = "support/records.rs"]
mod records;
mod support;

use memtrace_cusim::code::{INVALID_HANDLE, INVALID_VALUE, OUT_OF_MEMORY};
use memtrace_cusim::history::{BlockKind, Op};
use records::records;
use support::{Driver, in_child};

const FLOAT: u64 = 0x20;
const DEFERRED: u64 = 0x80;

/// An array descriptor of floats: width, height, depth; channels; flags.
fn descriptor([width, height, depth]: [u64; 3], channels: u64, flags: u64) -> [u64; 5] {
    [width, height, depth, FLOAT | channels << 32, flags]
}

fn log(driver: Driver) -> Vec<(Op, u64, u64, u32)> {
    let arrays = records(driver).into_iter().filter(|record| record.kind == BlockKind::Array);
    arrays.map(|record| (record.op, record.address, record.size, record.result)).collect()
}

fn taken(driver: Driver) -> usize {
    let (mut free, mut total) = (0, 0);
    assert_eq!(driver.memory(&mut free, &mut total), 0);
    total - free
}

#[test]
fn arrays_take_what_their_elements_take() {
    in_child("arrays_take_what_their_elements_take", &[], || {
        let driver = Driver::start();
        let (mut flat, mut cube, mut flat_known, mut known) = (0, 0, [0; 3], [9; 5]);
        assert_eq!(driver.array_create(&mut flat, &[100, 30, FLOAT | 2 << 32]), 0);
        let wanted = descriptor([10, 10, 10], 4, 2);
        assert_eq!(driver.array_create_3d(&mut cube, &wanted), 0);
        assert_eq!(taken(driver), 100 * 30 * 8 + 1000 * 16);
        assert_eq!((driver.array_descriptor(&mut flat_known, flat), flat_known), (0, [100, 30, FLOAT | 2 << 32]));
        assert_eq!((driver.array_descriptor_3d(&mut known, cube), known), (0, wanted));
        assert_eq!((driver.mipmaps_destroy(flat), driver.array_destroy(flat)), (INVALID_HANDLE, 0));
        assert_eq!((driver.array_destroy(flat), driver.reset(0), taken(driver)), (INVALID_HANDLE, 0, 0));
        let expected = [
            (Op::Alloc, flat, 24_000, 0),
            (Op::Alloc, cube, 16_000, 0),
            (Op::Free, flat, 24_000, 0),
            (Op::Bulk, cube, 16_000, 0),
        ];
        assert_eq!(log(driver), expected);
        assert_eq!(driver.array_destroy(cube), INVALID_HANDLE);
    });
}

#[test]
fn mipmaps_are_arrays_together() {
    in_child("mipmaps_are_arrays_together", &[], || {
        let driver = Driver::start();
        let (mut whole, mut level, mut again, mut known) = (0, 0, 0, [0; 5]);
        assert_eq!(driver.mipmaps_create(&mut whole, &descriptor([16, 4, 0], 1, 0), 99), 0);
        assert_eq!(taken(driver), 4 * (64 + 16 + 4 + 2 + 1), "five levels");
        assert_eq!(driver.mipmaps_level(&mut level, whole, 5), INVALID_VALUE);
        assert_eq!((driver.mipmaps_level(&mut level, whole, 3), driver.mipmaps_level(&mut again, whole, 3)), (0, 0));
        assert_eq!((again, driver.array_descriptor_3d(&mut known, level)), (level, 0));
        assert_eq!((known, driver.array_destroy(level)), (descriptor([2, 1, 0], 1, 0), INVALID_HANDLE));
        assert_eq!((driver.array_destroy(whole), driver.mipmaps_destroy(whole)), (INVALID_HANDLE, 0));
        assert_eq!((driver.array_descriptor_3d(&mut known, level), taken(driver)), (INVALID_HANDLE, 0));
        assert_eq!(log(driver), [(Op::Alloc, whole, 348, 0), (Op::Free, whole, 348, 0)]);
    });
}

#[test]
fn capacity_counts_arrays() {
    in_child("capacity_counts_arrays", &[("MEMTRACE_CUSIM_MEMORY", "64MiB")], || {
        let driver = Driver::start();
        let (mut array, mut needs) = (0, [9; 4]);
        assert_eq!(driver.array_create(&mut array, &[1 << 14, 1 << 11, FLOAT | 1 << 32]), OUT_OF_MEMORY);
        assert_eq!(log(driver), [(Op::Alloc, 0, 128 << 20, OUT_OF_MEMORY)]);
        assert_eq!(driver.array_create(&mut array, &[0, 1, FLOAT | 1 << 32]), INVALID_VALUE);
        assert_eq!(driver.array_create(&mut array, &[1, 1, 1 << 32]), INVALID_VALUE, "no such format");
        assert_eq!(driver.array_create_3d(&mut array, &descriptor([1 << 14, 1 << 11, 0], 1, DEFERRED)), 0);
        assert_eq!((driver.array_needs(&mut needs, array, 0), needs[0]), (0, 128 << 20));
        assert_eq!((driver.array_destroy(array), log(driver).len(), taken(driver)), (0, 1, 0), "memory comes later");
        assert_eq!(driver.array_create_3d(&mut array, &descriptor([10, 0, 0], 1, 0)), 0);
        assert_eq!(driver.array_needs(&mut needs, array, 0), INVALID_VALUE, "it has its memory");
    });
}
