//! What must stay as it is, whatever the program and its libraries look like.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use cudarc::driver::CudaContext;
use memtrace::Device;

use crate::raw;
use crate::support::{build_c, function, on_gpu, open};
use crate::truth::assert_live_equals_truth;

type Answer = extern "C" fn() -> i32;

/// Builds each of the sources and passes their paths to the child as `TEST_` and the name.
fn with_libraries(libraries: &[(&str, &str)], body: impl FnOnce()) {
    let folder = tempfile::tempdir().unwrap();
    let search = format!("-L{}", folder.path().display());
    let build = |(name, source): &(&str, &str)| {
        let needed: Vec<&str> = libraries.iter().map(|(other, _)| *other).take_while(|other| other != name).collect();
        let flags: Vec<String> = needed.iter().map(|other| format!("-l:{other}.so")).collect();
        let run_path = format!("-Wl,-rpath,{}", folder.path().display());
        let flags: Vec<&str> = flags.iter().map(String::as_str).chain([search.as_str(), &run_path]).collect();
        (format!("TEST_{name}"), build_c(folder.path(), name, source, &flags).to_str().unwrap().to_owned())
    };
    let in_child = std::env::var_os("TEST_LIBRARIES").is_some();
    let built: Vec<(String, String)> = if in_child { Vec::new() } else { libraries.iter().map(build).collect() };
    let mut variables: Vec<(&str, &str)> = built.iter().map(|(name, path)| (name.as_str(), path.as_str())).collect();
    variables.push(("TEST_LIBRARIES", "1"));
    on_gpu(&variables, body);
}

fn library(name: &str) -> *mut c_void {
    open(std::env::var(format!("TEST_{name}")).unwrap())
}

#[test]
fn functions_of_another_library_under_the_drivers_names_stay_its_own() {
    const OTHER: &str = "int cuMemAlloc_v2(unsigned long *p, unsigned long n) { return 42; }";
    const USER: &str = "int cuMemAlloc_v2(unsigned long *, unsigned long); \
        int go(void) { unsigned long p; return cuMemAlloc_v2(&p, 10); }";
    with_libraries(&[("other", OTHER), ("user", USER)], || {
        let session = memtrace::start().unwrap();
        assert_eq!(function::<Answer>(library("user"), "go")(), 42, "without a driver");
        let _context = CudaContext::new(0).unwrap();
        assert_eq!(function::<Answer>(library("user"), "go")(), 42, "with one");
        let asked = function::<extern "C" fn(*mut u64, usize) -> i32>(library("other"), "cuMemAlloc_v2");
        assert_eq!(asked(&mut 0, 10), 42, "asked for by name");
        assert!(session.snapshot().device(Device::Cuda(0)).is_none());
    });
}

#[test]
fn what_is_not_there_stays_away_and_variables_stay_the_programs() {
    const WEAK: &str = "extern int cuMemFree_v2(unsigned long) __attribute__((weak)); \
        int has_cuda(void) { return cuMemFree_v2 != 0; }";
    const VARIABLE: &str = "#include <dlfcn.h>\n typedef void *(*F)(void *, const char *); \
        static void *mine(void *h, const char *n) { return 0; } F kept = dlsym; \
        int change(void) { kept = mine; return 0; } int is_mine(void) { return kept == mine; }";
    const PACKED: &str = "#include <dlfcn.h>\n struct __attribute__((packed)) { char c; \
        void *(*f)(void *, const char *); } packed = {1, dlsym}; \
        int works(void) { return packed.f(RTLD_DEFAULT, \"getenv\") != 0; }";
    with_libraries(&[("weak", WEAK), ("variable", VARIABLE), ("packed", PACKED)], || {
        let session = memtrace::start().unwrap();
        assert_eq!(function::<Answer>(library("weak"), "has_cuda")(), 0);
        let variable = library("variable");
        function::<Answer>(variable, "change")();
        assert_eq!(function::<Answer>(library("packed"), "works")(), 1);
        assert_eq!(function::<Answer>(variable, "is_mine")(), 1);
        // As often as they are looked through, there is one that cannot be changed.
        drop(session);
        for _ in 0..2 {
            assert_eq!(memtrace::start().unwrap().snapshot().health.cuda.refused_imports, 1);
        }
    });
}

#[test]
fn errno_and_dlerror_are_the_programs() {
    with_libraries(&[("empty", "int empty(void) { return 1; }")], || {
        // SAFETY: gives the thread's last error.
        assert!(unsafe { libc::dlerror() }.is_null(), "nothing of ours is left over");
        let empty = library("empty");
        // SAFETY: this thread's own place.
        let errno = unsafe { libc::__errno_location() };
        for name in ["empty", "empty"] {
            // SAFETY: it is valid.
            unsafe { errno.write(77) };
            assert_eq!(function::<Answer>(empty, name)(), 1);
            // SAFETY: it is valid.
            assert_eq!(unsafe { errno.read() }, 77);
        }
        drop(memtrace::start().unwrap());
        // SAFETY: gives the thread's last error.
        assert!(unsafe { libc::dlerror() }.is_null(), "nor after a session");
    });
}

