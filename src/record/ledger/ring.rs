//! Ring buffer that overwrites its oldest entries.

use std::mem::MaybeUninit;

use super::super::memory::put;
use super::super::pages::{PageVec, Pages};
use super::super::prefetch::prefetch;

const CACHE_LINE: usize = 64;
/// Number of bytes of a reserved ring that are touched in advance. The first touch of a page is a page fault, which is
/// slow for a huge page. 8 MiB cover a program's start; a longer log faults as it grows.
const PRETOUCHED: usize = 8 << 20;
const SMALL_PAGE: usize = 4 << 10;

#[derive(Debug)]
#[repr(C)]
pub(crate) struct Ring<T> {
    entries: PageVec<T>,
    /// Entries ever pushed.
    pushed: u64,
    capacity: usize,
    /// Index of the oldest entry. Once the ring is full, the next push overwrites that entry.
    oldest: usize,
    /// Entries lost for lack of memory.
    refused: u64,
}

impl<T: Copy> Ring<T> {
    /// A ring that grows as it fills, up to `capacity` entries.
    pub(crate) const fn new(capacity: usize) -> Self {
        Self { entries: PageVec::new_in(Pages), capacity, oldest: 0, pushed: 0, refused: 0 }
    }

    /// A ring that reserves the address space of all entries now, and touches the first [`PRETOUCHED`] bytes.
    pub(crate) fn reserved(capacity: usize) -> Self {
        let mut ring = Self::new(capacity);
        // If this fails, the ring grows like any other.
        let _ = ring.entries.try_reserve_exact(capacity);
        let first = ring.entries.spare_capacity_mut().iter_mut().take(PRETOUCHED / size_of::<T>());
        first.step_by(SMALL_PAGE / size_of::<T>()).for_each(|entry| *entry = MaybeUninit::zeroed());
        ring
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn push(&mut self, entry: T) {
        // Fast path: there is reserved room. The slow path overwrites the oldest entry or grows the ring.
        if self.entries.len() < self.capacity.min(self.entries.capacity()) {
            put(&mut self.entries, entry);
            self.pushed += 1;
            self.prefetch_after(self.entries.len());
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
            self.prefetch_after(self.oldest);
        }
    }

    #[inline]
    fn prefetch_after(&self, next: usize) {
        prefetch(self.entries.as_ptr().addr().wrapping_add(next * size_of::<T>() + 2 * CACHE_LINE));
    }

    /// A copy of the ring. If there is no memory for it, all entries count as overwritten.
    pub(crate) fn copy(&self) -> Self {
        let mut entries = PageVec::new_in(Pages);
        if entries.try_reserve(self.entries.len()).is_err() {
            return Self { refused: self.pushed + self.refused, ..Self::new(self.capacity) };
        }
        entries.extend_from_slice(&self.entries);
        Self { entries, ..*self }
    }

    /// Entries that were pushed and are gone.
    pub(crate) fn overwritten(&self) -> u64 {
        self.pushed + self.refused - self.entries.len() as u64
    }

    /// All entries, oldest first.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = &T> {
        let (newer, older) = self.entries.split_at(self.oldest.min(self.entries.len()));
        older.iter().chain(newer)
    }

    /// The entries from number `from` on. Returns how many of them are gone, and the rest.
    pub(crate) fn since(&self, from: u64) -> (u64, impl Iterator<Item = &T>) {
        let oldest = self.overwritten();
        (oldest.saturating_sub(from), self.in_order().skip(from.saturating_sub(oldest) as usize))
    }

    /// The entry with this number, counted from 0 over all pushes.
    pub(crate) fn get(&self, number: u64) -> Option<&T> {
        let after_oldest = number.checked_sub(self.overwritten()).filter(|after| *after < self.entries.len() as u64)?;
        let at = self.oldest + after_oldest as usize;
        self.entries.get(at.checked_sub(self.entries.len()).unwrap_or(at))
    }

    pub(crate) fn newest(&self) -> Option<&T> {
        self.get((self.overwritten() + self.entries.len() as u64).checked_sub(1)?)
    }

    /// Entries ever pushed, except those lost for lack of memory.
    pub(crate) fn pushed(&self) -> u64 {
        self.pushed
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) -> bool {
        let room = self.entries.try_reserve(1).is_ok();
        if room {
            self.pushed += 1;
        } else {
            // Out of memory: the ring keeps its current size.
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
    use crate::record::scarce::with_memory_for;

    /// Resident bytes of the mapping that contains an address.
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
        assert!(resident_around(ring.entries.as_ptr().addr()) >= PRETOUCHED);
        assert_eq!((ring.len(), ring.overwritten()), (0, 0));
    }

    #[test]
    fn a_copy_without_memory_has_lost_everything() {
        let mut ring = Ring::new(3);
        (0..5).for_each(|n| ring.push(n));
        let mut copy = with_memory_for(0, || ring.copy());
        assert_eq!((copy.len(), copy.overwritten(), copy.capacity), (0, 5, 3));
        (0..2).for_each(|n| copy.push(n));
        assert_eq!((copy.len(), copy.overwritten()), (2, 5));
        assert_eq!(with_memory_for(0, || copy.copy()).overwritten(), 7);
        let mut without = Ring::new(3);
        with_memory_for(0, || (0..2).for_each(|n| without.push(n)));
        assert_eq!(
            (without.len(), without.overwritten(), with_memory_for(0, || without.copy()).overwritten()),
            (0, 2, 2)
        );
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
                assert_eq!(ring.newest(), expected.last());
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
