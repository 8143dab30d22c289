//! Memory of other processes and libraries, through the built library.

#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "a driver is called through C")]

#[path = "support/records.rs"]
mod records;
mod support;

use memtrace_cusim::code::{INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE, NOT_SUPPORTED};
use memtrace_cusim::history::{BlockKind, Op};
use records::records;
use support::{Driver, Handle, in_child};

/// A handle as if another process had created it.
fn foreign(driver: Driver, size: u64) -> Handle {
    let address = driver.address(c"memtrace_cusim_foreign_handle");
    // SAFETY: the function has this type.
    let make = unsafe { std::mem::transmute::<usize, extern "C" fn(u64, &mut Handle)>(address) };
    let mut handle = Handle::default();
    make(size, &mut handle);
    handle
}

fn log(driver: Driver) -> Vec<(Op, u64, u64, u32)> {
    let imported = records(driver).into_iter().filter(|record| record.kind == BlockKind::Imported);
    imported.map(|record| (record.op, record.address, record.size, record.result)).collect()
}

fn taken(driver: Driver) -> usize {
    let (mut free, mut total) = (0, 0);
    assert_eq!(driver.memory(&mut free, &mut total), 0);
    total - free
}

#[test]
fn handles_of_other_processes_are_opened() {
    in_child("handles_of_other_processes_are_opened", &[], || {
        let driver = Driver::start();
        let (mut own, mut address, mut again, mut other) = (Handle::default(), 0, 0, 0);
        assert_eq!((driver.alloc(&mut address, 5000), driver.ipc_handle(&mut own, address)), (0, 0));
        assert_eq!(driver.ipc_open(&mut other, own, 1), INVALID_CONTEXT);
        assert_eq!((driver.ipc_close(address), driver.free(address)), (INVALID_VALUE, 0));
        assert_eq!(
            (driver.ipc_handle(&mut own, address), driver.ipc_open(&mut other, own, 0)),
            (INVALID_VALUE, INVALID_VALUE)
        );
        let (first, second) = (foreign(driver, 5000), foreign(driver, 100));
        assert_eq!((driver.ipc_open(&mut address, first, 1), driver.ipc_open(&mut again, first, 1)), (0, 0));
        assert_eq!((address, driver.ipc_open(&mut other, second, 1), taken(driver)), (again, 0, 0));
        let mut read = [9; 2];
        assert_eq!((driver.fill(address, 7, 5000, 0), driver.fill(address, 7, 5001, 0)), (0, INVALID_VALUE));
        assert_eq!((driver.to_host(read.as_mut_ptr(), address + 4998, 2), read), (0, [7; 2]));
        assert_eq!((driver.free(address), driver.ipc_close(address)), (INVALID_VALUE, 0));
        assert_eq!((driver.ipc_close(address), driver.ipc_close(address)), (0, INVALID_VALUE));
        assert_eq!(driver.reset(0), 0);
        let expected = [
            (Op::Alloc, address, 5000, 0),
            (Op::Alloc, other, 100, 0),
            (Op::Free, address, 5000, INVALID_VALUE),
            (Op::Free, address, 5000, 0),
            (Op::Bulk, other, 100, 0),
        ];
        assert_eq!(log(driver), expected);
    });
}

#[test]
fn external_memory_is_used_through_buffers() {
    in_child("external_memory_is_used_through_buffers", &[], || {
        let driver = Driver::start();
        let (mut description, mut part, mut memory, mut address, mut rest) = ([0; 13], [0; 11], 0, 0, 0);
        (description[0], description[1], description[3]) = (1, 3, 10_000);
        assert_eq!(driver.external_import(&mut memory, &description), 0);
        description[0] = 4;
        assert_eq!(driver.external_import(&mut rest, &description), NOT_SUPPORTED);
        (part[0], part[1]) = (6000, 4000);
        assert_eq!(driver.external_buffer(&mut address, memory, &part), 0);
        part[1] += 1;
        assert_eq!(driver.external_buffer(&mut rest, memory, &part), INVALID_VALUE);
        assert_eq!((driver.external_destroy(memory), driver.external_destroy(memory)), (0, INVALID_HANDLE));
        assert_eq!(
            (driver.fill(address, 7, 4000, 0), driver.free(address), driver.fill(address, 7, 1, 0)),
            (0, 0, INVALID_VALUE)
        );
        assert_eq!(log(driver), [(Op::Alloc, memory, 10_000, 0), (Op::Free, memory, 10_000, 0)]);
        assert_eq!((records(driver).len(), taken(driver)), (2, 0), "nothing else is in the log");
    });
}

