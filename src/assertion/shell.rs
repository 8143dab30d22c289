//! What the macros come down to.
#![allow(missing_docs, reason = "called by the macros alone")]

use super::failure::Failure;
pub use super::{NoGrowth, NoLeak, PeakLimit, Scales};

/// What became of a part of the macro of this name.
#[track_caller]
pub fn or_panic<T>(name: &str, result: Result<T, Failure>) -> T {
    match result {
        Ok(value) => value,
        Err(failure) => panic!("{name}: {failure}"),
    }
}

/// Bytes that memtrace itself holds through the watched allocator; a constant once warm.
pub fn own_bytes() -> i64 {
    crate::record::untraced::own()
}

/// How often a thread took a lock while it held one that comes later; always 0 in builds without debug assertions.
pub fn locks_out_of_order() -> u64 {
    crate::record::lock::out_of_order()
}
