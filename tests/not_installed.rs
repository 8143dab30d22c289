//! Without memtrace's allocator, measurements fail with a message that names the missing lines.

use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use memtrace::{Device, assert_peak, measure, try_measure};

fn message(failing: fn()) -> String {
    let panic = catch_unwind(failing).unwrap_err();
    *panic.downcast::<String>().unwrap()
}

#[test]
fn a_measurement_without_the_allocator_is_an_error_and_nothing_runs() {
    let mut ran = false;
    let error = try_measure(|| ran = true).unwrap_err();
    assert!(error.to_string().contains("#[global_allocator]"), "{error}");
    assert!(error.to_string().contains("memtrace::Alloc::system()"), "{error}");
    assert!(!ran);
}

static RAN: AtomicBool = AtomicBool::new(false);

#[test]
fn an_assertion_without_the_allocator_panics_with_the_missing_lines() {
    let measured = message(|| drop(measure(|| ())));
    let asserted = message(|| assert_peak!("1 MiB", RAN.store(true, Relaxed)));
    assert!(!RAN.load(Relaxed));
    for text in [measured, asserted] {
        assert!(text.contains("#[global_allocator]"), "{text}");
    }
}

#[test]
fn a_session_without_the_allocator_sees_nothing() {
    let session = memtrace::builder().min_size(0).start().unwrap();
    let block = memtrace::scope("somewhere", || vec![0u8; 10_000]);
    let snapshot = session.snapshot();
    let device = snapshot.device(Device::Cpu).unwrap();
    assert_eq!((device.peak.total(), device.records.len(), device.live.len()), (0, 0, 0));
    drop((block, session));
}
