//! Virtual memory, through the built library: handles, addresses, mappings.

#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "a driver is called through C")]

#[path = "support/records.rs"]
mod records;
mod support;

use memtrace_cusim::code::{INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY};
use memtrace_cusim::history::{BlockKind, Op};
use records::records;
use support::{Driver, in_child};

const STEP: usize = 2 << 20;
/// Properties of memory on the first device that can be exported as a file descriptor.
const PROPERTIES: [u64; 4] = [1 | 1 << 32, 1, 0, 0];
const READ_AND_WRITE: [u32; 3] = [1, 0, 3];

fn create(driver: Driver, size: usize) -> u64 {
    let mut handle = 0;
    assert_eq!(driver.memory_create(&mut handle, size, &PROPERTIES, 0), 0);
    handle
}

fn reserve(driver: Driver, size: usize) -> u64 {
    let mut address = 0;
    assert_eq!(driver.address_reserve(&mut address, size, 0, 0, 0), 0);
    address
}

fn log(driver: Driver) -> Vec<(Op, BlockKind, u64, u64, u32)> {
    let records = records(driver).into_iter();
    records.map(|record| (record.op, record.kind, record.address, record.size, record.result)).collect()
}

/// Bytes of the device that are not free.
fn taken(driver: Driver) -> usize {
    let (mut free, mut total) = (0, 0);
    assert_eq!(driver.memory(&mut free, &mut total), 0);
    total - free
}

#[test]
fn memory_goes_when_it_is_released_and_unmapped() {
    in_child("memory_goes_when_it_is_released_and_unmapped", &[], || {
        let driver = Driver::start();
        let (handle, address, mut again) = (create(driver, 2 * STEP), reserve(driver, 8 * STEP), 0);
        assert_eq!((driver.map(address, 2 * STEP, 0, handle, 0), driver.memory_release(handle)), (0, 0));
        assert_eq!((driver.memory_release(handle), taken(driver)), (INVALID_VALUE, 2 * STEP), "it is still mapped");
        assert_eq!((driver.memory_retain(&mut again, address + 5), again), (0, handle));
        assert_eq!((driver.unmap(address, 2 * STEP), taken(driver)), (0, 2 * STEP), "it is still referred to");
        let alloc = (Op::Alloc, BlockKind::Virtual, handle, 2 * STEP as u64, 0);
        assert_eq!(log(driver), [alloc]);
        assert_eq!((driver.memory_release(handle), taken(driver)), (0, 0));
        assert_eq!(log(driver), [alloc, (Op::Free, BlockKind::Virtual, handle, 2 * STEP as u64, 0)]);
        assert_eq!((driver.address_free(address, STEP), driver.address_free(address, 8 * STEP)), (INVALID_VALUE, 0));
    });
}

#[test]
fn mapped_memory_is_used_once_it_is_accessible() {
    in_child("mapped_memory_is_used_once_it_is_accessible", &[], || {
        let driver = Driver::start();
        let (handles, address) = ([create(driver, STEP), create(driver, 2 * STEP)], reserve(driver, 8 * STEP));
        assert_eq!(driver.map(address, STEP, 0, handles[0], 0), 0);
        assert_eq!(driver.map(address + STEP as u64, 2 * STEP, 0, handles[1], 0), 0);
        let (across, data, mut read) = (address + STEP as u64 - 2, [1, 2, 3, 4], [0; 4]);
        assert_eq!(driver.to_device(across, data.as_ptr(), 4), INVALID_VALUE);
        let (mut flags, mut base) = (9, 0);
        assert_eq!((driver.access(&mut flags, &[1, 0], across), flags), (0, 0));
        assert_eq!(driver.set_access(address, 4 * STEP, &READ_AND_WRITE, 1), INVALID_VALUE, "has a gap");
        assert_eq!(driver.set_access(address, 3 * STEP, &READ_AND_WRITE, 1), 0);
        assert_eq!((driver.access(&mut flags, &[1, 0], across), flags), (0, 3));
        assert_eq!(driver.to_device(across, data.as_ptr(), 4), 0);
        assert_eq!((driver.to_host(read.as_mut_ptr(), across, 4), read), (0, data));
        assert_eq!((driver.pointer_attribute(&mut base, 11, across + 3), base), (0, address + STEP as u64));
        assert_eq!(driver.fill(address, 0, 3 * STEP, 0), 0);
        assert_eq!((driver.to_host(read.as_mut_ptr(), across, 4), read), (0, [0; 4]));
        assert_eq!(driver.fill(address, 0, 3 * STEP + 1, 0), INVALID_VALUE);
        assert_eq!((driver.free(address), driver.unmap(address, 2 * STEP)), (INVALID_VALUE, INVALID_VALUE));
        assert_eq!((driver.address_free(address, 8 * STEP), driver.unmap(address, 3 * STEP)), (INVALID_VALUE, 0));
        assert_eq!(driver.to_device(across, data.as_ptr(), 4), INVALID_VALUE);
    });
}

