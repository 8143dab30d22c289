//! A log of fixed capacity that overwrites its oldest entries.

use std::mem::MaybeUninit;

use super::memory::put;
use super::pages::{PageVec, Pages};
use super::prefetch::prefetch;

/// Bytes of a line of the processor's cache.
const LINE: usize = 64;
/// The system gives memory a page at a time, when it is touched, and takes its time for a large one. So this much is
/// touched before the first event comes; a log that grows beyond pays for a page now and then.
const TOUCHED: usize = 8 << 20;
const SMALL_PAGE: usize = 4 << 10;

#[derive(Debug)]
#[repr(C)]
pub(crate) struct Ring<T> {
    entries: PageVec<T>,
    /// Entries ever pushed.
    pushed: u64,
    capacity: usize,
    /// Where the oldest entry lies, which is where the next one goes once the ring is full.
    oldest: usize,
    /// Entries that could not be kept for lack of memory.
    refused: u64,
}

impl<T: Copy> Ring<T> {
    /// Memory is taken as the ring fills, never more than `capacity` entries.
    pub(crate) const fn new(capacity: usize) -> Self {
        Self { entries: PageVec::new_in(Pages), capacity, oldest: 0, pushed: 0, refused: 0 }
    }

    /// Address space for all of it is taken now, and memory for the first [`TOUCHED`] bytes; the rest still as the ring
    /// fills.
    pub(crate) fn reserved(capacity: usize) -> Self {
        let mut ring = Self::new(capacity);
        // If it cannot be had, the ring grows as others do.
        let _ = ring.entries.try_reserve_exact(capacity);
        let first = ring.entries.spare_capacity_mut().iter_mut().take(TOUCHED / size_of::<T>());
        first.step_by(SMALL_PAGE / size_of::<T>()).for_each(|entry| *entry = MaybeUninit::zeroed());
        ring
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn push(&mut self, entry: T) {
        // Room that was reserved, or the oldest entry's; the lines after it are fetched meanwhile.
        if self.entries.len() < self.capacity.min(self.entries.capacity()) {
            put(&mut self.entries, entry);
            self.pushed += 1;
            self.foresee(self.entries.len());
        } else {
            self.push_without_room(entry);
        }
    }

    #[inline(never)]
    fn push_without_room(&mut self, entry: T) {
        if self.entries.len() < self.capacity && self.grow() {
            put(&mut self.entries, entry);
        } else {
            self.overwrite_oldest(entry);
            self.foresee(self.oldest);
        }
    }

    #[inline]
    fn foresee(&self, next: usize) {
        prefetch(self.entries.as_ptr().addr().wrapping_add(next * size_of::<T>() + 2 * LINE));
    }

    /// The same entries once more; if there is no memory for them, they count as overwritten.
    pub(crate) fn copy(&self) -> Self {
        let mut entries = PageVec::new_in(Pages);
        if entries.try_reserve(self.entries.len()).is_err() {
            return Self { refused: self.pushed + self.refused, pushed: 0, ..Self::new(self.capacity) };
        }
        entries.extend_from_slice(&self.entries);
        Self { entries, ..*self }
    }

    /// Entries that were pushed and are no longer held.
    pub(crate) fn overwritten(&self) -> u64 {
        self.pushed + self.refused - self.entries.len() as u64
    }

    /// The entries held, oldest first, as two runs.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = &T> {
        let (newer, older) = self.entries.split_at(self.oldest.min(self.entries.len()));
        older.iter().chain(newer)
    }

    /// How many entries of those ever pushed from the one with number `from` on are gone, and those
    /// that are held.
    pub(crate) fn since(&self, from: u64) -> (u64, impl Iterator<Item = &T>) {
        let oldest = self.overwritten();
        (oldest.saturating_sub(from), self.in_order().skip(from.saturating_sub(oldest) as usize))
    }

