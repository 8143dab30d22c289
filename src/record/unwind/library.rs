//! Unwinding by the `backtrace` crate. On unix this is libgcc's or libunwind's unwinder.
#![expect(unsafe_code, reason = "backtrace::trace takes a process-wide lock")]

use super::collector::Collector;

/// Takes every frame outside the one whose stack pointer is `inside`. Always succeeds.
pub(in crate::record::unwind) fn walk(inside: u64, collector: &mut Collector<'_>) -> bool {
    let mut outside = inside == 0;
    let visit = |frame: &backtrace::Frame| {
        // This check is only for the first frames: further out, a coroutine's stack may continue at lower addresses.
        outside = outside || frame.sp().addr() as u64 > inside;
        !outside || collector.take(frame.ip() as u64)
    };
    // SAFETY: on unix this is libgcc's or libunwind's thread-safe unwinder; only Windows needs the lock. The closure
    // neither allocates nor panics.
    unsafe { backtrace::trace_unsynchronized(visit) };
    true
}
