//! PyTorch's expandable segments: a range of addresses for each pool of a stream. Memory is mapped into it on demand.

use std::collections::btree_set::Range;

use super::pytorch::{Piece, PieceState, PyTorchAllocator, TorchSegment};
use super::settings::LARGE_SEGMENT;

/// The number of addresses of a segment. PyTorch reserves an eighth more than the device's memory; in the model,
/// addresses do not run out.
const ADDRESSES: u64 = 1 << 46;

impl PyTorchAllocator {
    /// Begins with the smallest free piece that fits. Moves on to the next larger piece as long as that one is smaller
    /// together with the unmapped piece behind it.
    pub(super) fn least_expandable(&self, mut found: Range<'_, (u64, u64)>) -> Option<(u64, u64)> {
        let mut best = *found.next()?;
        for next in found {
            if self.expandable_size(*next) >= self.expandable_size(best) {
                break;
            }
            best = *next;
        }
        Some(best)
    }

    fn expandable_size(&self, (size, address): (u64, u64)) -> u64 {
        let behind = self.pieces.get(&(address + size)).filter(|piece| piece.state == PieceState::Unmapped);
        size + behind.map_or(0, |piece| piece.size)
    }

    /// A free piece of at least `size` bytes. Maps the missing memory.
    pub(super) fn expand(&mut self, size: u64, pool: (u32, bool), limit: u64) -> Option<u64> {
        self.map_piece(size, pool, limit).or_else(|| {
            super::allocator::Allocator::trim(self);
            self.map_piece(size, pool, limit)
        })
    }

    fn map_piece(&mut self, size: u64, pool: (u32, bool), limit: u64) -> Option<u64> {
        let mut at = self.with_addresses(size, pool).or_else(|| self.reserve_addresses(size, pool))?;
        loop {
            let piece = *self.pieces.get(&at)?;
            match piece.state {
                PieceState::Unmapped => at = self.map(at, size.min(piece.size), limit)?,
                PieceState::Free if piece.size >= size => return Some(at),
                PieceState::Free => {
                    let (behind, missing) = (at + piece.size, size - piece.size);
                    let there = self.pieces.get(&behind).filter(|piece| piece.state == PieceState::Unmapped)?.size;
                    at = self.map(behind, missing.min(there), limit)?;
                }
                PieceState::Used => return None,
            }
        }
    }

    /// The address of the first unmapped piece, or of the free piece before it, that has room for `size` bytes together
    /// with the unused pieces behind it.
    fn with_addresses(&self, size: u64, pool: (u32, bool)) -> Option<u64> {
        self.unmapped.get(&pool)?.iter().find_map(|address| {
            let piece = self.pieces.get(address)?;
            let is_free = |other: &Piece| other.state == PieceState::Free && other.segment == piece.segment;
            let before = self.pieces.range(..address).next_back().filter(|(_, other)| is_free(other));
            let from = before.map_or(*address, |(at, _)| *at);
            let mut unused = self
                .pieces
                .range(from..)
                .take_while(|(_, other)| other.state != PieceState::Used && other.segment == piece.segment);
            let mut room = 0;
            unused
                .any(|(_, other)| {
                    room += other.size;
                    room >= size
                })
                .then_some(from)
        })
    }

    fn reserve_addresses(&mut self, size: u64, (stream, is_small): (u32, bool)) -> Option<u64> {
        let length = size.checked_next_multiple_of(ADDRESSES)?;
        let address = self.next;
        self.next = address.checked_add(length)?;
        self.segments.insert(address, TorchSegment { size: length, stream, is_small });
        self.add(address, Piece { size: length, segment: address, state: PieceState::Unmapped });
        Some(address)
    }

    /// Maps whole pages for `size` bytes at the front of an unmapped piece. Returns the address of the free piece that
    /// contains them.
    fn map(&mut self, address: u64, size: u64, limit: u64) -> Option<u64> {
        let segment = *self.segments.get(&self.pieces.get(&address)?.segment)?;
        let length = size.checked_next_multiple_of(page(segment))?;
        if !self.has_room(length, limit) {
            return None;
        }
        let piece = self.remove(address, PieceState::Unmapped)?;
        if length < piece.size {
            self.add(address + length, Piece { size: piece.size - length, ..piece });
        }
        self.reserved += length;
        Some(self.join(address, Piece { size: length, state: PieceState::Free, ..piece }))
    }

    /// Releases the whole pages within a free piece.
    pub(super) fn unmap(&mut self, address: u64) {
        let Some(piece) = self.pieces.get(&address).copied() else { return };
        let Some(segment) = self.segments.get(&piece.segment).copied() else { return };
        let (page, end) = (page(segment), address + piece.size);
        let from = piece.segment + (address - piece.segment).next_multiple_of(page);
        let to = piece.segment + (end - piece.segment) / page * page;
        if to <= from || self.remove(address, PieceState::Free).is_none() {
            return;
        }
        self.reserved -= to - from;
        // The parts are added in the order of their addresses, because each is joined with the neighbour before it.
        if address < from {
            self.join(address, Piece { size: from - address, ..piece });
        }
        self.join(from, Piece { size: to - from, state: PieceState::Unmapped, ..piece });
        if to < end {
            self.join(to, Piece { size: end - to, ..piece });
        }
    }
}

/// The page size of an expandable segment: the size of an ordinary segment for blocks of its kind, small or large.
fn page(segment: TorchSegment) -> u64 {
    if segment.is_small { 2 << 20 } else { LARGE_SEGMENT }
}
