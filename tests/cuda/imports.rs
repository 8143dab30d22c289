//! Imported memory: IPC handles, external memory, blocks of another process's pool.

use std::ffi::c_void;

use cudarc::driver::CudaContext;
use memtrace::{Device, Session};

use super::raw;
use super::support::on_gpu;
use super::truth::{assert_equals_truth, assert_live_equals_truth, foreign_handle};

fn imported(session: &Session) -> u64 {
    session.snapshot().device(Device::Imported).map_or(0, |device| device.stats.allocated_bytes.current)
}

#[test]
fn a_pointer_of_a_shared_pool_can_be_imported_again_and_again() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        let pool = raw::import_pool(raw::shared_pool(0).unwrap()).unwrap();
        let handle = foreign_handle(5 << 20);
        for _ in 0..3 {
            let address = raw::import_pointer(pool, handle).unwrap();
            assert_eq!(imported(&session), 5 << 20);
            raw::free_async(address, raw::PER_THREAD).unwrap();
            raw::synchronise(raw::PER_THREAD).unwrap();
            assert_eq!(imported(&session), 0);
        }
        let snapshot = session.snapshot();
        assert_equals_truth(&snapshot, true);
        assert_eq!((snapshot.health.unknown_frees, snapshot.health.missed_frees), (0, 0));
    });
}

#[test]
fn what_was_closed_once_too_often_can_be_opened_again() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        let handle = foreign_handle(5 << 20);
        let first = raw::ipc_open(handle).unwrap();
        raw::ipc_close(first).unwrap();
        raw::ipc_close(first).unwrap_err();
        // At the same address, unless another thread took that meanwhile.
        let again = raw::ipc_open(handle).unwrap();
        assert_eq!(imported(&session), 5 << 20);
        raw::ipc_close(again).unwrap();
        let snapshot = session.snapshot();
        assert_equals_truth(&snapshot, true);
        assert_eq!((snapshot.health.unknown_frees, snapshot.health.refused_frees), (0, 1));
    });
}

#[test]
fn a_refused_close_leaves_memory_open_as_often_as_it_was() {
    on_gpu(&[("MEMTRACE_CUSIM_FAULTS", "fail@free:1")], || {
        let session = memtrace::start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        let handle = foreign_handle(5 << 20);
        let address = raw::ipc_open(handle).unwrap();
        raw::ipc_close(address).unwrap_err();
        assert_eq!(imported(&session), 5 << 20);
        raw::ipc_open(handle).unwrap();
        raw::ipc_close(address).unwrap();
        assert_eq!(imported(&session), 5 << 20, "it was open twice");
        raw::ipc_close(address).unwrap();
        assert_eq!(imported(&session), 0);
        assert_live_equals_truth(&session.snapshot());
        assert_eq!(session.snapshot().health.unknown_frees, 0);
    });
}

#[test]
fn a_buffer_of_external_memory_is_freed_as_one_after_calls_that_were_a_mistake() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        let external = raw::external(&mut [1, 0, 0, 4 << 20, 0]).unwrap();
        let buffer = raw::external_buffer(external, 4 << 20).unwrap();
        raw::ipc_close(buffer).unwrap_err();
        raw::host_free(buffer as *mut c_void).unwrap_err();
        raw::free(buffer).unwrap();
        assert_eq!(imported(&session), 4 << 20, "it is part of what is there still");
        raw::external_destroy(external).unwrap();
        let snapshot = session.snapshot();
        assert_live_equals_truth(&snapshot);
        assert_eq!(snapshot.health.unknown_frees, 0);
    });
}

#[test]
fn what_a_context_took_along_can_be_opened_again() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let first = CudaContext::new(0).unwrap();
        let handle = foreign_handle(5 << 20);
        let address = raw::ipc_open(handle).unwrap();
        raw::primary_reset(0).unwrap();
        assert_eq!(imported(&session), 0);
        let second = CudaContext::new(0).unwrap();
        assert_eq!(raw::ipc_open(handle), Ok(address), "the address is used again");
        assert_eq!(imported(&session), 5 << 20);
        assert_live_equals_truth(&session.snapshot());
        // Their buffers are gone.
        std::mem::forget((first, second));
    });
}

#[test]
fn addresses_that_went_while_nothing_was_recorded_are_forgotten() {
    // Another mapping may take the address; then the next try decides.
    on_gpu(&[], || assert!((0..5).any(|_| are_forgotten()), "no address is used again"));
}

/// Nothing is recorded while the context ends and while the buffer is freed. Returns whether the address was reused.
fn are_forgotten() -> bool {
    let first = CudaContext::new(0).unwrap();
    let handle = foreign_handle(5 << 20);
    let address = raw::ipc_open(handle).unwrap();
    raw::primary_reset(0).unwrap();
    let second = CudaContext::new(0).unwrap();
    let external = raw::external(&mut [1, 0, 0, 5 << 20, 0]).unwrap();
    let buffer = raw::external_buffer(external, 5 << 20).unwrap();
    raw::free(buffer).unwrap();
    raw::external_destroy(external).unwrap();
    if buffer != address {
        std::mem::forget((first, second));
        return false;
    }
    // Records as little as possible, because memory for more records could take the buffer's address.
    let session = memtrace::builder().min_size(1u64 << 40).max_entries(100).start().unwrap();
    let pool = raw::import_pool(raw::shared_pool(0).unwrap()).unwrap();
    let again = raw::import_pointer(pool, handle).unwrap();
    assert_eq!(imported(&session), 5 << 20);
    raw::free(again).unwrap();
    assert_eq!(imported(&session), 0);
    assert_eq!(raw::ipc_open(handle), Ok(again), "and again");
    assert_eq!(imported(&session), 5 << 20);
    std::mem::forget((first, second));
    again == address
}
