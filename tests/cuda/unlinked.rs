//! Programs that are not linked against the driver.

use std::ffi::{c_char, c_int};

use cudarc::driver::CudaContext;
use memtrace::Device;
use memtrace::snapshot::CudaState;

use crate::child;
use crate::harmless::{Answer, library, with_libraries};
use crate::other_layers::{Alloc, live};
use crate::support::{build_c, function, on_gpu, open};

#[test]
fn without_cuda_nothing_is_there_and_nothing_is_said() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let snapshot = session.snapshot();
        assert_eq!(snapshot.health.cuda.state, CudaState::NotLoaded);
        assert!(!snapshot.report().to_string().contains("CUDA"));
        assert_eq!(snapshot.devices.iter().map(|d| d.device).collect::<Vec<_>>(), [Device::Cpu]);
        // SAFETY: looks up a library that must not be loaded.
        assert!(unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) }.is_null());
    });
    // No driver is needed, either.
    child::ended(child::command(&[]).env_remove("LD_LIBRARY_PATH")).well();
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
        // Every pass finds the same one import that cannot be changed.
        drop(session);
        for _ in 0..2 {
            assert_eq!(memtrace::start().unwrap().snapshot().health.cuda.refused_imports, 1);
        }
    });
}

/// Runs `body` with a driver that is built from this C source.
fn on_driver(source: &str, variables: &[(&str, &str)], body: impl FnOnce()) -> String {
    let folder = tempfile::tempdir().unwrap();
    let built = build_c(folder.path(), "driver", source, &["-Wl,-soname,libcuda.so.1"]);
    std::fs::rename(built, folder.path().join("libcuda.so.1")).unwrap();
    let path = ("LD_LIBRARY_PATH", folder.path().to_str().unwrap());
    on_gpu(&[&[path], variables].concat(), body)
}

