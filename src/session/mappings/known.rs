//! Ranges of addresses whose owner is known, in memory that belongs to no file.
#![cfg_attr(target_os = "linux", expect(unsafe_code, reason = "asks the kernel which pages are in memory"))]

use std::ops::Range;

use memtrace_core::snapshot::{LoadedObject, MappingKind, StackId};

use super::smaps::Vma;
#[cfg(target_os = "linux")]
use crate::record::{guard, thread};
use crate::record::{mappings, own_pages};
#[cfg(target_os = "linux")]
use crate::session::kernel_thread::is_alive;

/// A range and its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) at: Range<usize>,
    pub(super) kind: MappingKind,
    /// The calls that led to the mapping of the range, if the program mapped it.
    pub(super) stack: StackId,
}

/// The largest guard (inaccessible memory below a thread's stack) that is recognized, in bytes.
const LARGEST_GUARD: usize = 1 << 20;
/// The bytes that one question to the kernel covers. The kernel answers with one byte for each page.
const ASKED: usize = 64 << 20;

/// All ranges, by address, without overlaps. `objects` are the loaded objects.
pub(super) fn all(vmas: &[Vma<'_>], objects: &[LoadedObject]) -> Vec<Known> {
    let of = |kind| move |at| Known { at, kind, stack: StackId::NONE };
    let objects = objects.iter().map(|object| object.range.start as usize..object.range.end as usize);
    let mut all: Vec<Known> = own_pages::all().map(of(MappingKind::Own)).collect();
    all.extend(stacks(vmas).into_iter().map(of(MappingKind::Stack)));
    all.extend(objects.map(of(MappingKind::Code)));
    let programs = mappings::programs().into_iter();
    all.extend(programs.map(|range| Known { at: range.at, kind: MappingKind::Anonymous, stack: range.stack }));
    without_overlaps(all)
}

/// Where ranges overlap, the one that begins first keeps the overlap.
fn without_overlaps(mut all: Vec<Known>) -> Vec<Known> {
    all.sort_by_key(|known| known.at.start);
    let mut end = 0;
    for known in &mut all {
        known.at.start = known.at.start.max(end);
        end = end.max(known.at.end);
    }
    all.retain(|known| !known.at.is_empty());
    all
}

/// The size of glibc's data on a thread, in bytes. The data lies behind the thread's thread-local variables, at the
/// upper end of its stack.
const THREAD: usize = 2304;

/// The stacks of the threads. A thread's thread-local variables lie at the upper end of its stack, and a guard is
/// below it.
#[cfg(target_os = "linux")]
fn stacks(vmas: &[Vma<'_>]) -> Vec<Range<usize>> {
    let to_thread = own_thread().saturating_sub(guard::local_address() as usize);
    let of_thread = |(os_id, local): (u32, u64)| {
        let local = local as usize;
        let number = vmas.partition_point(|vma| vma.at.end <= local);
        let (guard, stack) = (vmas.get(number.checked_sub(1)?)?, vmas.get(number)?);
        let has_guard = guard.at.end == stack.at.start && !guard.is_accessible() && guard.at.len() <= LARGEST_GUARD;
        let end = local.checked_add(to_thread + THREAD)?.checked_next_multiple_of(own_pages::page_size())?;
        let is_stack = has_guard && stack.at.contains(&local) && stack.path.is_empty() && is_alive(os_id);
        is_stack.then(|| stack.at.start..end.min(stack.at.end))
    };
    thread::locals().filter_map(of_thread).collect()
}

#[cfg(target_os = "linux")]
fn own_thread() -> usize {
    // SAFETY: no preconditions.
    unsafe { libc::pthread_self() as usize }
}

/// Bytes of a range that are in physical memory; 0 if a part of it is not mapped any more.
#[cfg(target_os = "linux")]
pub(super) fn resident(at: &Range<usize>) -> u64 {
    let page = own_pages::page_size();
    let start = at.start - at.start % page;
    let mut answer = vec![0u8; ASKED.min(at.end - start).div_ceil(page)];
    let parts = (start..at.end).step_by(ASKED);
    let count = |from: usize| {
        let length = ASKED.min(at.end - from);
        // SAFETY: the answer has room for a byte for each page.
        let failed =
            unsafe { libc::mincore(std::ptr::with_exposed_provenance_mut(from), length, answer.as_mut_ptr()) } != 0;
        let pages = answer.iter().take(length.div_ceil(page)).filter(|byte| **byte & 1 == 1).count();
        if failed { 0 } else { (pages * page) as u64 }
    };
    parts.map(count).sum()
}

/// This system does not list a process's mappings.
#[cfg(not(target_os = "linux"))]
fn stacks(_vmas: &[Vma<'_>]) -> Vec<Range<usize>> {
    Vec::new()
}

/// This system does not list a process's mappings, see [`stacks`].
#[cfg(not(target_os = "linux"))]
pub(super) fn resident(_at: &Range<usize>) -> u64 {
    0
}
