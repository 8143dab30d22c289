//! The same allocators by their definitions: they look at every piece. The models are compared with them.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Used,
    Free,
    /// Addresses without memory.
    Bare,
}

use State::{Bare, Free, Used};

#[derive(Clone, Debug)]
struct NaiveSegment {
    address: u64,
    stream: u32,
    is_small: bool,
    /// Size and state, in the order of addresses.
    pieces: Vec<(u64, State)>,
}

impl NaiveSegment {
    fn size(&self) -> u64 {
        self.pieces.iter().map(|(size, _)| size).sum()
    }

    fn mapped(&self) -> u64 {
        self.pieces.iter().filter(|(_, state)| *state != Bare).map(|(size, _)| size).sum()
    }

    /// Address, size and state of each piece.
    fn placed(&self) -> Vec<(u64, u64, State)> {
        let before = |at: usize| self.pieces[..at].iter().map(|(size, _)| size).sum::<u64>();
        self.pieces.iter().enumerate().map(|(at, (size, state))| (self.address + before(at), *size, *state)).collect()
    }

    fn join(&mut self) {
        let mut joined: Vec<(u64, State)> = Vec::new();
        for (size, state) in self.pieces.drain(..).filter(|(size, _)| *size > 0) {
            match joined.last_mut() {
                Some(last) if last.1 == state && state != Used => last.0 += size,
                _ => joined.push((size, state)),
            }
        }
        self.pieces = joined;
    }

    /// Sets the state of a range that lies within one piece, or within pieces that are all unused.
    fn set(&mut self, from: u64, to: u64, state: State) {
        let mut pieces = Vec::new();
        let mut is_set = false;
        for (at, size, old) in self.placed() {
            let end = at + size;
            pieces.push((from.clamp(at, end) - at, old));
            if !is_set && end > from {
                pieces.push((to - from, state));
                is_set = true;
            }
            pieces.push((end - to.clamp(at, end), old));
        }
        self.pieces = pieces;
        self.join();
    }
}

fn up(bytes: u64, step: u64) -> u64 {
    bytes.div_ceil(step) * step
}

/// The driver's pool.
#[derive(Debug)]
pub(super) struct NaivePool {
    pub(super) threshold: u64,
    segments: Vec<(u64, Vec<(u64, State)>)>,
    next_segment: u64,
    next: u64,
}

impl NaivePool {
    pub(super) fn new(threshold: u64) -> Self {
        Self { threshold, segments: Vec::new(), next_segment: 2 << 20, next: 0 }
    }

    fn segment(&self, at: usize) -> NaiveSegment {
        let (address, pieces) = self.segments[at].clone();
        NaiveSegment { address, stream: 0, is_small: false, pieces }
    }

    pub(super) fn reserved(&self) -> u64 {
        (0..self.segments.len()).map(|at| self.segment(at).size()).sum()
    }

    fn place(&mut self, size: u64) -> Option<u64> {
        let gaps = (0..self.segments.len()).flat_map(|at| {
            let placed = self.segment(at).placed();
            placed.into_iter().filter(|piece| piece.2 == Free).map(move |(from, size, _)| (at, from, from + size))
        });
        let gaps: Vec<(usize, u64, u64)> = gaps.collect();
        let first = |least: u64| {
            gaps.iter().find_map(|(at, from, to)| (from.max(&least) + size <= *to).then_some((*at, *from.max(&least))))
        };
        let (at, address) = first(self.next).or_else(|| first(0))?;
        let mut segment = self.segment(at);
        segment.set(address, address + size, Used);
        self.segments[at].1 = segment.pieces;
        self.next = address + size;
        Some(address)
    }

    pub(super) fn alloc(&mut self, size: u64, limit: u64) -> Option<u64> {
        let size = up(size.max(1), 512);
        if let Some(address) = self.place(size) {
            return Some(address);
        }
        for step in [32 << 20, 2 << 20] {
            let length = up(size, step);
            if self.reserved() + length > limit {
                self.shrink(0);
            }
            if self.reserved() + length <= limit {
                self.segments.push((self.next_segment, vec![(length, Free)]));
                self.next_segment += length;
                return self.place(size);
            }
        }
        None
    }

