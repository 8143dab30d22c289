//! Open-addressing hash index with linear probing, from a stack's hash to the stack's place in `words.rs`. Readers
//! take no lock; one writer at a time adds entries.
//!
//! An entry is one word: the upper half of the hash, and the place; 0 is empty. It is written once, after the stack at
//! its place, and never changes. A full table is replaced by one of twice the size. The old table is never freed,
//! because readers may still use it; all old tables together are smaller than the newest. Entries and tables are
//! published by release stores and read by acquire loads, so there is no data race. `tests/loom` runs every
//! interleaving.

#[cfg(loom)]
use loom::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use super::leak::leaked;

#[cfg(not(loom))]
const FIRST_SIZE: usize = 1 << 10;
#[cfg(loom)]
const FIRST_SIZE: usize = 2;

#[derive(Debug)]
pub(super) struct StackIndex {
    table: AtomicPtr<IndexTable>,
}

#[derive(Debug)]
pub(super) struct IndexTable {
    /// Their number is a power of two, and at most half of them are used.
    entries: &'static [AtomicU64],
}

/// The number of entries. Only the writer that owns this value may add an entry.
#[derive(Debug)]
pub(super) struct EntryCount(usize);

impl EntryCount {
    pub(super) const fn new() -> Self {
        Self(0)
    }
}

/// Where the search for a hash starts, and the part of the hash that an entry stores.
fn split(hash: u64) -> (usize, u64) {
    ((hash >> 32) as usize, hash >> 32 << 32)
}

impl IndexTable {
    /// The entries in the order of probing.
    #[inline]
    fn entries_for(&self, start: usize) -> impl Iterator<Item = &AtomicU64> {
        let mask = self.entries.len().wrapping_sub(1);
        (0..self.entries.len()).filter_map(move |step| self.entries.get(start.wrapping_add(step) & mask))
    }

    /// Must be called only by the owner of the count.
    fn add(&self, entry: u64) {
        // Relaxed load: there is no other writer. Release store: publishes the stack at that place.
        let empty = self.entries_for(split(entry).0).find(|at| at.load(Ordering::Relaxed) == 0);
        if let Some(at) = empty {
            at.store(entry, Ordering::Release);
        }
    }
}

impl StackIndex {
    #[cfg(not(loom))]
    pub(super) const fn new() -> Self {
        Self { table: AtomicPtr::new(std::ptr::null_mut()) }
    }

    #[cfg(loom)]
    pub(super) fn new() -> Self {
        Self { table: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// The place with this hash for which `is_right` returns true.
    #[inline]
    pub(super) fn find(&self, hash: u64, is_right: impl Fn(u32) -> bool) -> Option<u32> {
        let (start, mark) = split(hash);
        for entry in self.table()?.entries_for(start) {
            // Acquire: the stack was written before the entry.
            let entry = entry.load(Ordering::Acquire);
            if entry == 0 {
                return None;
            }
            if (entry ^ mark) >> 32 == 0 && is_right(entry as u32) {
                return Some(entry as u32);
            }
        }
        None
    }

    /// Makes room for one more entry. False if there is no memory.
    pub(super) fn reserve(&self, count: &EntryCount) -> bool {
        let old = self.table().map_or(&[][..], |table| table.entries);
        // At most half full, so probing is short and always ends at an empty entry.
        if (count.0 + 1) * 2 <= old.len() {
            return true;
        }
        let size = (old.len() * 2).max(FIRST_SIZE);
        let Some(entries) = leaked(size, |_| AtomicU64::new(0)) else { return false };
        let Some([table]) = leaked(1, |_| IndexTable { entries }) else { return false };
        // Relaxed: only the owner of the count has written these entries.
        old.iter().map(|entry| entry.load(Ordering::Relaxed)).filter(|e| *e != 0).for_each(|e| table.add(e));
        // Release: publishes the entries.
        self.table.store(std::ptr::from_ref(table).cast_mut(), Ordering::Release);
        true
    }

    /// Adds a place (not 0), after [`reserve`](Self::reserve).
    pub(super) fn add(&self, count: &mut EntryCount, hash: u64, place: u32) {
        if let Some(table) = self.table() {
            table.add(split(hash).1 | u64::from(place));
            count.0 += 1;
        }
    }

    #[inline]
    #[expect(unsafe_code, reason = "dereferences a published pointer")]
    fn table(&self) -> Option<&IndexTable> {
        // SAFETY: null, or a table that was written before the pointer was published (release, acquire) and is never
        // freed.
        unsafe { self.table.load(Ordering::Acquire).as_ref() }
    }
}
