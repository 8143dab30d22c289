//! Libraries that a program loads at run time, and that call the driver.

use cudarc::driver::CudaContext;
use memtrace::analysis::{self, BalanceItem};
use memtrace::{Device, DeviceView, attribute};

use crate::support::{build_c, driver_folder, function, on_gpu, open};
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

type Alloc = extern "C" fn(*mut u64, usize) -> i32;
type Free = extern "C" fn(u64) -> i32;

fn calls_of_a_library_are_seen(binding: &str) {
    let folder = tempfile::tempdir().unwrap();
    let (binding, search) = (format!("-Wl,-z,{binding}"), format!("-L{}", driver_folder().display()));
    let library = build_c(folder.path(), "plugin", SOURCE, &[&binding, "-Wl,-z,relro", &search, "-lcuda"]);
    on_gpu(&[("TEST_LIBRARY", library.to_str().unwrap())], || {
        let session = memtrace::start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        let library = open(std::env::var("TEST_LIBRARY").unwrap());
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
        let categories = DeviceView::of(&snapshot, gpu).categories().clone();
        // The stack keeps the call that entered the library, which attributes the block to it.
        for (block, name) in gpu.live.iter().zip(["plain", "pointed"].into_iter().cycle()) {
            assert_eq!(attribute::library(&attribute::Attribution::new(&snapshot), block.stack), Some("plugin.so"));
            assert_eq!(categories.get(block.seq), memtrace::Category::Workspace);
            assert!(snapshot.stacks.frames(block.stack).any(|frame| frame.function.as_deref() == Some(name)));
        }
        let rows = analysis::balance(&DeviceView::of(&snapshot, gpu)).unwrap().rows;
        let taken: Vec<i64> = rows
            .iter()
            .filter(|row| row.item == BalanceItem::Library("plugin.so".into()))
            .map(|row| row.bytes)
            .collect();
        assert_eq!(taken, [2 * (1000 + 1001 + 1002)]);
        assert!(snapshot.health.cuda.imports > 0);
        assert_eq!(snapshot.health.cuda.refused_imports, 0);
        // SAFETY: nothing uses the library any more; its blocks belong to the driver.
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