#[test]
fn nonsense_is_refused() {
    in_child("nonsense_is_refused", &[("MEMTRACE_CUSIM_MEMORY", "64MiB")], || {
        let driver = Driver::start();
        let (mut handle, mut size, mut kept) = (0, 0, PROPERTIES);
        assert_eq!((driver.granularity(&mut size, &PROPERTIES, 1), size), (0, STEP));
        assert_eq!(driver.memory_create(&mut handle, STEP + 1, &PROPERTIES, 0), INVALID_VALUE);
        assert_eq!(driver.memory_create(&mut handle, STEP, &[1, 2, 0, 0], 0), NOT_SUPPORTED, "host memory");
        assert_eq!(driver.memory_create(&mut handle, 33 * STEP, &PROPERTIES, 0), OUT_OF_MEMORY);
        let refused = [(STEP as u64 + 1, INVALID_VALUE), (33 * STEP as u64, OUT_OF_MEMORY)];
        assert_eq!(log(driver), refused.map(|(size, code)| (Op::Alloc, BlockKind::Virtual, 0, size, code)));
        let (own, address) = (create(driver, STEP), reserve(driver, 4 * STEP));
        assert_eq!((driver.memory_properties(&mut kept, own), kept), (0, PROPERTIES));
        for (at, size, offset) in [(1, STEP, 0), (0, STEP, STEP), (0, 2 * STEP, 0), (4 * STEP, STEP, 0), (0, 0, 0)] {
            assert_eq!(driver.map(address + at as u64, size, offset, own, 0), INVALID_VALUE, "{at} {size} {offset}");
        }
        assert_eq!((driver.map(address, STEP, 0, own, 0), driver.map(address, STEP, 0, own, 0)), (0, INVALID_VALUE));
        assert_eq!(driver.map(address + STEP as u64, STEP, 0, own, 0), 0, "twice, at two addresses");
        assert_eq!((driver.memory_retain(&mut handle, 7), driver.memory_release(7)), (INVALID_VALUE, INVALID_VALUE));
        assert_eq!(driver.address_reserve(&mut handle, STEP, 3, 0, 0), INVALID_VALUE);
        assert_eq!((driver.address_reserve(&mut handle, STEP, 1 << 30, 0, 0), handle % (1 << 30)), (0, 0));
    });
}

#[test]
fn memory_is_shared_as_a_file() {
    in_child("memory_is_shared_as_a_file", &[], || {
        let driver = Driver::start();
        let (handle, mut file, mut other) = (create(driver, STEP), -1, 0);
        assert_eq!(driver.memory_export(&mut file, handle, 2, 0), NOT_SUPPORTED);
        assert_eq!(driver.memory_export(&mut file, handle, 1, 0), 0);
        assert_eq!((driver.memory_import(&mut other, file as usize, 1), other), (0, handle), "the same memory");
        assert_eq!((driver.memory_release(handle), taken(driver)), (0, STEP));
        assert_eq!((driver.memory_release(other), taken(driver), log(driver).len()), (0, 0, 2));
        assert_eq!(driver.memory_import(&mut other, file as usize, 1), INVALID_VALUE, "it is gone");
        assert_eq!(driver.memory_import(&mut other, 999, 1), INVALID_VALUE);
        // SAFETY: a new, empty file.
        let foreign = unsafe { libc::memfd_create(c"foreign".as_ptr(), 0) };
        // SAFETY: as above.
        assert_eq!(unsafe { libc::ftruncate(foreign, 3 * STEP as i64) }, 0);
        let before = log(driver).len();
        assert_eq!((driver.memory_import(&mut other, foreign as usize, 1), taken(driver)), (0, 0), "it is elsewhere");
        let address = reserve(driver, 4 * STEP);
        assert_eq!((driver.map(address, 3 * STEP, 0, other, 0), driver.memory_release(other)), (0, 0));
        assert_eq!(driver.set_access(address, 3 * STEP, &READ_AND_WRITE, 1), 0);
        assert_eq!((driver.fill(address, 7, 100, 0), driver.unmap(address, 3 * STEP)), (0, 0));
        let expected = [Op::Alloc, Op::Free].map(|op| (op, BlockKind::Imported, other, 3 * STEP as u64, 0));
        assert_eq!(log(driver)[before..], expected);
    });
}
