//! A model of PyTorch's caching allocator, by the rules that its documentation and notes state.
//!
//! Requests are rounded up to 512 B. Requests up to 1 MiB are *small* and come from segments of 2 MiB. Others are
//! *large* and come from segments of 20 MiB; from 10 MiB on, each has its own segment, in multiples of 2 MiB. Each
//! stream has its own pools. The allocator takes the smallest free block that fits, among equal ones the one at the
//! lowest address, and splits it if enough remains. A freed block is joined with its free neighbours. Nothing is
//! released until memory runs out. The real driver chooses where a segment lies; the model puts each segment behind
//! the one before.

use std::collections::{BTreeMap, BTreeSet};

use super::allocator::Allocator;
use super::settings::{LARGE_SEGMENT, PyTorchSettings};
use crate::snapshot::Block;

/// Block sizes are multiples of this.
const GRAIN: u64 = 512;
const MIB: u64 = 1 << 20;
/// The largest small request.
const SMALL: u64 = MIB;
/// Size of a segment of small blocks.
const SMALL_SEGMENT: u64 = 2 * MIB;
/// A large request of this size or more gets its own segment.
const OWN_SEGMENT: u64 = 10 * MIB;

/// A pool of blocks: its stream, and whether its blocks are small.
type PoolOf = (u32, bool);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PieceState {
    Used,
    Free,
    /// Addresses of an expandable segment that have no memory.
    Unmapped,
}

/// A piece of a segment. The pieces cover their segment without gaps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) size: u64,
    /// The address of its segment.
    pub(super) segment: u64,
    pub(super) state: PieceState,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct TorchSegment {
    pub(super) size: u64,
    pub(super) stream: u32,
    pub(super) is_small: bool,
}

impl TorchSegment {
    /// A segment of a file, of which only the size is known. Only segments of small blocks have [`SMALL_SEGMENT`]
    /// bytes.
    pub(super) fn of_size(size: u64, stream: u32) -> Self {
        Self { size, stream, is_small: size == SMALL_SEGMENT }
    }

    pub(super) fn pool(self) -> PoolOf {
        (self.stream, self.is_small)
    }
}

#[derive(Debug, Default)]
pub(super) struct PyTorchAllocator {
    pub(super) settings: PyTorchSettings,
    /// By address.
    pub(super) segments: BTreeMap<u64, TorchSegment>,
    /// By address.
    pub(super) pieces: BTreeMap<u64, Piece>,
    /// Size and address of each pool's free pieces.
    pub(super) free: BTreeMap<PoolOf, BTreeSet<(u64, u64)>>,
    /// Addresses of the segments without a block, which can be released.
    whole: BTreeSet<u64>,
    /// Addresses of the unmapped pieces.
    pub(super) unmapped: BTreeMap<PoolOf, BTreeSet<u64>>,
    /// Address of the next segment.
    pub(super) next: u64,
    pub(super) reserved: u64,
    used: u64,
}

impl PyTorchAllocator {
    pub(super) fn new(settings: PyTorchSettings) -> Self {
        Self { settings, next: SMALL_SEGMENT, ..Self::default() }
    }

    /// Size of the block for a request.
    pub(super) fn rounded(&self, size: u64) -> Option<u64> {
        let divisions = self.settings.roundup;
        if divisions > 1 && size > GRAIN * divisions {
            let part = (1u64 << size.ilog2()) / divisions;
            return size.checked_next_multiple_of(part);
        }
        size.max(1).checked_next_multiple_of(GRAIN)
    }

    /// The size of a new segment for a request.
    pub(super) fn segment_size(size: u64) -> Option<u64> {
        match size {
            _ if size <= SMALL => Some(SMALL_SEGMENT),
            _ if size < OWN_SEGMENT => Some(LARGE_SEGMENT),
            _ => size.checked_next_multiple_of(SMALL_SEGMENT),
        }
    }

    /// Blocks of at least this size are *oversize*: they are not split, and small requests do not get them.
    fn max_split(&self) -> u64 {
        self.settings.max_split.unwrap_or(u64::MAX)
    }

