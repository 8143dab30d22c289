//! Stacks one after another in memory that stays where it is, so that they are read without a lock.
#![expect(unsafe_code, reason = "reads what another thread wrote and then published")]

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering};

use allocator_api2::alloc::Allocator;

use crate::record::pages::{LARGE, Pages};
use crate::record::unwind::stack::{Known, Spacing};

/// 2 MiB: a large page.
const CHUNK: usize = LARGE / size_of::<u64>();
/// 256 MiB.
const MAX_CHUNKS: usize = 1 << 7;
const MAX_WORDS: usize = CHUNK * MAX_CHUNKS;

/// In place of a stack's end: where its words lie is not known.
const NO_SPACING: u32 = u32::MAX;

/// A stack is a header, then its addresses, then its spacing if that is known, all in one chunk. Nothing that was written
/// changes or goes.
#[derive(Debug)]
pub(super) struct Words {
    chunks: [AtomicPtr<u64>; MAX_CHUNKS],
}

/// How many addresses and pairs of a spacing there are, in 16 bits each, and the spacing's end.
#[derive(Clone, Copy)]
struct Header {
    length: usize,
    bps: usize,
    end: u32,
}

impl Header {
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn of(word: u64) -> Self {
        Self { length: usize::from(word as u16), bps: usize::from((word >> 16) as u16), end: (word >> 32) as u32 }
    }

    fn word(self) -> u64 {
        self.length as u64 | (self.bps as u64) << 16 | u64::from(self.end) << 32
    }

    /// What the stack takes, with the header itself.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn words(self) -> usize {
        1 + self.length + if self.end == NO_SPACING { 0 } else { self.length.div_ceil(2) + self.bps }
    }
}

struct Entry<'a> {
    addresses: &'a [u64],
    header: Header,
}

/// Where the next stack goes: whoever has it may write.
#[derive(Debug)]
pub(super) struct Pen {
    next: usize,
}

impl Pen {
    pub(super) const fn new() -> Self {
        // No stack stands at 0.
        Self { next: 1 }
    }
}

impl Words {
    pub(super) const fn new() -> Self {
        Self { chunks: [const { AtomicPtr::new(std::ptr::null_mut()) }; MAX_CHUNKS] }
    }

    /// The stack at a place that [`write`](Self::write) gave out: to this thread, or to one that published it
    /// with release and from which this one has it with acquire.
    #[inline]
    pub(super) fn stack(&self, place: u32) -> &[u64] {
        self.entry(place).map_or(&[], |entry| entry.addresses)
    }

