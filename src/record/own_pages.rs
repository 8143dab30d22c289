//! Where memtrace's own pages are.
#![cfg_attr(unix, expect(unsafe_code, reason = "asks for the size of a page"))]

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The size of a page of this system: 4 KiB on x86-64; 4, 16 or 64 KiB on aarch64.
#[cfg(unix)]
pub(crate) fn page_size() -> usize {
    // SAFETY: returns a number.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(0).max(4096)
}

/// Start and size of memtrace's own pages; a start of 0 marks a free entry. Pages without an entry count as the
/// program's.
static OWN: [(AtomicUsize, AtomicUsize); 512] = [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; 512];

// All accesses are relaxed: a reader that meets a changing entry is wrong about the pages of one table, once.
pub(super) fn add(start: usize, size: usize) {
    let place = OWN.iter().find(|(place, _)| place.compare_exchange(0, start, Relaxed, Relaxed).is_ok());
    if let Some((_, length)) = place {
        length.store(size, Relaxed);
    }
}

pub(super) fn remove(start: usize) {
    let place = OWN.iter().find(|(place, _)| place.load(Relaxed) == start);
    if let Some((place, length)) = place {
        length.store(0, Relaxed);
        place.store(0, Relaxed);
    }
}

pub(crate) fn all() -> impl Iterator<Item = Range<usize>> {
    let range = |(start, size): &(AtomicUsize, AtomicUsize)| {
        let start = start.load(Relaxed);
        start..start.saturating_add(size.load(Relaxed))
    };
    OWN.iter().map(range).filter(|range| !range.is_empty())
}
