//! A program without memtrace's allocator.
#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "`child.rs` sets an alarm")]

#[path = "support/child.rs"]
mod child;

use child::in_child;

const CURE: &str = "static ALLOC: memtrace::Alloc = memtrace::Alloc::system();";

#[test]
fn a_missing_allocator_is_reported_at_the_start_and_in_the_report() {
    let child = in_child(&[], || {
        let session = memtrace::start().unwrap();
        let _kept = std::hint::black_box(vec![0u8; 1 << 20]);
        let snapshot = session.snapshot();
        assert!(snapshot.health.no_allocator);
        println!("{}", snapshot.report());
    });
    assert!(child.errors.contains("memtrace sees no allocations") && child.errors.contains(CURE), "{child}");
    assert!(child.out.contains("nothing was recorded") && child.out.contains(CURE), "{child}");
}

#[test]
fn an_inactive_session_does_not_report_it() {
    let child = in_child(&[("MEMTRACE", "off")], || drop(memtrace::start().unwrap()));
    assert!(!child.errors.contains("sees no allocations"), "{child}");
}

#[test]
fn a_recording_of_a_gpu_alone_does_not_report_it() {
    let child = in_child(&[], || drop(memtrace::builder().device(memtrace::Device::Cuda(0)).start().unwrap()));
    assert!(!child.errors.contains("sees no allocations"), "{child}");
}
