//! Libraries that a program loads while it runs, and that call the driver themselves.

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::process::Command;

use cudarc::driver::CudaContext;
use memtrace::Device;

use crate::support::{driver_folder, on_gpu};
use crate::truth::assert_equals_truth;

const SOURCE: &str = "
#include <stddef.h>
#include <dlfcn.h>
int cuMemAlloc_v2(unsigned long long *address, size_t size);
int cuMemFree_v2(unsigned long long address);
/* A pointer to a function in data, besides the calls through the table of imports. */
int (*kept)(unsigned long long *, size_t) = cuMemAlloc_v2;
int plain(unsigned long long *address, size_t size) { return cuMemAlloc_v2(address, size); }
int pointed(unsigned long long *address, size_t size) { return kept(address, size); }
int give_back(unsigned long long address) { return cuMemFree_v2(address); }
int asked(unsigned long long *address, size_t size) {
    int (*alloc)(unsigned long long *, size_t) = dlsym(RTLD_DEFAULT, \"cuMemAlloc_v2\");
    return alloc(address, size);
}
";

/// A library that imports the driver's functions, bound in this way.
fn library(folder: &Path, binding: &str) -> PathBuf {
    let (source, built) = (folder.join("plugin.c"), folder.join(format!("{binding}.so")));
    std::fs::write(&source, SOURCE).unwrap();
    let search = format!("-L{}", driver_folder().display());
    let mut compile = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    compile.args(["-shared", "-fPIC", "-o"]).arg(&built).arg(&source);
    let status = compile.arg(format!("-Wl,-z,{binding}")).args(["-Wl,-z,relro", &search, "-lcuda", "-ldl"]).status();
    assert!(status.unwrap().success(), "a C compiler builds the library");
    built
}

fn function<F: Copy>(library: *mut std::ffi::c_void, name: &str) -> F {
    assert_eq!(size_of::<F>(), size_of::<usize>());
    let name = CString::new(name).unwrap();
    // SAFETY: the handle is a live one and the name ends with a zero byte.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    assert!(!address.is_null(), "{name:?} is there");
    // SAFETY: the caller names the function's type.
    unsafe { std::mem::transmute_copy(&address) }
}

type Alloc = extern "C" fn(*mut u64, usize) -> i32;
type Free = extern "C" fn(u64) -> i32;

fn calls_of_a_library_are_seen(binding: &str) {
    let folder = tempfile::tempdir().unwrap();
    let library = library(folder.path(), binding);
    on_gpu(&[("TEST_LIBRARY", library.to_str().unwrap())], || {
        let session = memtrace::start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        let path = CString::new(std::env::var("TEST_LIBRARY").unwrap()).unwrap();
        // SAFETY: the library was made above and has no code that runs when it is loaded.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY) };
        assert!(!library.is_null());
        let mut address = 0;
        for round in 0..3 {
            for name in ["plain", "pointed", "asked"] {
                assert_eq!(function::<Alloc>(library, name)(&mut address, 1000 + round), 0);
            }
            assert_eq!(function::<Free>(library, "give_back")(address), 0);
        }
        let snapshot = session.snapshot();
        assert_equals_truth(&snapshot, true);
        let gpu = snapshot.device(Device::Cuda(0)).unwrap();
        assert_eq!((gpu.records.len(), gpu.live.len()), (12, 6));
        assert!(snapshot.health.cuda.imports > 0);
        assert_eq!(snapshot.health.cuda.refused_imports, 0);
        // SAFETY: nothing of the library is used any more; what it allocated is the driver's.
        unsafe { libc::dlclose(library) };
        assert_equals_truth(&session.snapshot(), true);
    });
}

#[test]
fn calls_of_a_library_that_is_bound_at_once_are_seen() {
    calls_of_a_library_are_seen("now");
}

#[test]
fn calls_of_a_library_that_is_bound_lazily_are_seen() {
    calls_of_a_library_are_seen("lazy");
}
