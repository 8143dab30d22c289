//! memtrace beside other tools that stand between a program and the driver, and in the ways of loading the driver that other
//! tools of its kind got wrong. docs/cuda.md has the list.

use std::ffi::{CString, c_char, c_int, c_void};

use cudarc::driver::CudaContext;
use cudarc::driver::sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL as THREAD_LOCAL;
use memtrace::{Device, Session};

use crate::harmless::{Answer, library, with_libraries};
use crate::kernels::{self, LaunchForm};
use crate::lookups::real;
use crate::raw;
use crate::support::{build_c, driver_folder, function, on_gpu, open};
use crate::truth::{assert_equals_truth, assert_live_equals_truth};

pub(crate) type Alloc = extern "C" fn(*mut u64, usize) -> c_int;

/// Sizes of live blocks, in the order in which they were allocated.
pub(crate) fn live(session: &Session) -> Vec<u64> {
    let snapshot = session.snapshot();
    snapshot.device(Device::Cuda(0)).map_or(Vec::new(), |gpu| gpu.live.iter().map(|block| block.size).collect())
}

fn open_with(path: &str, flags: c_int) -> *mut c_void {
    let path = CString::new(path).unwrap();
    // SAFETY: the test's library runs no code when it is loaded.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | flags) };
    assert!(!library.is_null());
    library
}

