//! Two copies of memtrace in one process: the program's own copy sees CUDA memory, and the other copy reports that it
//! does not.

#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), target_env = "gnu"))]
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

/// Opens the driver and makes a context current.
fn driver() -> *mut c_void {
    let (driver, mut context) = (open(Path::new("libcuda.so.1")), 0);
    assert_eq!(function::<Number>(driver, "cuInit")(0), 0);
    assert_eq!(function::<Place<i32>>(driver, "cuDevicePrimaryCtxRetain")(&mut context, 0), 0);
    assert_eq!(function::<extern "C" fn(u64) -> i32>(driver, "cuCtxSetCurrent")(context), 0);
    driver
}

/// Allocates and frees while both copies record; the program's own copy has all of it.
fn record_with_both() {
    let session = memtrace::start().unwrap();
    let second = open(&beside_this_test("libsecond_copy.so"));
    let theirs = function::<extern "C" fn() -> *mut c_void>(second, "second_start")();
    assert!(!theirs.is_null());
    let (driver, mut address) = (driver(), 0);
    let mut alloc = |size| {
        assert_eq!(function::<Place<usize>>(driver, "cuMemAlloc_v2")(&mut address, size), 0);
        address
    };
    let free = |address| function::<extern "C" fn(u64) -> i32>(driver, "cuMemFree_v2")(address);
    let (kept, freed) = (alloc(1000), alloc(2000));
    assert_eq!((free(freed), free(freed)), (0, 1));
    let snapshot = session.snapshot();
    let gpu = snapshot.device(Device::Cuda(0)).unwrap();
    assert!(snapshot.health.cuda.state.is_active());
    assert_eq!((gpu.records.len(), gpu.peak.bytes, gpu.live.len()), (3, 3000, 1));
    assert_eq!((snapshot.health.unknown_frees, snapshot.health.refused_frees), (0, 1));
    assert_eq!(function::<extern "C" fn() -> i32>(second, "second_measure")(), 1);
    assert_eq!(function::<extern "C" fn(*mut c_void) -> i64>(second, "second_end")(theirs), -1);
    assert_eq!(free(kept), 0);
}

#[test]
fn a_loaded_library_reports_that_the_program_has_the_hooks() {
    on_gpu(&[], record_with_both);
}

#[test]
fn a_preloaded_library_leaves_the_hooks_to_the_program() {
    let library = beside_this_test("libsecond_copy.so");
    on_gpu(&[("LD_PRELOAD", library.to_str().unwrap())], record_with_both);
}
