//! Look-ups of driver functions, and which of them are not hooked.

use std::ffi::CStr;

use cudarc::driver::CudaContext;
use memtrace::Device;
use memtrace::snapshot::CudaState;

use crate::raw;
use crate::support::on_gpu;
use crate::truth::{assert_equals_truth, simulator, truth};

const VERSION: i32 = 13000;

type Alloc = extern "C" fn(*mut u64, usize) -> u32;
type AllocAsync = extern "C" fn(*mut u64, usize, usize) -> u32;
type GetProcAddress = extern "C" fn(*const std::ffi::c_char, *mut usize, i32, u64) -> u32;
type GetProcAddressV2 = extern "C" fn(*const std::ffi::c_char, *mut usize, i32, u64, *mut u32) -> u32;

#[test]
fn functions_that_the_driver_is_asked_for_are_ours() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        let mut address = 0;
        // SAFETY: the function has this type.
        let alloc = unsafe { std::mem::transmute::<usize, Alloc>(raw::get_proc_address(c"cuMemAlloc", VERSION, 0)) };
        assert_eq!(alloc(&mut address, 1000), 0);
        // Each of the two functions, looked up through the other one and through itself.
        let older = raw::get_proc_address(c"cuGetProcAddress", 11030, 0);
        // SAFETY: the function has this type.
        let older = unsafe { std::mem::transmute::<usize, GetProcAddress>(older) };
        let mut found = 0;
        assert_eq!(older(c"cuMemAllocAsync".as_ptr(), &mut found, VERSION, 0), 0);
        // SAFETY: the function has this type.
        let alloc_async = unsafe { std::mem::transmute::<usize, AllocAsync>(found) };
        assert_eq!(alloc_async(&mut address, 2000, 0), 0);
        assert_eq!(older(c"cuGetProcAddress".as_ptr(), &mut found, VERSION, 0), 0);
        // SAFETY: the function has this type: version 13 has the newer one under this name.
        let newer = unsafe { std::mem::transmute::<usize, GetProcAddressV2>(found) };
        let per_thread = 2;
        assert_eq!(newer(c"cuMemAllocAsync".as_ptr(), &mut found, VERSION, per_thread, &mut 0), 0);
        // SAFETY: the function has this type.
        let alloc_async = unsafe { std::mem::transmute::<usize, AllocAsync>(found) };
        assert_eq!(alloc_async(&mut address, 3000, 0), 0);
        let snapshot = session.snapshot();
        assert_equals_truth(&snapshot, true);
        assert_eq!(snapshot.device(Device::Cuda(0)).unwrap().peak.bytes, 6000);
    });
}

/// The simulator's own address of a function.
pub(crate) fn real(name: &CStr) -> usize {
    type Dlsym = extern "C" fn(*mut std::ffi::c_void, *const std::ffi::c_char) -> usize;
    // SAFETY: looks up a loaded function; `dlvsym` finds the original `dlsym`, past the hooks.
    let dlsym = unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), c"GLIBC_2.34".as_ptr()) };
    assert!(!dlsym.is_null());
    // SAFETY: the function has this type.
    let dlsym = unsafe { std::mem::transmute::<*mut std::ffi::c_void, Dlsym>(dlsym) };
    // SAFETY: opens a loaded library.
    let driver = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
    dlsym(driver, name.as_ptr())
}

#[test]
fn other_functions_and_other_libraries_are_left_alone() {
    on_gpu(&[], || {
        let _context = CudaContext::new(0).unwrap();
        assert_ne!(simulator(c"cuMemAlloc_v2"), real(c"cuMemAlloc_v2"));
        for name in [c"cuMemGetInfo_v2", c"cuDeviceGetCount", c"cuEventRecord", c"memtrace_cusim_used"] {
            assert_eq!(simulator(name), real(name), "{name:?} neither allocates nor uses memory");
        }
        // SAFETY: looks up a name.
        let ask = |name: &CStr| unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        assert!(!ask(c"getenv").is_null() && ask(c"cuThereIsNone").is_null());
        // SAFETY: returns the text of the last error.
        let error = unsafe { libc::dlerror() };
        // SAFETY: it is valid until the next error.
        let error = unsafe { CStr::from_ptr(error) };
        assert!(error.to_string_lossy().contains("cuThereIsNone"), "{error:?}");
    });
}

#[test]
fn memtrace_0_touches_nothing() {
    on_gpu(&[("MEMTRACE", "0")], || {
        let context = CudaContext::new(0).unwrap();
        assert_eq!(simulator(c"cuMemAlloc_v2"), real(c"cuMemAlloc_v2"));
        let session = memtrace::start().unwrap();
        drop(context.default_stream().alloc_zeros::<u8>(1000).unwrap());
        let snapshot = session.snapshot();
        assert_eq!(snapshot.health.cuda.state, CudaState::TurnedOff);
        assert_eq!(snapshot.health.cuda.imports, 0);
        assert!(snapshot.device(Device::Cuda(0)).is_none());
    });
}

#[test]
fn functions_that_are_not_recorded_are_counted() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        let create = simulator(c"cuMulticastCreate");
        // SAFETY: the simulator's stub ignores its arguments.
        let create = unsafe { std::mem::transmute::<usize, extern "C" fn(*mut u64, usize) -> u32>(create) };
        assert_eq!(create(&mut 0, 0), 801, "it is not simulated");
        let snapshot = session.snapshot();
        let [unseen] = &snapshot.health.cuda.unseen_calls[..] else { panic!("{:?}", snapshot.health) };
        assert_eq!((unseen.function.as_str(), unseen.calls), ("cuMulticastCreate", 1));
        assert!(snapshot.report().to_string().contains("1 calls of cuMulticastCreate"));
        assert_eq!(truth().len(), 0);
    });
}
