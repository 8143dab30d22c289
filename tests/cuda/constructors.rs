//! Libraries that ask for the driver's functions before memtrace's hooks are in place, in a constructor, as cuBLASLt does.

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{CUfunction, CUstream};
use memtrace::{Device, Session, Snapshot};

use crate::support::{build_c, driver_folder, function, on_gpu, open};
use crate::{kernels, raw};

/// `kept` is in .bss, `table` in .data beside a word of its own. `memory` is read-only when it has been filled.
const SOURCE: &str = "
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <sys/mman.h>
typedef int (*launch)(void *, int, int, int, int, int, int, int, void *, void **, void **);
static launch kept;
static struct { long own; launch launch; } table = { 42, 0 };
static struct { launch launch; char rest[4088]; } locked __attribute__((aligned(4096)));
__attribute__((constructor)) static void ask(void) {
    void *driver = dlopen(\"libcuda.so.1\", RTLD_NOW);
    kept = table.launch = dlsym(driver, \"cuLaunchKernel\");
#ifdef LOCKED
    locked.launch = kept;
    mprotect(&locked, sizeof locked, PROT_READ);
#endif
}
int by_kept(void *kernel, void *stream, void **arguments) { return kept(kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, 0); }
int by_table(void *kernel, void *stream, void **arguments) { return table.launch(kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, 0); }
int own(void) { return table.own; }
";

const PTX: &[u8] =
    b".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry scale(\n\t.param .u64 a\n)\n{ ret; }\n";
const SIZE: usize = 1 << 20;

type Launch = extern "C" fn(CUfunction, CUstream, *const *const u64) -> i32;

/// Runs a test with such a library, which is initialized before the program if it is preloaded.
fn with_library(flags: &[&str], is_preloaded: bool, body: impl FnOnce()) {
    let folder = tempfile::tempdir().unwrap();
    let library = build_c(folder.path(), "early", SOURCE, flags);
    let library = library.to_str().unwrap();
    let preload = if is_preloaded { library } else { "" };
    let path = driver_folder().to_str().unwrap();
    on_gpu(&[("TEST_LIBRARY", library), ("LD_PRELOAD", preload), ("LD_LIBRARY_PATH", path)], body);
}

/// Launches through both pointers that the library keeps.
fn launches(session: &Session) -> Snapshot {
    let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
    let block = raw::alloc_async(SIZE, stream.cu_stream()).unwrap();
    let kernel = kernels::function(kernels::load(PTX), "scale");
    let library = open(std::env::var("TEST_LIBRARY").unwrap());
    for name in ["by_kept", "by_table"] {
        let arguments = [&raw const block];
        assert_eq!(function::<Launch>(library, name)(kernel, stream.cu_stream(), arguments.as_ptr()), 0);
    }
    assert_eq!(function::<extern "C" fn() -> i32>(library, "own")(), 42, "its own data is unchanged");
    raw::free_async(block, stream.cu_stream()).unwrap();
    session.snapshot()
}

/// The uses of the block, and the names of opaque operations.
fn seen(snapshot: &Snapshot) -> (u64, Vec<&str>) {
    let gpu = snapshot.device(Device::Cuda(0)).unwrap();
    let work = snapshot.gpu_work.as_ref().unwrap();
    let block = gpu.records.iter().find(|record| record.size == SIZE as u64).unwrap();
    let opaque = work.opaque.iter().map(|(kernel, _)| work.kernel(*kernel)).collect();
    (gpu.uses_of(block.alloc_seq).map_or(0, |uses| uses.count), opaque)
}

#[test]
fn launches_of_a_library_that_is_initialized_before_memtrace_are_seen() {
    with_library(&[], true, || {
        let session = memtrace::builder().uses(true).start().unwrap();
        let snapshot = launches(&session);
        assert_eq!(seen(&snapshot), (2, vec![]));
        assert_eq!(snapshot.health.cuda.refused_imports, 0);
    });
}

#[test]
fn a_library_that_is_loaded_during_a_recording_may_have_launched_something() {
    with_library(&[], false, || {
        let session = memtrace::builder().uses(true).start().unwrap();
        let snapshot = launches(&session);
        assert_eq!(seen(&snapshot), (2, vec!["early.so"]));
    });
}

#[test]
fn a_word_that_cannot_be_changed_is_counted_and_nothing_about_uses_is_likely() {
    with_library(&["-DLOCKED"], true, || {
        let session = memtrace::builder().uses(true).start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        raw::alloc_async(8 * SIZE, std::ptr::null_mut()).unwrap();
        let snapshot = launches(&session);
        assert_eq!(seen(&snapshot), (2, vec![]));
        assert_eq!(snapshot.health.cuda.refused_imports, 1);
        let report = snapshot.report().to_string();
        assert!(report.contains("could not be patched"), "{report}");
        assert!(!report.contains("every operation in between is known"), "{report}");
        assert!(report.contains("launches through imports that could not be patched are not seen"), "{report}");
    });
}