    /// The smallest free piece that fits, if the rules allow its use.
    fn best_fit(&self, size: u64, pool: PoolOf) -> Option<u64> {
        let found = self.free.get(&pool)?.range((size, 0)..);
        let (found_size, address) =
            if self.settings.expandable { self.least_expandable(found)? } else { *found.clone().next()? };
        let is_oversize = |size: u64| size >= self.max_split();
        let is_wasteful = match (is_oversize(size), is_oversize(found_size)) {
            (false, is_oversize) => is_oversize,
            (true, _) => found_size >= size.saturating_add(LARGE_SEGMENT),
        };
        (!is_wasteful).then_some(address)
    }

    fn is_split(&self, size: u64, remaining: u64, is_small: bool) -> bool {
        if is_small || self.settings.expandable {
            return remaining >= GRAIN;
        }
        size < self.max_split() && remaining > SMALL
    }

    /// Creates a segment, as one free piece.
    fn new_segment(&mut self, size: u64, pool: PoolOf, limit: u64) -> Option<u64> {
        let length = Self::segment_size(size)?;
        let is_there =
            self.has_room(length, limit) || self.release_oversize(size, pool) && self.has_room(length, limit);
        if !is_there {
            self.trim();
        }
        if !self.has_room(length, limit) {
            return None;
        }
        let address = self.next;
        self.next = address.checked_add(length)?;
        self.seed(address, TorchSegment { size: length, stream: pool.0, is_small: pool.1 }, &[]);
        Some(address)
    }

    pub(super) fn has_room(&self, length: u64, limit: u64) -> bool {
        self.reserved.checked_add(length).is_some_and(|reserved| reserved <= limit)
    }

    pub(super) fn add(&mut self, address: u64, piece: Piece) {
        let Some(whole) = self.segments.get(&piece.segment).copied() else { return };
        self.pieces.insert(address, piece);
        match piece.state {
            PieceState::Free => _ = self.free.entry(whole.pool()).or_default().insert((piece.size, address)),
            PieceState::Unmapped => _ = self.unmapped.entry(whole.pool()).or_default().insert(address),
            PieceState::Used => {}
        }
        if piece.state == PieceState::Free && piece.size == whole.size {
            self.whole.insert(address);
        }
    }

    /// Removes a piece that has this state, to take it or to join it with others.
    pub(super) fn remove(&mut self, address: u64, state: PieceState) -> Option<Piece> {
        let piece = self.pieces.get(&address).copied().filter(|piece| piece.state == state)?;
        let pool = self.segments.get(&piece.segment)?.pool();
        match state {
            PieceState::Free => _ = self.free.get_mut(&pool)?.remove(&(piece.size, address)),
            PieceState::Unmapped => _ = self.unmapped.get_mut(&pool)?.remove(&address),
            PieceState::Used => {}
        }
        self.whole.remove(&address);
        self.pieces.remove(&address)
    }

    /// Takes a free piece, or its front if the piece is split.
    pub(super) fn take(&mut self, address: u64, size: u64) -> Option<u64> {
        let piece = self.remove(address, PieceState::Free)?;
        let is_small = self.segments.get(&piece.segment)?.is_small;
        let remaining = piece.size.checked_sub(size)?;
        let taken = if self.is_split(size, remaining, is_small) { size } else { piece.size };
        self.pieces.insert(address, Piece { size: taken, state: PieceState::Used, ..piece });
        if taken < piece.size {
            self.add(address + taken, Piece { size: piece.size - taken, ..piece });
        }
        self.used += taken;
        Some(address)
    }

    /// Adds a piece, joined with its neighbours of the same state. Returns where the joined piece begins.
    pub(super) fn join(&mut self, address: u64, piece: Piece) -> u64 {
        let (mut from, mut to) = (address, address + piece.size);
        let is_like = |other: &Piece| (other.state, other.segment) == (piece.state, piece.segment);
        let before = self.pieces.range(..address).next_back().filter(|(_, other)| is_like(other)).map(|(at, _)| *at);
        if let Some(before) = before.filter(|before| self.remove(*before, piece.state).is_some()) {
            from = before;
        }
        if self.pieces.get(&to).is_some_and(is_like) {
            to += self.remove(to, piece.state).map_or(0, |other| other.size);
        }
        self.add(from, Piece { size: to - from, ..piece });
        from
    }

