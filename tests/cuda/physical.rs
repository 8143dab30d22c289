//! Physical memory whose handles and mappings are released in ways that the driver refuses.

use cudarc::driver::CudaContext;
use memtrace::{Device, Session};

use super::raw;
use super::support::on_gpu;
use super::truth::assert_live_equals_truth;

const MIB: usize = 1 << 20;

fn live(session: &Session) -> u64 {
    let snapshot = session.snapshot();
    assert_live_equals_truth(&snapshot);
    assert_eq!(snapshot.health.unknown_frees, 0);
    snapshot.device(Device::Cuda(0)).map_or(0, |gpu| gpu.stats.allocated_bytes.current >> 20)
}

#[test]
fn a_refused_unmapping_leaves_a_handle_mapped_as_often_as_it_was() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        let at = raw::reserve(8 * MIB, 0, 0, 0).unwrap();
        let (twice, once) = (raw::physical(2 * MIB, 0).unwrap(), raw::physical(4 * MIB, 0).unwrap());
        raw::map(at, 2 * MIB, 0, twice, 0).unwrap();
        raw::map(at + (2 << 20), 2 * MIB, 0, twice, 0).unwrap();
        raw::map(at + (4 << 20), 4 * MIB, 0, once, 0).unwrap();
        raw::release_physical(twice).unwrap();
        raw::unmap(at, 6 * MIB).expect_err("it ends within a mapping");
        assert_eq!(live(&session), 6);
        raw::unmap(at, 2 * MIB).unwrap();
        assert_eq!(live(&session), 6, "it is mapped once more");
        raw::unmap(at + (2 << 20), 2 * MIB).unwrap();
        assert_eq!(live(&session), 4);
    });
}

#[test]
fn a_handle_that_was_released_too_often_is_no_reference() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        let handle = raw::physical(4 * MIB, 0).unwrap();
        let at = raw::reserve(4 * MIB, 0, 0, 0).unwrap();
        raw::map(at, 4 * MIB, 0, handle, 0).unwrap();
        raw::release_physical(handle).unwrap();
        raw::release_physical(handle).unwrap_err();
        assert_eq!(live(&session), 4);
        raw::unmap(at, 4 * MIB).unwrap();
        assert_eq!(live(&session), 0);
    });
}

#[test]
fn a_refused_release_leaves_what_it_was_about() {
    on_gpu(&[("MEMTRACE_CUSIM_FAULTS", "fail@free:1;fail@free:3")], || {
        let session = memtrace::start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        let handle = raw::physical(4 * MIB, 0).unwrap();
        raw::release_physical(handle).unwrap_err();
        assert_eq!(live(&session), 4);
        raw::release_physical(handle).unwrap();
        assert_eq!(live(&session), 0);
        let array = raw::array(&mut [1024, 256, 0x20 | 4 << 32]).unwrap();
        raw::array_destroy(array).unwrap_err();
        assert_eq!(live(&session), 4);
        raw::array_destroy(array).unwrap();
        assert_eq!(live(&session), 0);
    });
}
