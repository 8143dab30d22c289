//! Stacks as the `backtrace` crate takes them: on unix with libgcc's or libunwind's unwinder.
#![expect(unsafe_code, reason = "the unsynchronised unwinder: the synchronised one takes a process-wide lock")]

use super::collector::Collector;

/// Takes every frame outside of the one whose stack pointer is `inside`. Always succeeds.
pub(in crate::record::unwind) fn walk(inside: u64, collector: &mut Collector<'_>) -> bool {
    let mut outside = inside == 0;
    let visit = |frame: &backtrace::Frame| {
        // Only the first frames: further out a stack may go on at lower addresses, as a coroutine's does.
        outside = outside || frame.sp().addr() as u64 > inside;
        !outside || collector.take(frame.ip() as u64)
    };
    // SAFETY: on unix `trace_unsynchronized` calls libgcc's or libunwind's thread-safe unwinder
    // (only its Windows form needs the lock). The closure neither allocates nor panics.
    unsafe { backtrace::trace_unsynchronized(visit) };
    true
}
