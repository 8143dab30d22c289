//! Hash → place, read without a lock while one thread at a time adds to it.
//!
//! An entry is one word, half of the hash and the place; 0 is none. It is written once, after what stands
//! at its place, and never changes. A table that is full is replaced by one of twice the size and stays
//! where it is, because others may be reading it: all old ones together are smaller than the newest.

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
pub(super) struct Index {
    table: AtomicPtr<Table>,
}

#[derive(Debug)]
pub(super) struct Table {
    /// As many as a power of two.
    entries: &'static [AtomicU64],
}

/// How many entries there are: whoever has it may add.
#[derive(Debug)]
pub(super) struct Count(usize);

impl Count {
    pub(super) const fn new() -> Self {
        Self(0)
    }
}

/// Where a hash is looked for first, and what it leaves in the entry.
fn split(hash: u64) -> (usize, u64) {
    ((hash >> 32) as usize, hash >> 32 << 32)
}

impl Table {
    /// The entries for a hash up to the first empty one.
    #[inline]
    fn entries_for(&self, start: usize) -> impl Iterator<Item = &AtomicU64> {
        let mask = self.entries.len().wrapping_sub(1);
        (0..self.entries.len()).filter_map(move |step| self.entries.get(start.wrapping_add(step) & mask))
    }

    /// Only by whoever has the count.
    fn add(&self, entry: u64) {
        // Relaxed: nobody else writes. Release: who reads the entry reads what was written before it.
        let empty = self.entries_for(split(entry).0).find(|at| at.load(Ordering::Relaxed) == 0);
        empty.into_iter().for_each(|at| at.store(entry, Ordering::Release));
    }
}

impl Index {
    #[cfg(not(loom))]
    pub(super) const fn new() -> Self {
        Self { table: AtomicPtr::new(std::ptr::null_mut()) }
    }

    #[cfg(loom)]
    pub(super) fn new() -> Self {
        Self { table: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// The place that was entered for this hash and is the right one.
    #[inline]
    pub(super) fn find(&self, hash: u64, is_right: impl Fn(u32) -> bool) -> Option<u32> {
        let (start, mark) = split(hash);
        for entry in self.table()?.entries_for(start) {
            // Acquire: what stands at the place was written before the entry.
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

    /// Makes room for one more; false if there is no memory for it.
    pub(super) fn reserve(&self, count: &Count) -> bool {
        let old = self.table().map_or(&[][..], |table| table.entries);
        // At most half full: looks are short, and there is always an empty one to end them.
        if (count.0 + 1) * 2 <= old.len() {
            return true;
        }
        let size = (old.len() * 2).max(FIRST_SIZE);
        let Some(entries) = leaked(size, |_| AtomicU64::new(0)) else { return false };
        let Some([table]) = leaked(1, |_| Table { entries }) else { return false };
        // Relaxed: whoever has the count wrote them, or got it from who did.
        old.iter().map(|entry| entry.load(Ordering::Relaxed)).filter(|e| *e != 0).for_each(|e| table.add(e));
        // Release: who reads the table through this reads its entries.
        self.table.store(std::ptr::from_ref(table).cast_mut(), Ordering::Release);
        true
    }

    /// Enters a place, not 0, after [`reserve`](Self::reserve).
    pub(super) fn add(&self, count: &mut Count, hash: u64, place: u32) {
        if let Some(table) = self.table() {
            table.add(split(hash).1 | u64::from(place));
            count.0 += 1;
        }
    }

    #[inline]
    #[expect(unsafe_code, reason = "a pointer that is published once it leads to something")]
    fn table(&self) -> Option<&Table> {
        // SAFETY: null, or a table that is never freed and was written before the pointer to it.
        unsafe { self.table.load(Ordering::Acquire).as_ref() }
    }
}
