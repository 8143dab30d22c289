//! Two copies of memtrace in one process: both see CUDA memory, each once, whichever has the hooks.

#![cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
#![allow(unsafe_code, reason = "libraries are loaded and called through C")]

use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};

#[path = "../../../support/child.rs"]
mod child;
#[path = "../../../cuda/support.rs"]
#[allow(dead_code, reason = "shared with the tests of the hooks")]
mod gpu;

use gpu::{function, on_gpu};
use memtrace::Device;

fn open(path: &Path) -> *mut c_void {
    let name = CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: these libraries may be loaded anywhere.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
    assert!(!library.is_null(), "{path:?} can be loaded");
    library
}

fn beside_this_test(name: &str) -> PathBuf {
    std::env::current_exe().unwrap().with_file_name(name)
}

type Number = extern "C" fn(i32) -> i32;
type Place<T> = extern "C" fn(*mut u64, T) -> i32;

/// The driver, with a context that is current.
fn driver() -> *mut c_void {
    let (driver, mut context) = (open(Path::new("libcuda.so.1")), 0);
    assert_eq!(function::<Number>(driver, "cuInit")(0), 0);
    assert_eq!(function::<Place<i32>>(driver, "cuDevicePrimaryCtxRetain")(&mut context, 0), 0);
    assert_eq!(function::<extern "C" fn(u64) -> i32>(driver, "cuCtxSetCurrent")(context), 0);
    driver
}

/// Allocates and frees with both copies recording, one of them later; gives our records and what the other
/// copy says.
fn record_with_both() -> (usize, i64) {
    let session = memtrace::start().unwrap();
    let second = open(&beside_this_test("libsecond_copy.so"));
    let (driver, mut address) = (driver(), 0);
    let mut alloc = |size| {
        assert_eq!(function::<Place<usize>>(driver, "cuMemAlloc_v2")(&mut address, size), 0);
        address
    };
    let free = |address| function::<extern "C" fn(u64) -> i32>(driver, "cuMemFree_v2")(address);
    let before = alloc(500);
    let theirs = function::<extern "C" fn() -> *mut c_void>(second, "second_start")();
    assert!(!theirs.is_null());
    let kept = alloc(1000);
    let freed = alloc(2000);
    assert_eq!((free(before), free(freed), free(freed)), (0, 0, 1));
    let snapshot = session.snapshot();
    let ours = snapshot.device(Device::Cuda(0)).map_or(0, |gpu| gpu.records.len());
    assert!(snapshot.health.cuda.state.is_active());
    assert_eq!((snapshot.health.unknown_frees, snapshot.health.refused_frees), (0, 1));
    assert_eq!(snapshot.device(Device::Cuda(0)).map(|gpu| gpu.peak.bytes), Some(3500));
    drop(session);
    let theirs = function::<extern "C" fn(*mut c_void) -> i64>(second, "second_end")(theirs);
    assert_eq!(free(kept), 0);
    (ours, theirs)
}

#[test]
fn a_librarys_copy_hears_of_what_the_programs_sees() {
    on_gpu(&[], || assert_eq!(record_with_both(), (5, 3000)));
}

#[test]
fn the_programs_copy_hears_of_what_a_preloaded_one_sees() {
    let library = beside_this_test("libsecond_copy.so");
    on_gpu(&[("LD_PRELOAD", library.to_str().unwrap())], || assert_eq!(record_with_both(), (5, 3000)));
}

/// One call that would end several blocks.
#[test]
fn both_keep_what_a_refused_unmapping_was_about() {
    const SIZE: usize = 2 << 20;
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let second = open(&beside_this_test("libsecond_copy.so"));
        let (driver, mut address) = (driver(), 0);
        let theirs = function::<extern "C" fn() -> *mut c_void>(second, "second_start")();
        type Reserve = extern "C" fn(*mut u64, usize, usize, u64, u64) -> i32;
        assert_eq!(function::<Reserve>(driver, "cuMemAddressReserve")(&mut address, 6 * SIZE, 0, 0, 0), 0);
        for at in 0..3 {
            let (mut handle, description) = (0u64, [1u64, 1, 0, 0]);
            type Create = extern "C" fn(*mut u64, usize, *const u64, u64) -> i32;
            type Map = extern "C" fn(u64, usize, usize, u64, u64) -> i32;
            assert_eq!(function::<Create>(driver, "cuMemCreate")(&mut handle, SIZE, description.as_ptr(), 0), 0);
            assert_eq!(function::<Map>(driver, "cuMemMap")(address + at * SIZE as u64, SIZE, 0, handle, 0), 0);
            assert_eq!(function::<extern "C" fn(u64) -> i32>(driver, "cuMemRelease")(handle), 0);
        }
        let unmap = |size| function::<extern "C" fn(u64, usize) -> i32>(driver, "cuMemUnmap")(address, size);
        let live = || {
            let ours = session.snapshot().device(Device::Cuda(0)).unwrap().stats.allocated_bytes.current;
            (ours, function::<extern "C" fn(*mut c_void) -> u64>(second, "second_live")(theirs))
        };
        assert_ne!(unmap(4 * SIZE), 0, "not all of it is mapped");
        assert_eq!(live(), (6 << 20, 6 << 20));
        assert_eq!(unmap(2 * SIZE), 0);
        assert_eq!(live(), (2 << 20, 2 << 20));
    });
}
