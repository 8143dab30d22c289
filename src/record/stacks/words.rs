//! Append-only storage of stacks. Its chunks never move and are never freed, so stacks are read without a lock.
#![expect(unsafe_code, reason = "reads what another thread wrote and published")]

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering};

use allocator_api2::alloc::Allocator;

use crate::record::pages::{LARGE, Pages};
use crate::record::unwind::stack::{KnownStack, Spacing};

/// One huge page, 2 MiB.
const CHUNK: usize = LARGE / size_of::<u64>();
/// 256 MiB.
const MAX_CHUNKS: usize = 1 << 7;
const MAX_WORDS: usize = CHUNK * MAX_CHUNKS;

/// The `end` in the header of a stack whose [`Spacing`] is not known.
const NO_SPACING: u32 = u32::MAX;

/// Storage of stacks. A stack is a header, its addresses, and its [`Spacing`] if that is known, all in one chunk. A
/// stack's place is the index of its header among the words of all chunks.
#[derive(Debug)]
pub(super) struct Words {
    chunks: [AtomicPtr<u64>; MAX_CHUNKS],
}

/// The number of addresses and of saved frame pointers, 16 bits each, and the `end` of the spacing.
#[derive(Clone, Copy)]
struct StackHeader {
    length: usize,
    fps: usize,
    end: u32,
}

impl StackHeader {
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn of(word: u64) -> Self {
        Self { length: usize::from(word as u16), fps: usize::from((word >> 16) as u16), end: (word >> 32) as u32 }
    }

    fn word(self) -> u64 {
        self.length as u64 | (self.fps as u64) << 16 | u64::from(self.end) << 32
    }

    /// Words of the stack, including the header.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn words(self) -> usize {
        1 + self.length + if self.end == NO_SPACING { 0 } else { self.length.div_ceil(2) + self.fps }
    }
}

struct StackEntry<'a> {
    addresses: &'a [u64],
    header: StackHeader,
}

/// The next free word. Only the writer that owns this value may write there.
#[derive(Debug)]
pub(super) struct Pen {
    next: usize,
}

impl Pen {
    pub(super) const fn new() -> Self {
        // Starts at 1, because place 0 means none.
        Self { next: 1 }
    }
}

impl Words {
    pub(super) const fn new() -> Self {
        Self { chunks: [const { AtomicPtr::new(std::ptr::null_mut()) }; MAX_CHUNKS] }
    }

    /// The addresses of the stack at a place. Either [`write`](Self::write) returned the place to this thread, or
    /// another thread published the place with release and this thread acquired it.
    #[inline]
    pub(super) fn stack(&self, place: u32) -> &[u64] {
        self.entry(place).map_or(&[], |entry| entry.addresses)
    }

    /// Like [`stack`](Self::stack), with the spacing, if that is known.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn known(&self, place: u32) -> Option<KnownStack<'_>> {
        let StackEntry { addresses, header } = self.entry(place).filter(|entry| entry.header.end != NO_SPACING)?;
        let StackHeader { length, fps, end } = header;
        let offsets = addresses.as_ptr_range().end.cast::<u32>();
        let behind = offsets.cast::<u64>().wrapping_add(length.div_ceil(2)).cast();
        // SAFETY: a stack with an `end` has as many offsets as addresses, directly after them in the chunk. Stored
        // stacks do not change.
        let offsets = unsafe { std::slice::from_raw_parts(offsets, length) };
        // SAFETY: the pairs start at the next whole word after the offsets, likewise in the chunk and unchanging.
        let fps = unsafe { std::slice::from_raw_parts(behind, fps) };
        Some(KnownStack { number: place, addresses, spacing: Spacing { offsets, fps, end } })
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn entry(&self, place: u32) -> Option<StackEntry<'_>> {
        let (chunk, at) = (place as usize / CHUNK, place as usize % CHUNK);
        // Relaxed: the place was published after its chunk.
        let chunk = NonNull::new(self.chunks.get(chunk)?.load(Ordering::Relaxed))?;
        // SAFETY: `at` is within the chunk, which is never freed.
        let start = unsafe { chunk.add(at) };
        // SAFETY: likewise. The chunk started as zeros, so the word is initialised.
        let header = StackHeader::of(unsafe { start.read() });
        // This is never true of places that `write` returned. For any other place, nothing outside the chunk is read.
        if header.words() > CHUNK - at {
            return None;
        }
        let first = start.as_ptr().wrapping_add(1);
        // SAFETY: within the initialised chunk, as just checked. Stored stacks do not change.
        Some(StackEntry { addresses: unsafe { std::slice::from_raw_parts(first, header.length) }, header })
    }

    /// Writes a stack, with its spacing if that is known. Returns its place, or `None` if the storage is full.
    pub(super) fn write(&self, pen: &mut Pen, stack: &[u64], spacing: Option<Spacing<'_>>) -> Option<u32> {
        let spacing = spacing.filter(|spacing| spacing.offsets.len() == stack.len());
        let Spacing { offsets, fps, end } = spacing.unwrap_or(Spacing { offsets: &[], fps: &[], end: NO_SPACING });
        let header = StackHeader { length: stack.len(), fps: fps.len(), end };
        let length = header.words();
        let left = CHUNK - pen.next % CHUNK;
        let place = if length <= left { pen.next } else { pen.next + left };
        if length > CHUNK || place + length > MAX_WORDS || stack.len().max(fps.len()) > usize::from(u16::MAX) {
            return None;
        }
        let start = self.chunk_to_write(place / CHUNK)?.as_ptr().wrapping_add(place % CHUNK);
        let (first, behind) = (start.wrapping_add(1), start.wrapping_add(1 + stack.len()));
        let last = behind.wrapping_add(offsets.len().div_ceil(2));
        // SAFETY: the `length` words from `start` on are in the chunk. Only the owner of the pen writes, and no place
        // among these words was returned, so nobody reads them.
        unsafe { start.write(header.word()) };
        // SAFETY: likewise, and the source is on a program's stack or in a buffer, so it does not overlap the chunk.
        unsafe { first.copy_from_nonoverlapping(stack.as_ptr(), stack.len()) };
        // SAFETY: likewise; `length` includes the words of the offsets.
        unsafe { behind.cast::<u32>().copy_from_nonoverlapping(offsets.as_ptr(), offsets.len()) };
        // SAFETY: likewise; `length` includes the words of the pairs.
        unsafe { last.cast::<[u32; 2]>().copy_from_nonoverlapping(fps.as_ptr(), fps.len()) };
        pen.next = place + length;
        Some(place as u32)
    }

    fn chunk_to_write(&self, number: usize) -> Option<NonNull<u64>> {
        let chunk = self.chunks.get(number)?;
        // Relaxed: only the owner of the pen writes.
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
        let fps = |n: u64| (0..n % 5).map(|at| [n as u32, at as u32]).collect::<Vec<_>>();
        for n in 0..2000 {
            let (offsets, fps) = (offsets(n), fps(n));
            // Every third stack has no spacing.
            let spacing = Spacing { offsets: &offsets, fps: &fps, end: n as u32 };
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
