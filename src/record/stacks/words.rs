//! Stacks one after another in memory that stays where it is, so that they are read without a lock.
#![expect(unsafe_code, reason = "reads what another thread wrote and then published")]

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering};

use allocator_api2::alloc::Allocator;

use crate::record::pages::{LARGE, Pages};

/// 2 MiB: a large page.
const CHUNK: usize = LARGE / size_of::<u64>();
/// 256 MiB.
const MAX_CHUNKS: usize = 1 << 7;
const MAX_WORDS: usize = CHUNK * MAX_CHUNKS;

/// A stack is its length and then its addresses, all in one chunk. Nothing that was written changes or goes.
#[derive(Debug)]
pub(super) struct Words {
    chunks: [AtomicPtr<u64>; MAX_CHUNKS],
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
        let (chunk, at) = (place as usize / CHUNK, place as usize % CHUNK);
        // Relaxed: see above, the chunk is older than the place.
        let Some(chunk) = self.chunks.get(chunk).and_then(|chunk| NonNull::new(chunk.load(Ordering::Relaxed))) else {
            return &[];
        };
        // SAFETY: within the chunk, which is never freed and was all zeros when it came.
        let start = unsafe { chunk.add(at) };
        // SAFETY: likewise; nobody writes to what was given out.
        let length = unsafe { start.read() } as usize;
        // Holds for every place that was given out; for no other one is anything read that is not the chunk's.
        if length >= CHUNK - at {
            return &[];
        }
        let first = start.as_ptr().wrapping_add(1);
        // SAFETY: see above, so many words follow in the chunk.
        unsafe { std::slice::from_raw_parts(first, length) }
    }

    /// Writes a stack and gives its place; `None` if there is no room for it.
    pub(super) fn write(&self, pen: &mut Pen, stack: &[u64]) -> Option<u32> {
        let length = stack.len() + 1;
        let left = CHUNK - pen.next % CHUNK;
        let place = if length <= left { pen.next } else { pen.next + left };
        if length > CHUNK || place + length > MAX_WORDS {
            return None;
        }
        let start = self.chunk_to_write(place / CHUNK)?.as_ptr().wrapping_add(place % CHUNK);
        // SAFETY: `length` words from `start` on lie in the chunk. The pen is one and has not been here, so
        // no place was given out that these words belong to: nobody reads them.
        unsafe { start.write(stack.len() as u64) };
        // SAFETY: likewise; a program's stack and a chunk do not overlap.
        unsafe { start.wrapping_add(1).copy_from_nonoverlapping(stack.as_ptr(), stack.len()) };
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
        let (words, mut pen) = (Box::new(Words::new()), Pen::new());
        let stack = |n: u64| (0..n % 300).map(|at| n * 1000 + at).collect::<Vec<u64>>();
        let places: Vec<u32> = (0..2000).map(|n| words.write(&mut pen, &stack(n)).unwrap()).collect();
        for (n, place) in (0..2000).zip(&places) {
            assert_eq!(words.stack(*place), stack(n));
            assert!(*place as usize % CHUNK + stack(n).len() < CHUNK);
        }
    }

    #[test]
    fn there_is_an_end_to_it() {
        let (words, mut pen) = (Box::new(Words::new()), Pen { next: MAX_WORDS - 3 });
        assert_eq!(words.write(&mut pen, &[1, 2, 3]), None);
        assert_eq!(words.write(&mut pen, &[1, 2]).map(|place| words.stack(place)), Some(&[1, 2][..]));
        assert_eq!(words.write(&mut pen, &[]), None);
    }
}
