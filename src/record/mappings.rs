//! Mapped memory: the ranges that the program mapped.

use std::ops::Range;

use memtrace_core::snapshot::StackId;

#[cfg(feature = "preload")]
mod programs;

#[cfg(feature = "preload")]
pub(crate) use programs::{add, forget, programs, remove};

/// A range that the program mapped, with the stack of the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProgramsRange {
    pub(crate) at: Range<usize>,
    pub(crate) stack: StackId,
}

/// Only a preloaded library sees the program map memory.
#[cfg(not(feature = "preload"))]
pub(crate) fn programs() -> Vec<ProgramsRange> {
    Vec::new()
}

#[cfg(not(feature = "preload"))]
pub(super) fn forget() {}
