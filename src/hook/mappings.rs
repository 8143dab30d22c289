//! Mapped memory: what the functions that a preloaded library puts before `mmap`, `munmap` and `mremap` report.

use std::ops::Range;

use crate::errno::KeepErrno;
use crate::record::{event_site, fork, guard, mappings, recorder};

fn is_recorded(size: usize) -> bool {
    size > 0 && recorder::is_recording() && guard::state() & guard::OWN == 0 && !fork::is_child()
}

fn range(address: *mut u8, size: usize) -> Range<usize> {
    address.addr()..address.addr().saturating_add(size)
}

/// Reports a new mapping and returns it; `MAP_FAILED` is none.
#[inline(never)]
pub extern "C" fn mapped(address: *mut u8, size: usize) -> *mut u8 {
    let _errno = KeepErrno::new();
    if address.addr() != usize::MAX && is_recorded(size) {
        let _own = guard::own_work();
        mappings::add(range(address, size), event_site::alloc_site(true).stack);
    }
    address
}

/// Reports that a range is about to be unmapped: another thread may get its addresses.
pub fn unmapping(address: *mut u8, size: usize) {
    let _errno = KeepErrno::new();
    if is_recorded(size) {
        let _own = guard::own_work();
        mappings::remove(&range(address, size));
    }
}

/// Reports that a mapping has moved or changed its size; it keeps its stack.
pub fn remapped(old: *mut u8, old_size: usize, new: *mut u8, new_size: usize) {
    let _errno = KeepErrno::new();
    if new.addr() != usize::MAX && is_recorded(new_size) {
        let _own = guard::own_work();
        if let Some(stack) = mappings::remove(&range(old, old_size)) {
            mappings::add(range(new, new_size), stack);
        }
    }
}
