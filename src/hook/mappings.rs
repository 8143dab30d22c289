//! Mapped memory: reports of a preloaded library's functions that interpose `mmap`, `munmap` and `mremap`.

use std::ops::Range;

use memtrace_core::snapshot::StackId;

use crate::errno::KeepErrno;
use crate::record::{event_site, fork, guard, mappings, recorder};

fn is_recorded(size: usize) -> bool {
    size > 0 && recorder::is_recording() && guard::state() & guard::OWN == 0 && !fork::is_child()
}

fn range(address: *mut u8, size: usize) -> Range<usize> {
    address.addr()..address.addr().saturating_add(size)
}

/// Reports a new mapping and returns its address. `MAP_FAILED` is not an address and is not reported.
#[inline(never)]
pub extern "C" fn mapped(address: *mut u8, size: usize) -> *mut u8 {
    let _errno = KeepErrno::new();
    if address.addr() != usize::MAX && is_recorded(size) {
        let _own = guard::own_work();
        mappings::add(range(address, size), event_site::alloc_site(true).stack);
    }
    address
}

/// Reports that a range is about to be unmapped. Once it is, another thread may get its addresses.
pub fn unmapping(address: *mut u8, size: usize) {
    let _errno = KeepErrno::new();
    if is_recorded(size) {
        let _own = guard::own_work();
        mappings::remove(&range(address, size));
    }
}

/// A mapping that is being moved or resized. It keeps its stack.
#[derive(Debug)]
pub struct Remapping {
    old: Range<usize>,
    stack: Option<StackId>,
}

impl Remapping {
    /// Reports that a mapping is about to be moved. Once it is, another thread may get its old addresses.
    pub fn from(old: *mut u8, old_size: usize) -> Self {
        let _errno = KeepErrno::new();
        let (old, is_recorded) = (range(old, old_size), is_recorded(old_size));
        let _own = guard::own_work();
        Self { stack: if is_recorded { mappings::remove(&old) } else { None }, old }
    }

    /// Reports where the mapping is now. `MAP_FAILED` means that the mapping was not moved.
    pub fn to(self, new: *mut u8, new_size: usize) {
        let _errno = KeepErrno::new();
        let Some(stack) = self.stack else { return };
        let _own = guard::own_work();
        mappings::add(if new.addr() == usize::MAX { self.old } else { range(new, new_size) }, stack);
    }
}