    /// Adds a segment with its blocks, sorted by address. In a large segment, free space behind a block may belong to
    /// the block, because the allocator splits off no small rest. It is a free piece only if it is larger than such a
    /// rest.
    pub(super) fn seed(&mut self, address: u64, segment: TorchSegment, blocks: &[Block]) {
        self.segments.insert(address, segment);
        self.reserved += segment.size;
        let end = address + segment.size;
        let free = |size| Piece { size, segment: address, state: PieceState::Free };
        let mut at = address;
        for (place, block) in blocks.iter().enumerate() {
            let next = blocks.get(place + 1).map_or(end, |next| next.address);
            let size = self.rounded(block.size).unwrap_or(block.size);
            let Some(remaining) = next.checked_sub(block.address.saturating_add(size)) else { continue };
            if block.address > at {
                self.add(at, free(block.address - at));
            }
            let taken = if self.is_split(size, remaining, segment.is_small) { size } else { size + remaining };
            self.pieces.insert(block.address, Piece { state: PieceState::Used, ..free(taken) });
            self.used += taken;
            at = block.address + taken;
        }
        if end > at {
            self.add(at, free(end - at));
        }
    }

    /// Whether no segment overlaps these addresses.
    pub(super) fn is_clear(&self, address: u64, size: u64) -> bool {
        let last = self.segments.range(..address.saturating_add(size)).next_back();
        last.is_none_or(|(base, segment)| base + segment.size <= address)
    }

    /// If splitting is limited, PyTorch first releases free oversize blocks: one that is large enough, or else the
    /// largest ones.
    fn release_oversize(&mut self, size: u64, pool: PoolOf) -> bool {
        let Some(max_split) = self.settings.max_split else { return false };
        let size = size.max(max_split);
        let free = self.free.entry(pool).or_default();
        if let Some((_, address)) = free.range((size, 0)..).next().copied() {
            return self.release(address);
        }
        let mut released = 0;
        let largest: Vec<(u64, u64)> = free.iter().rev().take_while(|(size, _)| *size >= max_split).copied().collect();
        for (length, address) in largest {
            if released < size && self.release(address) {
                released += length;
            }
        }
        released >= size
    }

    /// Releases a free piece that covers a whole segment.
    pub(super) fn release(&mut self, address: u64) -> bool {
        if !self.whole.contains(&address) || self.remove(address, PieceState::Free).is_none() {
            return false;
        }
        let Some(segment) = self.segments.remove(&address) else { return false };
        self.reserved -= segment.size;
        true
    }
}

impl Allocator for PyTorchAllocator {
    fn alloc(&mut self, size: u64, stream: u32, limit: u64) -> Option<u64> {
        let size = self.rounded(size)?;
        let pool = (stream, size <= SMALL);
        let found = self.best_fit(size, pool).or_else(|| {
            if self.settings.expandable { self.expand(size, pool, limit) } else { self.new_segment(size, pool, limit) }
        })?;
        self.take(found, size)
    }

    fn free(&mut self, address: u64) {
        let Some(piece) = self.remove(address, PieceState::Used) else { return };
        self.used -= piece.size;
        self.join(address, Piece { state: PieceState::Free, ..piece });
    }

    fn empty_cache(&mut self) {
        self.trim();
    }

    fn trim(&mut self) {
        if self.settings.expandable {
            let free: Vec<u64> = self.free.values().flatten().map(|(_, address)| *address).collect();
            free.into_iter().for_each(|address| self.unmap(address));
        }
        for address in self.whole.clone() {
            self.release(address);
        }
    }

    fn reserved(&self) -> u64 {
        self.reserved
    }

    fn used(&self) -> u64 {
        self.used
    }

    fn segments(&self) -> usize {
        self.segments.len()
    }

    fn largest_gap(&self) -> u64 {
        self.free.values().filter_map(|free| free.last()).map(|(size, _)| *size).max().unwrap_or(0)
    }
}
