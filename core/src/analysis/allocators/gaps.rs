//! Free pieces by address, with a search by size: first fit from a given address on.
//!
//! The pieces are in a sorted list of chunks, as in an unrolled linked list. Each chunk knows its largest piece. A
//! search looks at these largest sizes, and then into one chunk.

use std::ops::Range;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) address: u64,
    pub(super) size: u64,
}

impl Gap {
    pub(super) fn end(self) -> u64 {
        self.address + self.size
    }
}

/// Free pieces that do not overlap.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    /// No chunk is empty.
    chunks: Vec<Chunk>,
}

#[derive(Debug, Default)]
struct Chunk {
    largest: u64,
    /// Sorted by address.
    gaps: Vec<Gap>,
}

/// The most pieces in a chunk. Reading them takes about as long as finding the chunk.
const MOST: usize = 128;

impl Chunk {
    fn of(gaps: Vec<Gap>) -> Self {
        let largest = gaps.iter().map(|gap| gap.size).max().unwrap_or(0);
        Self { largest, gaps }
    }

    fn first(&self) -> u64 {
        self.gaps.first().map_or(0, |gap| gap.address)
    }
}

impl Gaps {
    /// Adds a piece that overlaps no other.
    pub(super) fn insert(&mut self, gap: Gap) {
        let at = self.chunk_of(gap.address);
        let Some(chunk) = self.chunks.get_mut(at) else { return self.chunks.push(Chunk::of(vec![gap])) };
        let place = chunk.gaps.partition_point(|other| other.address < gap.address);
        chunk.gaps.insert(place, gap);
        chunk.largest = chunk.largest.max(gap.size);
        if chunk.gaps.len() > MOST {
            let behind = chunk.gaps.split_off(MOST / 2);
            *chunk = Chunk::of(std::mem::take(&mut chunk.gaps));
            self.chunks.insert(at + 1, Chunk::of(behind));
        }
    }

    /// Removes the piece that begins at this address.
    pub(super) fn remove(&mut self, address: u64) -> Option<Gap> {
        let at = self.chunk_of(address);
        let chunk = self.chunks.get_mut(at)?;
        let place = chunk.gaps.binary_search_by_key(&address, |gap| gap.address).ok()?;
        let gap = chunk.gaps.remove(place);
        if chunk.gaps.is_empty() {
            self.chunks.remove(at);
        } else if gap.size == chunk.largest {
            *chunk = Chunk::of(std::mem::take(&mut chunk.gaps));
        }
        Some(gap)
    }

    /// The first address from `from` on where `size` bytes are free in one piece.
    pub(super) fn first_from(&self, from: u64, size: u64) -> Option<u64> {
        if let Some(gap) = self.up_to(from).filter(|gap| gap.end() >= from.saturating_add(size)) {
            return Some(from.max(gap.address));
        }
        let fits = |gap: &&Gap| gap.address > from && gap.size >= size;
        let mut chunks = self.chunks.iter().skip(self.chunk_of(from)).filter(|chunk| chunk.largest >= size);
        chunks.find_map(|chunk| chunk.gaps.iter().find(fits)).map(|gap| gap.address)
    }

    /// The last piece that begins at or before an address.
    pub(super) fn up_to(&self, address: u64) -> Option<Gap> {
        let chunk = self.chunks.get(self.chunk_of(address))?;
        let after = chunk.gaps.partition_point(|gap| gap.address <= address);
        chunk.gaps.get(after.checked_sub(1)?).copied()
    }

    /// Adds a piece and joins it with its neighbours within these addresses. Returns the joined piece.
    pub(super) fn give_back(&mut self, gap: Gap, within: Range<u64>) -> Gap {
        let (mut from, mut to) = (gap.address, gap.end());
        if let Some(before) = self.up_to(from).filter(|gap| gap.address >= within.start && gap.end() == from) {
            self.remove(before.address);
            from = before.address;
        }
        if to < within.end
            && let Some(after) = self.remove(to)
        {
            to = after.end();
        }
        let joined = Gap { address: from, size: to - from };
        self.insert(joined);
        joined
    }

    /// The size of the largest piece.
    pub(super) fn largest(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.largest).max().unwrap_or(0)
    }

    /// The chunk that contains, or would contain, a piece at this address.
    fn chunk_of(&self, address: u64) -> usize {
        self.chunks.partition_point(|chunk| chunk.first() <= address).saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// The same result, found by looking at every piece.
    fn first_by_definition(all: &BTreeMap<u64, u64>, from: u64, size: u64) -> Option<u64> {
        all.iter()
            .map(|(address, length)| (from.max(*address), address + length))
            .find_map(|(at, end)| (at.saturating_add(size) <= end).then_some(at))
    }

    proptest! {
        #[test]
        fn the_first_piece_is_that_of_a_look_at_all(steps in prop::collection::vec((0u64..4000, 1u64..10, any::<bool>()), 0..900)) {
            let (mut gaps, mut all) = (Gaps::default(), BTreeMap::new());
            for (place, size, comes) in steps {
                let address = 10 * place;
                if comes && !all.contains_key(&address) {
                    gaps.insert(Gap { address, size });
                    all.insert(address, size);
                } else if !comes {
                    prop_assert_eq!(gaps.remove(address).map(|gap| gap.size), all.remove(&address));
                }
                let from = 10 * place + size - 1;
                prop_assert_eq!(gaps.first_from(from, size), first_by_definition(&all, from, size));
                prop_assert_eq!(gaps.largest(), all.values().copied().max().unwrap_or(0));
            }
        }
    }
}