/// A driver whose stream 0x10 is being captured. The simulated driver refuses to allocate there.
#[test]
fn memory_of_graphs_is_counted_and_not_recorded() {
    const DRIVER: &str = "
        static unsigned long next = 0x7f0000000000;
        static int captures = 0;
        int cuMemAllocAsync(unsigned long *p, unsigned long n, void *s) { *p = next += 512; return 0; }
        int cuMemFreeAsync(unsigned long p, void *s) { return 0; }
        int cuDeviceGetCount(int *count) { *count = 1; return 0; }
        int cuStreamBeginCapture_v2(void *s, int mode) { captures = 1; return 0; }
        int cuStreamEndCapture(void *s, void **graph) { captures = 0; return 0; }
        int cuStreamIsCapturing(void *s, int *status) { *status = captures && s == (void *)0x10; return 0; }";
    on_driver(DRIVER, &[], || {
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

/// A driver that does not report the graph of a capture, as before CUDA 11.3.
#[test]
fn a_launch_of_a_graph_that_the_driver_did_not_report_is_unknown_work() {
    const DRIVER: &str = "
        static int captures = 0;
        int cuDeviceGetCount(int *count) { *count = 1; return 0; }
        int cuMemAlloc_v2(unsigned long *p, unsigned long n) { *p = 0x7f0000000000; return 0; }
        int cuMemsetD8Async(unsigned long p, unsigned char c, unsigned long n, void *s) { return 0; }
        int cuStreamBeginCapture_v2(void *s, int mode) { captures = 1; return 0; }
        int cuStreamEndCapture(void *s, void **graph) { captures = 0; *graph = (void *)0x20; return 0; }
        int cuStreamIsCapturing(void *s, int *status) { *status = captures && s == (void *)0x10; return 0; }
        int cuGraphInstantiateWithFlags(void **p, void *graph, unsigned long long flags) { *p = (void *)0x30; return 0; }
        int cuGraphLaunch(void *program, void *s) { return 0; }";
    on_driver(DRIVER, &[], || {
        let session = memtrace::builder().uses(true).start().unwrap();
        let driver = open("libcuda.so.1");
        let (mut block, mut graph, mut program) = (0, 0, 0);
        assert_eq!(function::<Alloc>(driver, "cuMemAlloc_v2")(&mut block, 1000), 0);
        assert_eq!(function::<extern "C" fn(usize, i32) -> i32>(driver, "cuStreamBeginCapture_v2")(0x10, 0), 0);
        let fill = function::<extern "C" fn(u64, u8, usize, usize) -> i32>(driver, "cuMemsetD8Async");
        assert_eq!(fill(block, 0, 1000, 0x10), 0);
        assert_eq!(
            function::<extern "C" fn(usize, *mut usize) -> i32>(driver, "cuStreamEndCapture")(0x10, &mut graph),
            0
        );
        let instantiate =
            function::<extern "C" fn(*mut usize, usize, u64) -> i32>(driver, "cuGraphInstantiateWithFlags");
        assert_eq!(instantiate(&mut program, graph, 0), 0);
        assert_eq!(function::<extern "C" fn(usize, usize) -> i32>(driver, "cuGraphLaunch")(program, 0x10), 0);
        let snapshot = session.snapshot();
        let gpu = snapshot.device(Device::Cuda(0)).unwrap();
        assert!(!gpu.uses_of(gpu.live[0].seq).unwrap().is_unused(), "the launch may have used it");
        assert_eq!(snapshot.gpu_work.as_ref().unwrap().opaque_operations(), 1);
        assert!(snapshot.health.cuda.unseen_calls.is_empty(), "no memory was allocated or freed under capture");
    });
}

/// A driver library that loads another one, which does the work, as on Windows' Linux.
#[test]
fn a_driver_that_passes_calls_on_to_another_library_is_recorded_once() {
    const INNER: &str = "
        static unsigned long next = 0x7f0000000000;
        int cuInit(unsigned flags) { return 0; }
        int cuDeviceGetCount(int *count) { *count = 1; return 0; }
        int cuMemAlloc_v2(unsigned long *p, unsigned long n) { *p = next += 1 << 20; return 0; }
        int cuMemFree_v2(unsigned long p) { return 0; }";
    const OUTER: &str = "
        #include <dlfcn.h>
        #include <stdlib.h>
        static void *find(const char *name) {
            void *inner = dlopen(getenv(\"TEST_INNER\"), RTLD_NOW | RTLD_LOCAL);
            dlsym(dlopen(\"libcuda.so.1\", RTLD_NOW), name);
            return dlsym(inner, name);
        }
        int cuInit(unsigned flags) { return ((int (*)(unsigned))find(\"cuInit\"))(flags); }
        int cuDeviceGetCount(int *count) { return ((int (*)(int *))find(\"cuDeviceGetCount\"))(count); }
        int cuMemAlloc_v2(unsigned long *p, unsigned long n) {
            return ((int (*)(unsigned long *, unsigned long))find(\"cuMemAlloc_v2\"))(p, n);
        }
        int cuMemFree_v2(unsigned long p) { return ((int (*)(unsigned long))find(\"cuMemFree_v2\"))(p); }";
    let folder = tempfile::tempdir().unwrap();
    let inner = build_c(folder.path(), "inner", INNER, &["-Wl,-soname,libcuda.so.1.inner"]);
    let inner = inner.to_str().unwrap().to_owned();
    on_driver(OUTER, &[("TEST_INNER", &inner)], || {
        let session = memtrace::start().unwrap();
        let driver = open("libcuda.so.1");
        assert_eq!(function::<extern "C" fn(u32) -> c_int>(driver, "cuInit")(0), 0);
        let (mut first, mut second) = (0, 0);
        let alloc = function::<Alloc>(driver, "cuMemAlloc_v2");
        assert_eq!((alloc(&mut first, 1000), alloc(&mut second, 2000)), (0, 0));
        assert_eq!(function::<extern "C" fn(u64) -> c_int>(driver, "cuMemFree_v2")(first), 0);
        assert_eq!(live(&session), [2000]);
        let records = session.snapshot().device(Device::Cuda(0)).unwrap().records.len();
        assert_eq!((records, session.snapshot().health.unknown_frees), (3, 0));
    });
}

/// A driver that is older than what programs may ask for.
#[test]
fn functions_that_an_old_driver_does_not_have_stay_away() {
    const OLD: &str = "
        static unsigned long next = 0x7f0000000000;
        int cuInit(unsigned flags) { return 0; }
        int cuDeviceGetCount(int *count) { *count = 1; return 0; }
        int cuMemAlloc_v2(unsigned long *p, unsigned long n) { *p = next += 1 << 20; return 0; }
        int cuGetProcAddress(const char *name, void **found, int version, unsigned long flags) {
            *found = 0;
            return 500;
        }";
    on_driver(OLD, &[], || {
        let session = memtrace::start().unwrap();
        let driver = open("libcuda.so.1");
        for name in [c"cuMemAllocAsync", c"cuGetProcAddress_v2", c"cuCtxDestroy_v2", c"cuMemMapArrayAsync"] {
            // SAFETY: the handle is open and the name ends with a zero byte.
            assert!(unsafe { libc::dlsym(driver, name.as_ptr()) }.is_null(), "{name:?}");
        }
        type Get = extern "C" fn(*const c_char, *mut usize, c_int, u64) -> c_int;
        let (get, mut found) = (function::<Get>(driver, "cuGetProcAddress"), 7);
        assert_eq!((get(c"cuMemAllocAsync".as_ptr(), &mut found, 11020, 0), found), (500, 0));
        assert_eq!(function::<Alloc>(driver, "cuMemAlloc_v2")(&mut 0, 1000), 0);
        assert_eq!(live(&session), [1000]);
    });
}

/// The first images of this file are compressed with LZ4.
const COMPRESSED: &[u8] = include_bytes!("cubins/lz4.fatbin");

/// Loads compressed images on a driver with these functions, too, and prints how many launches had known parameters.
fn launches_from_compressed_images(more: &str) -> String {
    const DRIVER: &str = "
        int cuInit(unsigned flags) { return 0; }
        int cuDeviceGetCount(int *count) { *count = 1; return 0; }
        int cuMemAlloc_v2(unsigned long *p, unsigned long n) { *p = 0x7f0000000000; return 0; }
        int cuModuleLoadData(void **module, const void *image) { *module = (void *)0x10; return 0; }
        int cuModuleGetFunction(void **f, void *module, const char *name) { *f = (void *)0x20; return 0; }
        int cuLaunchKernel(void *f, unsigned x, unsigned y, unsigned z, unsigned a, unsigned b, unsigned c,
            unsigned shared, void *stream, void **arguments, void **extra) { return 0; }";
    on_driver(&format!("{DRIVER}{more}"), &[], || {
        let session = memtrace::builder().uses(true).start().unwrap();
        let driver = open("libcuda.so.1");
        let (mut block, mut module, mut kernel) = (0_u64, 0_usize, 0_usize);
        assert_eq!(function::<Alloc>(driver, "cuMemAlloc_v2")(&mut block, 1000), 0);
        type Load = extern "C" fn(*mut usize, *const u8) -> c_int;
        assert_eq!(function::<Load>(driver, "cuModuleLoadData")(&mut module, COMPRESSED.as_ptr()), 0);
        type Get = extern "C" fn(*mut usize, usize, *const c_char) -> c_int;
        assert_eq!(function::<Get>(driver, "cuModuleGetFunction")(&mut kernel, module, c"add".as_ptr()), 0);
        type Launch = extern "C" fn(usize, u32, u32, u32, u32, u32, u32, u32, usize, *const *const u64, usize) -> c_int;
        let values = [block, 0, 0, 5];
        let arguments = values.each_ref().map(std::ptr::from_ref);
        let launch = function::<Launch>(driver, "cuLaunchKernel");
        assert_eq!(launch(kernel, 1, 1, 1, 1, 1, 1, 0, 0, arguments.as_ptr(), 0), 0);
        let totals = session.snapshot().gpu_work.as_ref().unwrap().totals;
        eprintln!("{} of {} launches", totals.laid_out, totals.launches);
    })
}

#[test]
fn compressed_images_are_read_if_the_driver_does_not_tell_parameters() {
    assert!(launches_from_compressed_images("").contains("1 of 1 launches"));
}

#[test]
fn compressed_images_are_not_read_if_the_driver_tells_parameters() {
    const TELLS: &str = "
        int cuFuncGetParamInfo(void *f, unsigned long i, unsigned long *offset, unsigned long *size) { return 1; }";
    assert!(launches_from_compressed_images(TELLS).contains("0 of 1 launches"));
}
