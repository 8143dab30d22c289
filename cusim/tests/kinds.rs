//! Managed, pitched, pinned and registered memory, through the built library.

#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "a driver is called through C")]

mod support;

use memtrace_cusim::code::{ALREADY_REGISTERED, INVALID_VALUE, NOT_REGISTERED};
use support::{Driver, in_child};

fn used(driver: Driver, pool: u64) -> u64 {
    let mut used = 0;
    assert_eq!(driver.pool_attribute(pool, 7, &mut used), 0);
    used
}

#[test]
fn programs_make_pools_of_their_own() {
    in_child("programs_make_pools_of_their_own", &[], || {
        let driver = Driver::start();
        let (mut pool, mut first, mut second, mut default) = (0, 0, 0, 0);
        let mut properties = [0; 22];
        (properties[0], properties[2]) = (1, 1);
        assert_eq!(driver.pool_create(&mut pool, &properties), 0);
        assert_eq!(driver.pool_default(&mut default, 0), 0);
        assert_eq!(driver.alloc_from_pool(&mut first, 1000, pool, 2), 0);
        assert_eq!(driver.pool_choose(0, pool), 0);
        assert_eq!(driver.alloc_async(&mut second, 1000, 2), 0);
        assert_eq!((used(driver, pool), used(driver, default)), (2048, 0));
        assert_eq!((driver.free_async(first, 2), driver.free(second)), (0, 0), "either call frees it");
        assert_eq!(used(driver, pool), 0);
        assert_eq!((driver.pool_destroy(pool), driver.pool_destroy(pool)), (0, INVALID_VALUE));
        assert_eq!(driver.alloc_async(&mut second, 1000, 2), 0);
        assert_eq!((used(driver, default), driver.pool_destroy(default)), (1024, INVALID_VALUE));
    });
}

#[test]
fn rows_are_copied_with_their_pitch() {
    in_child("rows_are_copied_with_their_pitch", &[], || {
        let driver = Driver::start();
        let (mut address, mut pitch, mut row) = (0, 0, [0; 3]);
        assert_eq!(driver.alloc_pitch(&mut address, &mut pitch, 3, 2, 4), 0);
        assert_eq!(pitch, 512);
        let from: [u8; 8] = [1, 2, 3, 0, 4, 5, 6, 0];
        let (host, device) = (1, 2);
        let rows = [0, 0, host, from.as_ptr() as u64, 0, 0, 4, 0, 0, device, 0, address, 0, pitch as u64, 3, 2];
        assert_eq!(driver.copy_rows(&rows), 0);
        assert_eq!((driver.to_host(row.as_mut_ptr(), address + 512, 3), row), (0, [4, 5, 6]));
    });
}

#[test]
fn managed_memory_is_the_hosts_too() {
    in_child("managed_memory_is_the_hosts_too", &[], || {
        let driver = Driver::start();
        let (mut address, mut value) = (0, 0);
        assert_eq!(driver.alloc_managed(&mut address, 4096, 1), 0);
        // SAFETY: the driver allocated that memory.
        unsafe { (address as *mut u32).write(7) };
        assert_eq!((driver.pointer_attribute(&mut value, 8, address), value), (0, 1));
        assert_eq!((driver.free(address), driver.free(address)), (0, INVALID_VALUE));
    });
}

#[test]
fn host_memory_is_registered_once() {
    in_child("host_memory_is_registered_once", &[], || {
        let driver = Driver::start();
        let (data, mut value) = (vec![3_u8; 8192], 0);
        let address = data.as_ptr() as u64;
        assert_eq!(driver.host_register(address, 8192, 0), 0);
        assert_eq!(driver.host_register(address + 4096, 8192, 0), ALREADY_REGISTERED);
        assert_eq!((driver.pointer_attribute(&mut value, 11, address + 1), value), (0, address));
        assert_eq!((driver.host_unregister(address), driver.host_unregister(address)), (0, NOT_REGISTERED));
        assert_eq!(data, [3; 8192], "it is the program's");
    });
}

#[test]
fn a_reset_frees_everything_of_the_device() {
    in_child("a_reset_frees_everything_of_the_device", &[], || {
        let driver = Driver::start();
        let (mut addresses, mut free, mut total) = ([0; 3], 0, 0);
        for address in &mut addresses {
            assert_eq!(driver.alloc(address, 1 << 20), 0);
        }
        assert_eq!(driver.reset(0), 0);
        assert_eq!((driver.memory(&mut free, &mut total), free), (0, total));
    });
}

#[test]
fn devices_and_errors_have_names() {
    in_child("devices_and_errors_have_names", &[("MEMTRACE_CUSIM_DEVICES", "2")], || {
        let driver = Driver::start();
        let (mut name, mut uuids, mut error) = ([9; 64], [[0; 16]; 2], std::ptr::null());
        assert_eq!(driver.device_name(&mut name, 9, 0), 0);
        assert_eq!(&name[..10], b"memtrace\0\x09", "cut to the room that there is");
        for (uuid, device) in uuids.iter_mut().zip(0..) {
            assert_eq!(driver.device_uuid(uuid, device), 0);
        }
        assert_ne!(uuids[0], uuids[1]);
        assert_eq!(driver.error_name(2, &mut error), 0);
        // SAFETY: the driver's strings are constants.
        assert_eq!(unsafe { std::ffi::CStr::from_ptr(error) }, c"CUDA_ERROR_OUT_OF_MEMORY");
        assert_eq!(driver.error_name(12_345, &mut error), INVALID_VALUE);
    });
}
