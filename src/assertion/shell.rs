//! Functions behind the assertion macros.
#![allow(missing_docs, reason = "called only by macros and tests")]

use super::failure::Failure;
pub use super::{Fits, NoGrowth, NoLeak, NoWaste, PeakLimit, Scales};

/// Panics with a failure, under the macro's name.
#[track_caller]
pub fn or_panic<T>(name: &str, result: Result<T, Failure>) -> T {
    match result {
        Ok(value) => value,
        Err(failure) => panic!("{name}: {failure}"),
    }
}

/// Bytes that memtrace itself holds through the watched allocator; constant once warm.
pub fn own_bytes() -> i64 {
    crate::record::untraced::own()
}

/// How often a thread violated the lock order; always 0 without debug assertions.
pub fn locks_out_of_order() -> u64 {
    crate::record::lock::out_of_order()
}