    /// The same with where its words lie, if that is known.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn known(&self, place: u32) -> Option<Known<'_>> {
        let Entry { addresses, header } = self.entry(place).filter(|entry| entry.header.end != NO_SPACING)?;
        let Header { length, bps, end } = header;
        let offsets = addresses.as_ptr_range().end.cast::<u32>();
        let behind = offsets.cast::<u64>().wrapping_add(length.div_ceil(2)).cast();
        // SAFETY: as many offsets as addresses follow those where there is an end, and nobody writes to what was given
        // out.
        let offsets = unsafe { std::slice::from_raw_parts(offsets, length) };
        // SAFETY: likewise, and so many pairs follow from the next whole word on.
        let bps = unsafe { std::slice::from_raw_parts(behind, bps) };
        Some(Known { number: place, addresses, spacing: Spacing { offsets, bps, end } })
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn entry(&self, place: u32) -> Option<Entry<'_>> {
        let (chunk, at) = (place as usize / CHUNK, place as usize % CHUNK);
        // Relaxed: see above, the chunk is older than the place.
        let chunk = NonNull::new(self.chunks.get(chunk)?.load(Ordering::Relaxed))?;
        // SAFETY: within the chunk, which is never freed and was all zeros when it came.
        let start = unsafe { chunk.add(at) };
        // SAFETY: likewise; nobody writes to what was given out.
        let header = Header::of(unsafe { start.read() });
        // Holds for every place that was given out; for no other one is anything read that is not the chunk's.
        if header.words() > CHUNK - at {
            return None;
        }
        let first = start.as_ptr().wrapping_add(1);
        // SAFETY: see above, so many words follow in the chunk.
        Some(Entry { addresses: unsafe { std::slice::from_raw_parts(first, header.length) }, header })
    }

    /// Writes a stack, with where its words lie if that is known, and gives its place; `None` if there is no room.
    pub(super) fn write(&self, pen: &mut Pen, stack: &[u64], spacing: Option<Spacing<'_>>) -> Option<u32> {
        let spacing = spacing.filter(|spacing| spacing.offsets.len() == stack.len());
        let Spacing { offsets, bps, end } = spacing.unwrap_or(Spacing { offsets: &[], bps: &[], end: NO_SPACING });
        let header = Header { length: stack.len(), bps: bps.len(), end };
        let length = header.words();
        let left = CHUNK - pen.next % CHUNK;
        let place = if length <= left { pen.next } else { pen.next + left };
        if length > CHUNK || place + length > MAX_WORDS || stack.len().max(bps.len()) > usize::from(u16::MAX) {
            return None;
        }
        let start = self.chunk_to_write(place / CHUNK)?.as_ptr().wrapping_add(place % CHUNK);
        let (first, behind) = (start.wrapping_add(1), start.wrapping_add(1 + stack.len()));
        let last = behind.wrapping_add(offsets.len().div_ceil(2));
        // SAFETY: `length` words from `start` on lie in the chunk. The pen is one and has not been here, so
        // no place was given out that these words belong to: nobody reads them.
        unsafe { start.write(header.word()) };
        // SAFETY: likewise; a program's stack and a chunk do not overlap.
        unsafe { first.copy_from_nonoverlapping(stack.as_ptr(), stack.len()) };
        // SAFETY: likewise.
        unsafe { behind.cast::<u32>().copy_from_nonoverlapping(offsets.as_ptr(), offsets.len()) };
        // SAFETY: likewise.
        unsafe { last.cast::<[u32; 2]>().copy_from_nonoverlapping(bps.as_ptr(), bps.len()) };
        pen.next = place + length;
        Some(place as u32)
    }

    fn chunk_to_write(&self, number: usize) -> Option<NonNull<u64>> {
        let chunk = self.chunks.get(number)?;
        // Relaxed: only whoever has the pen writes here.
        if let Some(there) = NonNull::new(chunk.load(Ordering::Relaxed)) {
            return Some(there);
        }
        let new = Pages.allocate_zeroed(Layout::new::<[u64; CHUNK]>()).ok()?.cast::<u64>();
        chunk.store(new.as_ptr(), Ordering::Relaxed);
        Some(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_stay_where_they_were_written_and_none_lies_in_two_chunks() {
        let (words, mut pen, mut places) = (Box::new(Words::new()), Pen::new(), Vec::new());
        let stack = |n: u64| (0..n % 300).map(|at| n * 1000 + at).collect::<Vec<u64>>();
        let offsets = |n: u64| (0..n % 300).map(|at| (n * 7 + at) as u32).collect::<Vec<u32>>();
        let bps = |n: u64| (0..n % 5).map(|at| [n as u32, at as u32]).collect::<Vec<_>>();
        for n in 0..2000 {
            let (offsets, bps) = (offsets(n), bps(n));
            // Every third has no spacing.
            let spacing = Spacing { offsets: &offsets, bps: &bps, end: n as u32 };
            let spacing = (!n.is_multiple_of(3)).then_some(spacing);
            let place = words.write(&mut pen, &stack(n), spacing).unwrap();
            places.push(place);
            let known = words.known(place);
            assert_eq!(known.map(|known| known.spacing), spacing);
            assert!(known.is_none_or(|known| (known.number, known.addresses) == (place, &*stack(n))));
            assert!(pen.next.is_multiple_of(CHUNK) || pen.next / CHUNK == place as usize / CHUNK);
        }
        for (n, place) in (0..2000).zip(&places) {
            assert_eq!(words.stack(*place), stack(n));
        }
    }

    #[test]
    fn there_is_an_end_to_it() {
        let (words, mut pen) = (Box::new(Words::new()), Pen { next: MAX_WORDS - 3 });
        assert_eq!(words.write(&mut pen, &[1, 2, 3], None), None);
        assert_eq!(words.write(&mut pen, &[1, 2], None).map(|place| words.stack(place)), Some(&[1, 2][..]));
        assert_eq!(words.write(&mut pen, &[], None), None);
    }
}
