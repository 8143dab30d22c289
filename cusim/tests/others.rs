//! Device memory of other processes, contexts and modules.

#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "a driver is called through C")]

mod support;

use memtrace_cusim::code::{INVALID_HANDLE, NOT_FOUND, OUT_OF_MEMORY};
use support::{Driver, in_child};

const MIB: usize = 1 << 20;

/// The simulator's counters of the device: others, overhead, taken.
fn inspect(driver: Driver, device: i32) -> [u64; 3] {
    [c"memtrace_cusim_others", c"memtrace_cusim_overhead", c"memtrace_cusim_taken"].map(|name| {
        // SAFETY: the function has this type.
        let read = unsafe { std::mem::transmute::<usize, extern "C" fn(i32) -> u64>(driver.address(name)) };
        read(device) >> 20
    })
}

fn free(driver: Driver) -> usize {
    let (mut free, mut total) = (0, 0);
    assert_eq!((driver.memory(&mut free, &mut total), total), (0, 1024 * MIB));
    free / MIB
}

#[test]
fn others_and_contexts_take_memory() {
    let variables = [
        ("MEMTRACE_CUSIM_DEVICES", "2"),
        ("MEMTRACE_CUSIM_MEMORY", "1GiB"),
        ("MEMTRACE_CUSIM_OTHERS", "100MiB,600MiB"),
        ("MEMTRACE_CUSIM_CONTEXT", "300MiB"),
    ];
    in_child("others_and_contexts_take_memory", &variables, || {
        let driver = Driver::load();
        let (mut second, mut other, mut address) = (0, 0, 0);
        assert_eq!((driver.init(0), inspect(driver, 0)), (0, [100, 0, 100]));
        let first = driver.enter(0);
        assert_eq!((free(driver), inspect(driver, 0)), (624, [100, 300, 400]));
        assert_eq!((driver.context_create(&mut second, 0, 0), free(driver)), (0, 324));
        assert_eq!((driver.alloc(&mut address, 100 * MIB), free(driver)), (0, 224));
        assert_eq!(driver.context_create(&mut other, 0, 0), OUT_OF_MEMORY);
        assert_eq!(driver.alloc(&mut other, 225 * MIB), OUT_OF_MEMORY);
        assert_eq!((driver.context_destroy(second), driver.set_current(first), free(driver)), (0, 0, 624));
        assert_eq!((driver.primary_retain(&mut other, 1), driver.primary_release(1)), (0, 0));
        assert_eq!(inspect(driver, 1), [600, 0, 600]);
    });
}

#[test]
fn modules_and_libraries_take_memory() {
    let variables = [("MEMTRACE_CUSIM_MEMORY", "1GiB"), ("MEMTRACE_CUSIM_MODULE", "400MiB")];
    in_child("modules_and_libraries_take_memory", &variables, || {
        let driver = Driver::start();
        let (mut module, mut library, mut kernel) = (0, 0, 0);
        let ptx = c".visible .entry add()".to_bytes_with_nul().as_ptr();
        assert_eq!((driver.load_module(&mut module, ptx), free(driver)), (0, 624));
        assert_eq!((driver.load_library(&mut library, ptx, 0, 0, 0, 0, 0, 0), free(driver)), (0, 224));
        assert_eq!(driver.load_module(&mut kernel, ptx), OUT_OF_MEMORY);
        assert_eq!(driver.kernel_of_library(&mut kernel, library, c"add".as_ptr()), 0);
        assert_eq!(driver.kernel_of_library(&mut kernel, library, c"sub".as_ptr()), NOT_FOUND);
        assert_eq!((driver.module_unload(module), free(driver), inspect(driver, 0)), (0, 624, [0, 400, 400]));
        assert_eq!((driver.load_module(&mut module, ptx), driver.reset(0), free(driver)), (0, 0, 1024));
        assert_eq!((driver.module_unload(module), driver.unload_library(library)), (INVALID_HANDLE, 0));
        assert_eq!(driver.unload_library(library), INVALID_HANDLE);
        assert_eq!((driver.load_library(&mut library, ptx, 0, 0, 0, 0, 0, 0), driver.unload_library(library)), (0, 0));
        assert_eq!(free(driver), 1024);
    });
}