    pub(super) fn free(&mut self, address: u64) {
        for at in 0..self.segments.len() {
            let mut segment = self.segment(at);
            if let Some((from, size, _)) =
                segment.placed().into_iter().find(|piece| piece.0 == address && piece.2 == Used)
            {
                segment.set(from, from + size, Free);
                self.segments[at].1 = segment.pieces;
            }
        }
    }

    pub(super) fn shrink(&mut self, keep: u64) {
        for at in (0..self.segments.len()).rev() {
            let segment = self.segment(at);
            let is_empty = matches!(segment.pieces[..], [(_, Free)]);
            if is_empty && self.reserved() - segment.size() >= keep {
                self.segments.remove(at);
            }
        }
    }
}

/// PyTorch's caching allocator.
#[derive(Debug)]
pub(super) struct NaiveTorch {
    pub(super) expandable: bool,
    pub(super) max_split: u64,
    pub(super) roundup: u64,
    segments: Vec<NaiveSegment>,
    next: u64,
}

const MIB: u64 = 1 << 20;

impl NaiveTorch {
    pub(super) fn new(expandable: bool, max_split: Option<u64>, roundup: u64) -> Self {
        Self { expandable, max_split: max_split.unwrap_or(u64::MAX), roundup, segments: Vec::new(), next: 2 * MIB }
    }

    pub(super) fn reserved(&self) -> u64 {
        self.segments.iter().map(NaiveSegment::mapped).sum()
    }

    fn rounded(&self, size: u64) -> u64 {
        if self.roundup < 2 || size <= 512 * self.roundup {
            return up(size.max(1), 512);
        }
        let mut floor = 1;
        while floor * 2 <= size {
            floor *= 2;
        }
        (0..).map(|part| floor + part * (floor / self.roundup)).find(|step| *step >= size).unwrap()
    }

    /// Size, address and segment of a pool's free pieces, smallest first.
    fn free_pieces(&self, stream: u32, is_small: bool) -> Vec<(u64, u64, usize)> {
        let mut found = Vec::new();
        for (at, segment) in self.segments.iter().enumerate() {
            if (segment.stream, segment.is_small) == (stream, is_small) {
                let free = segment.placed().into_iter().filter(|piece| piece.2 == Free);
                found.extend(free.map(|(address, size, _)| (size, address, at)));
            }
        }
        found.sort_unstable();
        found
    }

    pub(super) fn alloc(&mut self, size: u64, stream: u32, limit: u64) -> Option<u64> {
        let size = self.rounded(size);
        let is_small = size <= MIB;
        if let Some(address) = self.best(size, stream, is_small) {
            return Some(self.take(address, size));
        }
        let address = match self.expandable {
            true => self.expand(size, stream, is_small, limit)?,
            false => self.grow(size, stream, is_small, limit)?,
        };
        Some(self.take(address, size))
    }

    fn best(&self, size: u64, stream: u32, is_small: bool) -> Option<u64> {
        let fitting: Vec<_> = self.free_pieces(stream, is_small).into_iter().filter(|piece| piece.0 >= size).collect();
        let mut best = *fitting.first()?;
        if self.expandable {
            let could_be = |&(size, address, at): &(u64, u64, usize)| {
                let behind =
                    self.segments[at].placed().into_iter().find(|piece| piece.0 == address + size && piece.2 == Bare);
                size + behind.map_or(0, |piece| piece.1)
            };
            for next in &fitting[1..] {
                if best.0 == self.segments[best.2].size() || could_be(next) >= could_be(&best) {
                    break;
                }
                best = *next;
            }
        }
        let is_refused = if size < self.max_split { best.0 >= self.max_split } else { best.0 >= size + 20 * MIB };
        (!is_refused).then_some(best.1)
    }

    fn grow(&mut self, size: u64, stream: u32, is_small: bool, limit: u64) -> Option<u64> {
        let length = if is_small {
            2 * MIB
        } else if size < 10 * MIB {
            20 * MIB
        } else {
            up(size, 2 * MIB)
        };
        let has_max = self.max_split < u64::MAX;
        let mut is_there = self.reserved() + length <= limit;
        if !is_there && has_max && self.release_oversize(size.max(self.max_split), stream, is_small) {
            is_there = self.reserved() + length <= limit;
        }
        if !is_there {
            self.trim();
        }
        if self.reserved() + length > limit {
            return None;
        }
        let address = self.next;
        self.next += length;
        self.segments.push(NaiveSegment { address, stream, is_small, pieces: vec![(length, Free)] });
        Some(address)
    }