/// A library whose imports take the loader a while to fill in, looked at meanwhile.
#[test]
fn libraries_can_be_loaded_while_others_are_looked_up() {
    const LARGE: &str = "#include <dlfcn.h>\n static char c; \
        const char *const table[1000000] = {[0 ... 999999] = &c}; \
        int large(void) { return dlsym(RTLD_DEFAULT, \"getenv\") != 0 && table[5] == &c; }";
    with_libraries(&[("large", LARGE)], || {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    drop(memtrace::start().unwrap());
                    ask(c"cuMemAlloc_v2");
                }
            });
            for _ in 0..20 {
                let large = library("large");
                assert_eq!(function::<Answer>(large, "large")(), 1);
                // SAFETY: nothing of it is used any more.
                unsafe { libc::dlclose(large) };
            }
            done.store(true, Ordering::Relaxed);
        });
    });
}

fn ask(name: &CStr) -> usize {
    // SAFETY: the name ends with a zero byte.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) as usize }
}

#[test]
fn children_of_a_program_that_looks_functions_up_do_not_hang() {
    on_gpu(&[], || {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    ask(c"getenv");
                }
            });
            for _ in 0..300 {
                // SAFETY: the child calls what a child may call besides a look-up, and ends.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    // SAFETY: ends the child if it hangs.
                    unsafe { libc::alarm(5) };
                    let found = ask(c"malloc");
                    // SAFETY: ends the process without anything of the parent's.
                    unsafe { libc::_exit(i32::from(found == 0)) };
                }
                let mut status = -1;
                // SAFETY: waits for our child.
                unsafe { libc::waitpid(child, &mut status, 0) };
                assert_eq!(status, 0);
            }
            done.store(true, Ordering::Relaxed);
        });
    });
}

/// A driver whose stream 0x10 is being captured: the simulated one refuses to allocate there.
#[test]
fn memory_of_graphs_is_counted_and_not_recorded() {
    const DRIVER: &str = "
        static unsigned long next = 0x7f0000000000;
        int cuMemAllocAsync(unsigned long *p, unsigned long n, void *s) { *p = next += 512; return 0; }
        int cuMemFreeAsync(unsigned long p, void *s) { return 0; }
        int cuDeviceGetCount(int *count) { *count = 1; return 0; }
        int cuStreamBeginCapture_v2(void *s, int mode) { return 0; }
        int cuStreamEndCapture(void *s, void **graph) { return 0; }
        int cuStreamIsCapturing(void *s, int *status) { *status = s == (void *)0x10; return 0; }";
    let folder = tempfile::tempdir().unwrap();
    let built = build_c(folder.path(), "driver", DRIVER, &["-Wl,-soname,libcuda.so.1"]);
    std::fs::rename(built, folder.path().join("libcuda.so.1")).unwrap();
    on_gpu(&[("LD_LIBRARY_PATH", folder.path().to_str().unwrap())], || {
        let session = memtrace::start().unwrap();
        let driver = open("libcuda.so.1");
        let alloc = function::<extern "C" fn(*mut u64, usize, usize) -> i32>(driver, "cuMemAllocAsync");
        let free = function::<extern "C" fn(u64, usize) -> i32>(driver, "cuMemFreeAsync");
        let begin = function::<extern "C" fn(usize, i32) -> i32>(driver, "cuStreamBeginCapture_v2");
        let end = function::<extern "C" fn(usize, *mut usize) -> i32>(driver, "cuStreamEndCapture");
        let (mut kept, mut address) = (0, 0);
        assert_eq!(alloc(&mut kept, 1000, 0x20), 0);
        assert_eq!(begin(0x10, 0), 0);
        assert_eq!(alloc(&mut address, 2000, 0x10), 0);
        assert_eq!(free(kept, 0x10), 0);
        assert_eq!(alloc(&mut address, 3000, 0x20), 0);
        assert_eq!(end(0x10, &mut 0), 0);
        assert_eq!(alloc(&mut address, 4000, 0x10), 0);
        let snapshot = session.snapshot();
        let gpu = snapshot.device(Device::Cuda(0)).unwrap();
        assert_eq!(gpu.live.iter().map(|block| block.size).collect::<Vec<_>>(), [1000, 3000, 4000]);
        let unseen: Vec<_> = snapshot.health.cuda.unseen_calls.iter().map(|unseen| unseen.calls).collect();
        assert_eq!(unseen, [2]);
        assert!(snapshot.report().to_string().contains("under stream capture"));
    });
}

#[test]
fn the_capture_mode_of_a_thread_stays_its_own() {
    use cudarc::driver::sys::CUstreamCaptureMode_enum::{
        CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
    };
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let context = CudaContext::new(0).unwrap();
        let block = context.default_stream().alloc_zeros::<u8>(100).unwrap();
        assert_eq!(raw::exchange_mode(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CU_STREAM_CAPTURE_MODE_GLOBAL);
        assert_live_equals_truth(&session.snapshot());
        assert_eq!(raw::exchange_mode(CU_STREAM_CAPTURE_MODE_GLOBAL), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
        drop(block);
    });
}