/// A preloaded library that stands before the driver: by `RTLD_NEXT`, and by the driver's own handle.
const WRAPPER: &str = "
#define _GNU_SOURCE
#include <dlfcn.h>
static int calls;
int wrapped(void) { return calls; }
int cuMemAlloc_v2(unsigned long *p, unsigned long n) {
    int (*next)(unsigned long *, unsigned long) = dlsym(RTLD_NEXT, \"cuMemAlloc_v2\");
    calls++;
    return next ? next(p, n) : 99;
}
int cuMemAllocManaged(unsigned long *p, unsigned long n, unsigned flags) {
    int (*next)(unsigned long *, unsigned long, unsigned) = dlsym(dlopen(\"libcuda.so.1\", RTLD_NOW), \"cuMemAllocManaged\");
    calls++;
    return next ? next(p, n, flags) : 99;
}";
const USER: &str = "
int cuMemAlloc_v2(unsigned long *, unsigned long);
int cuMemAllocManaged(unsigned long *, unsigned long, unsigned);
int alloc(unsigned long *p, unsigned long n) { return cuMemAlloc_v2(p, n); }
int managed(unsigned long *p, unsigned long n) { return cuMemAllocManaged(p, n, 1); }";

#[test]
fn another_wrapper_is_called_once_a_call_and_what_it_hides_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let search = format!("-L{}", driver_folder().display());
    let wrapper = build_c(folder.path(), "wrapper", WRAPPER, &[]);
    let user = build_c(folder.path(), "user", USER, &[&search, "-lcuda"]);
    let path = |library: &std::path::Path| library.to_str().unwrap().to_owned();
    on_gpu(&[("LD_PRELOAD", &path(&wrapper)), ("TEST_WRAPPER", &path(&wrapper)), ("TEST_USER", &path(&user))], || {
        let session = memtrace::start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        let [wrapper, user] = ["TEST_WRAPPER", "TEST_USER"].map(|name| open(std::env::var(name).unwrap()));
        let mut address = 0;
        for size in 1..=3 {
            assert_eq!(function::<Alloc>(user, "alloc")(&mut address, size * 1000), 0);
            assert_eq!(function::<Alloc>(user, "managed")(&mut address, size * 100), 0);
        }
        assert_eq!(function::<Answer>(wrapper, "wrapped")(), 6);
        let snapshot = session.snapshot();
        // What the wrapper found as "next" is the driver's own function; what it looked up in the driver is the hook.
        assert!(snapshot.device(Device::Cuda(0)).is_none());
        assert_eq!(snapshot.device(Device::Managed).unwrap().stats.allocated_bytes.current, 600);
        assert!(snapshot.health.cuda.refused_imports >= 1);
        assert!(snapshot.report().to_string().contains("could not be patched"));
    });
}

#[test]
fn who_asks_for_the_next_function_again_and_again_gets_the_same() {
    const LAST: &str = "int cuAnswer(void) { return 42; } int answer(void) { return 43; } int last = 1;";
    const FIRST: &str = "
        #define _GNU_SOURCE
        #include <dlfcn.h>
        extern int last;
        int needs(void) { return last; }
        typedef int (*F)(void);
        int cuAnswer(void) { F next = dlsym(RTLD_NEXT, \"cuAnswer\"); return next == cuAnswer || !next ? -1 : next(); }
        int answer(void) { F next = dlsym(RTLD_NEXT, \"answer\"); return next == answer || !next ? -1 : next(); }";
    with_libraries(&[("last", LAST), ("first", FIRST)], || {
        let _session = memtrace::start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        let (first, last) = (library("first"), library("last"));
        for _ in 0..1000 {
            assert_eq!((function::<Answer>(first, "cuAnswer")(), function::<Answer>(first, "answer")()), (42, 43));
        }
        assert_eq!(function::<Answer>(last, "cuAnswer")(), 42, "a name that only begins like the driver's");
    });
}

#[test]
fn calls_of_libraries_that_see_their_own_names_first_or_are_not_seen_are_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let search = format!("-L{}", driver_folder().display());
    let [deep, local] = ["deep", "local"].map(|name| build_c(folder.path(), name, USER, &[&search, "-lcuda"]));
    on_gpu(&[("TEST_DEEP", deep.to_str().unwrap()), ("TEST_LOCAL", local.to_str().unwrap())], || {
        let session = memtrace::start().unwrap();
        raw::init(0).unwrap();
        let _context = CudaContext::new(0).unwrap();
        let deep = open_with(&std::env::var("TEST_DEEP").unwrap(), libc::RTLD_LOCAL | libc::RTLD_DEEPBIND);
        let local = open_with(&std::env::var("TEST_LOCAL").unwrap(), libc::RTLD_LOCAL);
        let mut address = 0;
        assert_eq!(function::<Alloc>(deep, "alloc")(&mut address, 1000), 0);
        assert_eq!(function::<Alloc>(local, "alloc")(&mut address, 2000), 0);
        assert_eq!(live(&session), [1000, 2000]);
        assert_equals_truth(&session.snapshot(), true);
    });
}

/// As CUDA's static run-time library does, in each program that contains it.
#[test]
fn a_library_that_asks_for_each_function_by_version_and_kind_of_stream_is_seen() {
    const STATIC: &str = "
        #include <dlfcn.h>
        typedef int (*Get)(const char *, void **, int, unsigned long, int *);
        typedef int (*Alloc)(unsigned long *, unsigned long, void *);
        int alloc(unsigned long *p, unsigned long n, int version, unsigned long flags) {
            void *found = 0;
            int status;
            Get get = (Get)dlsym(dlopen(\"libcuda.so.1\", RTLD_NOW | RTLD_LOCAL), \"cuGetProcAddress_v2\");
            if (get(\"cuMemAllocAsync\", &found, version, flags, &status) || !found) return -1;
            return ((Alloc)found)(p, n, 0);
        }";
    with_libraries(&[("static", STATIC)], || {
        let session = memtrace::start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        let alloc = function::<extern "C" fn(*mut u64, usize, c_int, u64) -> c_int>(library("static"), "alloc");
        let mut sizes = Vec::new();
        for (at, version) in [11030, 11080, 12000, 12090, 13000, 13010].into_iter().enumerate() {
            for flags in [0, 1, 2] {
                sizes.push(1000 * (at as u64 + 1) + flags);
                assert_eq!(alloc(&mut 0, sizes[sizes.len() - 1] as usize, version, flags), 0);
            }
        }
        let snapshot = session.snapshot();
        assert_equals_truth(&snapshot, true);
        assert_eq!(live(&session), sizes);
        let streams: Vec<u32> =
            snapshot.device(Device::Cuda(0)).unwrap().live.iter().map(|block| block.stream).collect();
        assert!(streams.chunks(3).all(|of| of == [1, 1, 2]), "the thread's own stream is another: {streams:?}");
    });
}

/// Writes a jump over the start of a function, as tools that hook in place do.
#[test]
fn a_function_that_another_tool_rewrote_in_place_is_recorded_once() {
    const TOOL: &str = "
        #include <string.h>
        #include <sys/mman.h>
        typedef int (*Alloc)(unsigned long *, unsigned long);
        #ifdef __aarch64__
        // ldr x16, 8; br x16; the address
        static unsigned char before[16], jump[16] = { 0x50, 0, 0, 0x58, 0, 0x02, 0x1f, 0xd6 };
        #define ADDRESS 8
        #else
        // movabs rax, the address; jmp rax
        static unsigned char before[12], jump[12] = { 0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0 };
        #define ADDRESS 2
        #endif
        static Alloc target;
        static void write(unsigned char *code) {
            memcpy((void *)target, code, sizeof(before));
            __builtin___clear_cache((char *)target, (char *)target + sizeof(before));
        }
        static int calls;
        int tool_calls(void) { return calls; }
        static int tool(unsigned long *p, unsigned long n) {
            calls++;
            write(before);
            int result = target(p, n);
            write(jump);
            return result;
        }
        int rewrite(Alloc function) {
            unsigned long page = (unsigned long)function & ~4095ul, own = (unsigned long)tool;
            target = function;
            if (mprotect((void *)page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC)) return -1;
            memcpy(before, (void *)target, sizeof(before));
            memcpy(jump + ADDRESS, &own, 8);
            write(jump);
            return 0;
        }";
    with_libraries(&[("tool", TOOL)], || {
        let session = memtrace::start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        let tool = library("tool");
        raw::alloc(1000).unwrap();
        assert_eq!(function::<extern "C" fn(usize) -> c_int>(tool, "rewrite")(real(c"cuMemAlloc_v2")), 0);
        raw::alloc(2000).unwrap();
        // A look-up after the change still gets the hook.
        let found = raw::get_proc_address(c"cuMemAlloc", 13000, 0);
        // SAFETY: the function has this type.
        let found = unsafe { std::mem::transmute::<usize, Alloc>(found) };
        assert_eq!(found(&mut 0, 3000), 0);
        assert_eq!(function::<Answer>(tool, "tool_calls")(), 2);
        assert_eq!(live(&session), [1000, 2000, 3000]);
        assert_equals_truth(&session.snapshot(), true);
    });
}

#[test]
fn physical_memory_needs_no_context_and_may_come_during_a_capture() {
    on_gpu(&[("MEMTRACE_CUSIM_DEVICES", "2")], || {
        let session = memtrace::start().unwrap();
        raw::init(0).unwrap();
        let on_second = raw::physical(2 << 20, 1).unwrap();
        let of = |ordinal| {
            let snapshot = session.snapshot();
            assert_live_equals_truth(&snapshot);
            snapshot.device(Device::Cuda(ordinal)).map_or(0, |gpu| gpu.stats.allocated_bytes.current >> 20)
        };
        assert_eq!((of(0), of(1)), (0, 2));
        let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
        raw::begin_capture(stream.cu_stream(), THREAD_LOCAL).unwrap();
        let captured = raw::alloc_async(3000, stream.cu_stream()).unwrap();
        let during = raw::physical(4 << 20, 0).unwrap();
        std::thread::scope(|scope| scope.spawn(|| raw::release_physical(on_second).unwrap()).join().unwrap());
        assert_eq!((of(0), of(1)), (4, 0));
        let graph = raw::end_capture(stream.cu_stream()).expect("the capture is whole");
        raw::launch(raw::instantiate(graph, 0).unwrap(), stream.cu_stream()).unwrap();
        raw::free_async(captured, stream.cu_stream()).unwrap();
        raw::release_physical(during).unwrap();
        assert_eq!((of(0), of(1)), (0, 0));
        assert_equals_truth(&session.snapshot(), true);
    });
}

/// CUDA's run-time libraries before 11.3 load modules through tables of the driver that have no names.
#[test]
fn a_kernel_whose_module_was_not_seen_is_known_by_the_driver_or_is_opaque() {
    type Load = extern "C" fn(*mut usize, *const u8) -> c_int;
    type Get = extern "C" fn(*mut usize, usize, *const c_char) -> c_int;
    const PTX: &[u8] = b".version 9.0\n.target sm_90\n.visible .entry add(.param .u64 a, .param .u32 n) { ret; }\n\0";
    const CUBIN: &[u8] = include_bytes!("cubins/sm_90.cubin");
    on_gpu(&[], || {
        let session = memtrace::builder().uses(true).start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        let block = raw::alloc_async(1000, raw::PER_THREAD).unwrap();
        let launch = |image: &[u8]| {
            let (mut module, mut kernel) = (0, 0);
            // SAFETY: the function has this type.
            let load = unsafe { std::mem::transmute::<usize, Load>(real(c"cuModuleLoadData")) };
            // SAFETY: the function has this type.
            let get = unsafe { std::mem::transmute::<usize, Get>(real(c"cuModuleGetFunction")) };
            assert_eq!((load(&mut module, image.as_ptr()), get(&mut kernel, module, c"add".as_ptr())), (0, 0));
            kernels::launch(
                kernel as *mut _,
                LaunchForm::Plain,
                &[vec![block], vec![0], vec![0], vec![5]],
                raw::PER_THREAD,
            );
            let snapshot = session.snapshot();
            let uses = *snapshot.device(Device::Cuda(0)).unwrap().uses.first().unwrap();
            (uses.count, uses.known_last().is_some(), snapshot.gpu_work.as_ref().unwrap().opaque_operations())
        };
        // The simulated driver says the parameters of PTX only.
        assert_eq!(launch(PTX), (1, true, 0));
        assert_eq!(launch(CUBIN), (1, false, 1));
    });
}

#[test]
fn a_second_copy_of_the_driver_is_not_taken_for_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy.so");
    std::fs::copy(driver_folder().join("libcuda.so.1"), &copy).unwrap();
    on_gpu(&[("TEST_COPY", copy.to_str().unwrap())], || {
        let session = memtrace::start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        raw::alloc(1000).unwrap();
        let other = open_with(&std::env::var("TEST_COPY").unwrap(), libc::RTLD_LOCAL);
        let mut context = 0;
        assert_eq!(function::<extern "C" fn(u32) -> c_int>(other, "cuInit")(0), 0);
        let retain = function::<extern "C" fn(*mut usize, c_int) -> c_int>(other, "cuDevicePrimaryCtxRetain");
        assert_eq!(retain(&mut context, 0), 0);
        assert_eq!(function::<extern "C" fn(usize) -> c_int>(other, "cuCtxSetCurrent")(context), 0);
        let mut address = 0;
        assert_eq!(function::<Alloc>(other, "cuMemAlloc_v2")(&mut address, 2000), 0);
        assert_eq!(function::<extern "C" fn(u64) -> c_int>(other, "cuMemFree_v2")(address), 0);
        raw::alloc(3000).unwrap();
        assert_eq!(live(&session), [1000, 3000]);
        assert_equals_truth(&session.snapshot(), true);
    });
}
