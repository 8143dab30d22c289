//! Mapped memory: memtrace's own pages, and the ranges that the program mapped.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

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

/// Start and size of memtrace's own pages; a start of 0 marks a free entry. Pages without an entry count as the
/// program's.
static OWN: [(AtomicUsize, AtomicUsize); 512] = [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; 512];

// Relaxed everywhere: a reader of an entry that changes meanwhile is wrong about one table, once.
pub(super) fn add_own(start: usize, size: usize) {
    let place = OWN.iter().find(|(place, _)| place.compare_exchange(0, start, Relaxed, Relaxed).is_ok());
    if let Some((_, length)) = place {
        length.store(size, Relaxed);
    }
}

pub(super) fn remove_own(start: usize) {
    let place = OWN.iter().find(|(place, _)| place.load(Relaxed) == start);
    if let Some((place, length)) = place {
        length.store(0, Relaxed);
        place.store(0, Relaxed);
    }
}

pub(crate) fn own() -> impl Iterator<Item = Range<usize>> {
    let range = |(start, size): &(AtomicUsize, AtomicUsize)| {
        let start = start.load(Relaxed);
        start..start.saturating_add(size.load(Relaxed))
    };
    OWN.iter().map(range).filter(|range| !range.is_empty())
}
