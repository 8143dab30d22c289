//! Two copies of memtrace in one process: one of them sees CUDA memory, once.

#![cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
#![allow(unsafe_code, reason = "libraries are loaded and called through C")]

use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;

use memtrace::Device;
use memtrace::snapshot::CudaState;

fn open(path: &Path) -> *mut c_void {
    let name = CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: these libraries may be loaded anywhere.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
    assert!(!library.is_null(), "{path:?} can be loaded");
    library
}

fn function<F: Copy>(library: *mut c_void, name: &str) -> F {
    let name = CString::new(name).unwrap();
    // SAFETY: the handle is a live one and the name ends with a zero byte.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    assert!(!address.is_null(), "{name:?} is there");
    // SAFETY: the caller names the function's type.
    unsafe { std::mem::transmute_copy(&address) }
}

fn beside_this_test(name: &str) -> PathBuf {
    std::env::current_exe().unwrap().with_file_name(name)
}

/// Allocates twice and frees once, with both copies recording; gives our records, whether we say that
/// another copy has the hooks, and what the other copy says.
fn record_with_both() -> (usize, bool, i64) {
    let session = memtrace::start().unwrap();
    let second = open(&beside_this_test("libsecond_copy.so"));
    let theirs = function::<extern "C" fn() -> *mut c_void>(second, "second_start")();
    assert!(!theirs.is_null());
    let driver = open(Path::new("libcuda.so.1"));
    type Number = extern "C" fn(i32) -> i32;
    type Place<T> = extern "C" fn(*mut u64, T) -> i32;
    let (mut context, mut address) = (0, 0);
    assert_eq!(function::<Number>(driver, "cuInit")(0), 0);
    assert_eq!(function::<Place<i32>>(driver, "cuDevicePrimaryCtxRetain")(&mut context, 0), 0);
    assert_eq!(function::<extern "C" fn(u64) -> i32>(driver, "cuCtxSetCurrent")(context), 0);
    for size in [1000, 2000] {
        assert_eq!(function::<Place<usize>>(driver, "cuMemAlloc_v2")(&mut address, size), 0);
    }
    assert_eq!(function::<extern "C" fn(u64) -> i32>(driver, "cuMemFree_v2")(address), 0);
    let snapshot = session.snapshot();
    let ours = snapshot.device(Device::Cuda(0)).map_or(0, |gpu| gpu.records.len());
    let passive = snapshot.health.cuda.state == CudaState::AnotherCopy;
    (ours, passive, function::<extern "C" fn(*mut c_void) -> i64>(second, "second_end")(theirs))
}

/// Runs the named test in a child that finds the simulated driver; true in the child.
fn in_child(preload: Option<&Path>) -> bool {
    const CHILD: &str = "SECOND_COPY_TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(beside_this_test("libmemtrace_cusim.so"), folder.path().join("libcuda.so.1")).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([std::thread::current().name().unwrap(), "--exact", "--nocapture", "--test-threads=1"]);
    command.env(CHILD, "1").env("LD_LIBRARY_PATH", folder.path());
    if let Some(library) = preload {
        command.env("LD_PRELOAD", library);
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("1 passed"), "{said}");
    false
}

#[test]
fn the_programs_copy_sees_what_a_librarys_copy_leaves_to_it() {
    if in_child(None) {
        assert_eq!(record_with_both(), (3, false, -1));
    }
}

#[test]
fn a_preloaded_copy_comes_first() {
    if in_child(Some(&beside_this_test("libsecond_copy.so"))) {
        assert_eq!(record_with_both(), (0, true, 3));
    }
}