    /// The entry with this number of those ever pushed, from 0, if it is still held.
    pub(crate) fn get(&self, number: u64) -> Option<&T> {
        let after_oldest = number.checked_sub(self.overwritten()).filter(|after| *after < self.entries.len() as u64)?;
        let at = self.oldest + after_oldest as usize;
        self.entries.get(at.checked_sub(self.entries.len()).unwrap_or(at))
    }

    /// The entry that was pushed last.
    pub(crate) fn newest(&self) -> Option<&T> {
        self.get((self.overwritten() + self.entries.len() as u64).checked_sub(1)?)
    }

    /// Entries ever pushed, but for those that were refused.
    pub(crate) fn pushed(&self) -> u64 {
        self.pushed
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) -> bool {
        let room = self.entries.len() < self.entries.capacity() || self.entries.try_reserve(1).is_ok();
        if room {
            self.pushed += 1;
        } else {
            // What memory there is becomes the ring's size from now on.
            self.capacity = self.entries.len();
            self.pushed = self.entries.len() as u64;
        }
        room
    }

    #[inline]
    fn overwrite_oldest(&mut self, entry: T) {
        match self.entries.get_mut(self.oldest) {
            Some(slot) => {
                *slot = entry;
                self.pushed += 1;
                self.oldest = if self.oldest + 1 < self.entries.len() { self.oldest + 1 } else { 0 };
            }
            None => self.refused += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes in memory of the mapping that an address lies in.
    #[cfg(all(target_os = "linux", not(miri)))]
    fn resident_around(address: usize) -> usize {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let range = |line: &str| {
            let (from, to) = line.split_whitespace().next()?.split_once('-')?;
            Some(usize::from_str_radix(from, 16).ok()?..usize::from_str_radix(to, 16).ok()?)
        };
        let mapping = maps.lines().skip_while(|line| !range(line).is_some_and(|range| range.contains(&address)));
        let rss = mapping.skip(1).find_map(|line| line.strip_prefix("Rss:")).unwrap();
        rss.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn the_first_part_of_a_reserved_ring_is_there_before_the_first_entry() {
        let ring = Ring::<[u64; 4]>::reserved(1 << 20);
        assert!(resident_around(ring.entries.as_ptr().addr()) >= TOUCHED);
        assert_eq!((ring.len(), ring.overwritten()), (0, 0));
    }

    #[test]
    fn the_ring_holds_the_newest_entries_in_order() {
        for capacity in 0..7 {
            let mut ring = Ring::new(capacity);
            for n in 0..20usize {
                ring.push(n);
                let held = capacity.min(n + 1);
                let expected: Vec<usize> = (n + 1 - held..=n).collect();
                assert_eq!(ring.in_order().copied().collect::<Vec<_>>(), expected);
                assert_eq!(ring.overwritten(), (n + 1 - held) as u64);
                assert_eq!(ring.len(), held);
                let mut copy = ring.copy();
                assert_eq!(copy.in_order().collect::<Vec<_>>(), ring.in_order().collect::<Vec<_>>());
                copy.push(usize::MAX);
                let newest = expected.iter().copied().chain([usize::MAX]).skip(usize::from(held == capacity));
                assert_eq!(copy.in_order().copied().collect::<Vec<_>>(), newest.take(capacity).collect::<Vec<_>>());
                assert_eq!(copy.overwritten(), ring.overwritten() + u64::from(held == capacity));
                for number in 0..=n + 1 {
                    let is_held = number <= n && number + held > n;
                    assert_eq!(ring.get(number as u64).copied(), is_held.then_some(number).filter(|_| capacity > 0));
                }
                for from in 0..=n + 1 {
                    let (lost, rest) = ring.since(from as u64);
                    assert_eq!(lost as usize, (n + 1 - held).saturating_sub(from));
                    assert_eq!(rest.copied().collect::<Vec<_>>(), expected[from.saturating_sub(n + 1 - held)..]);
                }
            }
        }
    }
}