#[test]
fn pools_are_shared_pointer_by_pointer() {
    in_child("pools_are_shared_pointer_by_pointer", &[], || {
        let driver = Driver::start();
        let (mut properties, mut own, mut other, mut file) = ([0; 22], 0, 0, -1);
        (properties[0], properties[1], properties[2]) = (1, 1, 1);
        assert_eq!((driver.pool_create(&mut own, &properties), driver.pool_export(&mut file, own, 1, 0)), (0, 0));
        assert_eq!(
            (driver.pool_import(&mut other, file as usize, 1, 0), driver.pool_choose(0, other)),
            (0, INVALID_VALUE)
        );
        let (mut address, mut imported, mut data) = (0, 0, Handle::default());
        assert_eq!(driver.alloc_from_pool(&mut address, 1000, other, 0), INVALID_VALUE);
        assert_eq!(driver.alloc_from_pool(&mut address, 1000, own, 0), 0);
        assert_eq!(driver.pointer_export(&mut data, address), 0);
        assert_eq!(driver.pointer_import(&mut imported, own, &data), INVALID_VALUE, "is not imported");
        assert_eq!(driver.pointer_import(&mut imported, other, &data), 0);
        assert_eq!((driver.free_async(imported, 0), driver.free(imported)), (0, INVALID_VALUE));
        let far = foreign(driver, 77);
        assert_eq!((driver.pointer_import(&mut address, other, &far), driver.free(address)), (0, 0));
        let expected = [(Op::Alloc, imported, 1000, 0), (Op::Free, imported, 1000, 0)];
        assert_eq!(log(driver)[..2], expected);
        assert_eq!(log(driver)[2..], [(Op::Alloc, address, 77, 0), (Op::Free, address, 77, 0)]);
        let (mut default, mut plain) = (0, 0);
        assert_eq!(
            (driver.pool_default(&mut default, 0), driver.pool_export(&mut file, default, 1, 0)),
            (0, INVALID_VALUE)
        );
        assert_eq!((driver.alloc_async(&mut plain, 1, 0), driver.pointer_export(&mut data, plain)), (0, INVALID_VALUE));
    });
}

#[test]
fn pools_are_chosen_by_location() {
    in_child("pools_are_chosen_by_location", &[], || {
        let driver = Driver::start();
        let (mut properties, mut own, mut default, mut chosen) = ([0; 22], 0, 0, 0);
        (properties[0], properties[2]) = (1, 1);
        let device = [1, 0];
        assert_eq!((driver.pool_create(&mut own, &properties), driver.pool_default(&mut default, 0)), (0, 0));
        assert_eq!((driver.pool_at(&mut chosen, &device, 1), chosen), (0, default));
        assert_eq!((driver.pool_choose_at(&device, 1, own), driver.pool_at(&mut chosen, &device, 1)), (0, 0));
        assert_eq!((chosen, driver.pool_default_at(&mut chosen, &device, 1)), (own, 0));
        assert_eq!((chosen, driver.pool_at(&mut chosen, &[9, 0], 1)), (default, INVALID_VALUE));
    });
}

/// Allocation type, location type, id.
const PLACES: [[u32; 3]; 6] = [[1, 2, 0], [1, 3, 0], [2, 0, 0], [2, 1, 0], [2, 2, 0], [2, 3, 1]];

#[test]
fn pools_of_the_host_and_of_managed_memory_take_nothing_of_a_device() {
    in_child("pools_of_the_host_and_of_managed_memory_take_nothing_of_a_device", &[], || {
        let driver = Driver::start();
        let free = || {
            let (mut free, mut all) = (0, 0);
            assert_eq!(driver.memory(&mut free, &mut all), 0);
            free
        };
        let whole = free();
        for [allocation, kind, id] in PLACES {
            let (mut properties, mut pool, mut address, mut default, mut chosen) = ([0; 22], 0, 0, 0, 0);
            (properties[0], properties[2], properties[3]) = (allocation, kind, id);
            let place = [kind, id];
            assert_eq!(driver.pool_create(&mut pool, &properties), 0);
            assert_eq!(driver.pool_default_at(&mut default, &place, allocation), 0);
            assert_eq!((driver.pool_at(&mut chosen, &place, allocation), chosen), (0, default));
            assert_eq!(driver.pool_choose_at(&place, allocation, pool), 0);
            assert_eq!((driver.pool_at(&mut chosen, &place, allocation), chosen), (0, pool));
            assert_eq!(driver.pool_choose_at(&[1, 0], 1, pool), INVALID_VALUE, "of another place");
            for pool in [pool, default] {
                assert_eq!(driver.alloc_from_pool(&mut address, 3 << 20, pool, 0), 0);
                let [host, managed, of_pool] = [2, 8, 17].map(|attribute| {
                    let mut value = 0;
                    assert_eq!(driver.pointer_attribute(&mut value, attribute, address), 0);
                    value
                });
                let is_host = allocation == 1;
                assert_eq!((host, managed, of_pool), (if is_host { 1 } else { 2 }, u64::from(!is_host), pool));
                assert_eq!((free(), driver.free_async(address, 0)), (whole, 0));
            }
            assert_eq!((driver.pool_destroy(pool), driver.pool_destroy(default)), (0, INVALID_VALUE));
            assert_eq!((driver.pool_at(&mut chosen, &place, allocation), chosen), (0, default));
            properties[1] = 1;
            let shared = if kind == 2 { INVALID_VALUE } else { 0 };
            assert_eq!(driver.pool_create(&mut pool, &properties), shared, "{allocation} {kind}");
        }
        let mut properties = [0; 22];
        // `CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT`
        properties[..3].copy_from_slice(&[1, 0, 4]);
        assert_eq!(driver.pool_create(&mut 0, &properties), INVALID_VALUE);
    });
}