    fn release_oversize(&mut self, size: u64, stream: u32, is_small: bool) -> bool {
        let free = self.free_pieces(stream, is_small);
        if let Some((_, address, _)) = free.iter().find(|piece| piece.0 >= size) {
            self.segments.retain(|segment| segment.address != *address);
            return true;
        }
        let mut released = 0;
        for (length, address, _) in free.into_iter().rev().filter(|piece| piece.0 >= self.max_split) {
            if released < size {
                released += length;
                self.segments.retain(|segment| segment.address != address);
            }
        }
        released >= size
    }

    fn take(&mut self, address: u64, size: u64) -> u64 {
        let expandable = self.expandable;
        for segment in &mut self.segments {
            let Some((_, length, _)) = segment.placed().into_iter().find(|piece| piece.0 == address && piece.2 == Free)
            else {
                continue;
            };
            let rest = length - size;
            let is_split =
                if segment.is_small || expandable { rest >= 512 } else { size < self.max_split && rest > MIB };
            segment.set(address, address + if is_split { size } else { length }, Used);
        }
        address
    }

    pub(super) fn free(&mut self, address: u64) {
        for segment in &mut self.segments {
            if let Some((from, size, _)) =
                segment.placed().into_iter().find(|piece| piece.0 == address && piece.2 == Used)
            {
                segment.set(from, from + size, Free);
            }
        }
    }

    pub(super) fn trim(&mut self) {
        if !self.expandable {
            return self.segments.retain(|segment| !matches!(segment.pieces[..], [(_, Free)]));
        }
        for segment in &mut self.segments {
            let page = if segment.is_small { 2 * MIB } else { 20 * MIB };
            for (from, size, _) in segment.placed().into_iter().filter(|piece| piece.2 == Free) {
                let base = segment.address;
                let (first, last) = (base + up(from - base, page), base + (from + size - base) / page * page);
                if first < last {
                    segment.set(first, last, Bare);
                }
            }
        }
    }

    fn expand(&mut self, size: u64, stream: u32, is_small: bool, limit: u64) -> Option<u64> {
        self.map(size, stream, is_small, limit).or_else(|| {
            self.trim();
            self.map(size, stream, is_small, limit)
        })
    }

    /// Maps memory into the first range of unused addresses that has room, as much as is needed.
    fn map(&mut self, size: u64, stream: u32, is_small: bool, limit: u64) -> Option<u64> {
        let (at, mut address) = match self.range_with_room(size, stream, is_small) {
            Some(found) => found,
            None => {
                let address = self.next;
                self.next += 1 << 46;
                self.segments.push(NaiveSegment { address, stream, is_small, pieces: vec![(1 << 46, Bare)] });
                (self.segments.len() - 1, address)
            }
        };
        loop {
            let segment = &self.segments[at];
            let placed = segment.placed();
            let place = placed.iter().position(|piece| piece.0 == address)?;
            let (_, length, state) = placed[place];
            let (from, bare, missing) = match state {
                Free if length >= size => return Some(address),
                Free => (address + length, placed[place + 1].1, size - length),
                _ => (address, length, size),
            };
            let page = if is_small { 2 * MIB } else { 20 * MIB };
            let mapped = up(missing.min(bare), page);
            if self.reserved() + mapped > limit {
                return None;
            }
            self.segments[at].set(from, from + mapped, Free);
            let placed = self.segments[at].placed();
            address = placed.iter().find(|piece| piece.0 <= from && from < piece.0 + piece.1)?.0;
        }
    }

    fn range_with_room(&self, size: u64, stream: u32, is_small: bool) -> Option<(usize, u64)> {
        let mut of_pool: Vec<usize> = (0..self.segments.len()).collect();
        of_pool.retain(|at| (self.segments[*at].stream, self.segments[*at].is_small) == (stream, is_small));
        for at in of_pool {
            let placed = self.segments[at].placed();
            for first in (0..placed.len()).filter(|first| placed[*first].2 == Bare) {
                let first = if first > 0 && placed[first - 1].2 == Free { first - 1 } else { first };
                let room: u64 = placed[first..].iter().take_while(|piece| piece.2 != Used).map(|piece| piece.1).sum();
                if room >= size {
                    return Some((at, placed[first].0));
                }
            }
        }
        None
    }
}
