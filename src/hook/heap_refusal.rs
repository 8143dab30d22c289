//! Requests that the system allocator refused.
#![cfg_attr(target_os = "linux", expect(unsafe_code, reason = "asks the system for limits"))]

use memtrace_core::snapshot::{Device, OutOfMemory};

#[cfg(target_os = "linux")]
use crate::record::own_pages::page_size;
use crate::record::{EventSite, device_memory, event_site, gates, guard, heap};

/// 64 TiB, more than any machine has. A program that requests so much tests the limit or has a bug. Such a refusal
/// does not mean that memory is short.
pub(crate) const IMPOSSIBLE: usize = 1 << 46;

/// The allocator returned null. Memory may be short, so nothing is allocated here except memtrace's own pages.
#[cold]
pub(crate) fn refused(size: usize) {
    let is_own = guard::state() & guard::OWN != 0;
    if !is_own && size < IMPOSSIBLE && gates::records_heap_block(size) {
        let _own = guard::own_work();
        let EventSite { stack, context, thread, .. } = event_site::alloc_site(false);
        let (device_free, device_total) = address_space().unzip();
        let oom = OutOfMemory { time_ns: 0, size: size as u64, device_free, device_total, stack, context, thread };
        device_memory::refused(Device::Cpu, oom);
    }
    heap::refused(Device::Cpu, size);
}

/// The bytes that the process may still map, and its limit (`ulimit -v`). `None` without a limit.
#[cfg(target_os = "linux")]
fn address_space() -> Option<(u64, u64)> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a local value of the type that the call writes.
    let failed = unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) } != 0;
    let limit = (!failed && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)?;
    Some((limit.saturating_sub(mapped()?), limit))
}

/// The size of the process's address space. Read without an allocation.
#[cfg(target_os = "linux")]
fn mapped() -> Option<u64> {
    use std::io::Read;

    let mut text = [0; 64];
    let read = std::fs::File::open("/proc/self/statm").ok()?.read(&mut text).ok()?;
    let text = std::str::from_utf8(text.get(..read)?).ok()?;
    let pages: u64 = text.split(' ').next()?.parse().ok()?;
    pages.checked_mul(page_size() as u64)
}

#[cfg(not(target_os = "linux"))]
fn address_space() -> Option<(u64, u64)> {
    None
}
