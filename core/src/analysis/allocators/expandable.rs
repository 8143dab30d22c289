//! PyTorch's expandable segments: a range of addresses for each pool of a stream, in which memory is mapped as it is needed.

use std::collections::btree_set::Range;

use super::pytorch::{Piece, PieceState, PyTorchAllocator, TorchSegment};
use super::settings::LARGE_SEGMENT;

/// Addresses of a segment. PyTorch takes as many as an eighth more than the device has memory; here they do not run out.
const ADDRESSES: u64 = 1 << 46;

impl PyTorchAllocator {
    /// Of the free pieces from the smallest that fits on, the one whose piece with what can be mapped behind it is smallest.
    pub(super) fn least_expandable(&self, mut found: Range<'_, (u64, u64)>) -> Option<(u64, u64)> {
        let mut best = *found.next()?;
        for next in found {
            if !self.is_part(best) || self.expandable_size(*next) >= self.expandable_size(best) {
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

    fn is_part(&self, (size, address): (u64, u64)) -> bool {
        let segment = self.pieces.get(&address).and_then(|piece| self.segments.get(&piece.segment));
        segment.is_some_and(|segment| size < segment.size)
    }

    /// A free piece of at least `size` bytes, from memory that is mapped now.
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

    /// The first unmapped piece, or the free one before it, that with its unused neighbours behind has room.
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
        self.add_unmapped(address, length, address);
        Some(address)
    }

    fn add_unmapped(&mut self, address: u64, size: u64, segment: u64) {
        let Some(pool) = self.segments.get(&segment).map(|segment| segment.pool()) else { return };
        self.pieces.insert(address, Piece { size, segment, state: PieceState::Unmapped });
        self.unmapped.entry(pool).or_default().insert(address);
    }

    fn remove_unmapped(&mut self, address: u64) -> Option<Piece> {
        let piece = self.pieces.get(&address).copied().filter(|piece| piece.state == PieceState::Unmapped)?;
        let pool = self.segments.get(&piece.segment)?.pool();
        self.unmapped.get_mut(&pool)?.remove(&address);
        self.pieces.remove(&address)
    }

    /// Maps whole pages for `size` bytes at the front of an unmapped piece. Returns the free piece that has them.
    fn map(&mut self, address: u64, size: u64, limit: u64) -> Option<u64> {
        let segment = *self.segments.get(&self.pieces.get(&address)?.segment)?;
        let length = size.checked_next_multiple_of(page(segment))?;
        if !self.has_room(length, limit) {
            return None;
        }
        let piece = self.remove_unmapped(address)?;
        if length < piece.size {
            self.add_unmapped(address + length, piece.size - length, piece.segment);
        }
        self.reserved += length;
        Some(self.join_free(address, length, piece.segment))
    }

    /// Releases the whole pages in a free piece.
    pub(super) fn unmap(&mut self, address: u64) {
        let Some(piece) = self.pieces.get(&address).copied() else { return };
        let Some(segment) = self.segments.get(&piece.segment).copied() else { return };
        let (page, end) = (page(segment), address + piece.size);
        let from = piece.segment + (address - piece.segment).next_multiple_of(page);
        let to = piece.segment + (end - piece.segment) / page * page;
        if to <= from || self.remove_free(address).is_none() {
            return;
        }
        self.reserved -= to - from;
        // In the order of addresses: each part looks for a neighbour before it.
        if address < from {
            self.join_free(address, from - address, piece.segment);
        }
        self.join_unmapped(from, to, piece.segment);
        if to < end {
            self.join_free(to, end - to, piece.segment);
        }
    }

    fn join_unmapped(&mut self, mut from: u64, mut to: u64, segment: u64) {
        let is_unmapped = |piece: &Piece| piece.state == PieceState::Unmapped && piece.segment == segment;
        let before = self.pieces.range(..from).next_back().filter(|(_, piece)| is_unmapped(piece)).map(|(at, _)| *at);
        if let Some(before) = before.filter(|before| self.remove_unmapped(*before).is_some()) {
            from = before;
        }
        if self.pieces.get(&to).is_some_and(is_unmapped) {
            to += self.remove_unmapped(to).map_or(0, |piece| piece.size);
        }
        self.add_unmapped(from, to - from, segment);
    }
}

/// Memory is mapped in pages of the size of an ordinary segment.
fn page(segment: TorchSegment) -> u64 {
    if segment.is_small { 2 << 20 } else { LARGE_SEGMENT }
}
