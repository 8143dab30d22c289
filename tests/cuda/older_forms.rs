//! Older forms of functions, which take the same arguments at another address. `dlsym` gives them for a name without suffix, and
//! `cuGetProcAddress` to programs for older versions of CUDA.

use std::ffi::CStr;

use cudarc::driver::CudaContext;
use memtrace::{Device, Session};

use crate::raw;
use crate::support::on_gpu;
use crate::truth::{assert_live_equals_truth, simulator};

/// Calls a function with one argument, a handle or the number of a device.
fn call(name: &CStr, argument: usize) {
    // SAFETY: these functions have this type.
    let function = unsafe { std::mem::transmute::<usize, extern "C" fn(usize) -> u32>(simulator(name)) };
    assert_eq!(function(argument), 0, "{name:?}");
}

fn live(session: &Session, device: Device) -> u64 {
    let snapshot = session.snapshot();
    assert_live_equals_truth(&snapshot);
    snapshot.device(device).map_or(0, |device| device.stats.allocated_bytes.current)
}

#[test]
fn contexts_end_by_older_forms() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        call(c"cuInit", 0);
        let other = raw::context_create(std::ptr::null_mut(), 0, 0).unwrap();
        raw::alloc(1000).unwrap();
        assert_eq!(live(&session, Device::Cuda(0)), 1000);
        call(c"cuCtxDestroy", other.addr());
        assert_eq!(live(&session, Device::Cuda(0)), 0);
        for end in [c"cuDevicePrimaryCtxRelease", c"cuDevicePrimaryCtxReset"] {
            raw::set_current(raw::primary_retain(0).unwrap()).unwrap();
            raw::alloc(2000).unwrap();
            assert_eq!(live(&session, Device::Cuda(0)), 2000);
            call(end, 0);
            assert_eq!(live(&session, Device::Cuda(0)), 0, "{end:?}");
        }
    });
}

#[test]
fn memory_that_an_older_form_registers_is_pinned() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        let mut memory = vec![0u8; 5000];
        let register = simulator(c"cuMemHostRegister");
        // SAFETY: the function has this type.
        let register = unsafe { std::mem::transmute::<usize, extern "C" fn(*mut u8, usize, u32) -> u32>(register) };
        assert_eq!(register(memory.as_mut_ptr(), 5000, 0), 0);
        assert_eq!(live(&session, Device::Pinned), 5000);
    });
}
