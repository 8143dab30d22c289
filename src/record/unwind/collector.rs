//! A stack's addresses in bounded space.

use std::mem::MaybeUninit;

use super::stack::{HASH_OF_NONE, Stack, hash_with};
use super::{mode, modules};
use crate::snapshot::FRAMES_LEFT_OUT;
use crate::units::MAX_STACK_DEPTH;

/// Code addresses of a stack, innermost first, at most [`MAX_STACK_DEPTH`] and a mark of them.
#[derive(Clone, Debug)]
pub(super) struct CapturedStack {
    /// Not filled with zeros first: that would cost as much as ten frames.
    addresses: [MaybeUninit<u64>; MAX_STACK_DEPTH + 1],
    /// So many of them, from the first on, have been written.
    length: usize,
    /// Frames were left out in the middle.
    shortened: bool,
}

impl CapturedStack {
    #[inline(always)]
    pub(super) fn empty() -> Self {
        Self { addresses: [const { MaybeUninit::uninit() }; MAX_STACK_DEPTH + 1], length: 0, shortened: false }
    }

    #[expect(unsafe_code, reason = "reads the part of the array that was written")]
    pub(super) fn addresses(&self) -> &[u64] {
        let written = self.addresses.get(..self.length).unwrap_or(&[]);
        // SAFETY: the collector writes one address after another from the first on, and counts in
        // `length` only what it wrote.
        unsafe { written.assume_init_ref() }
    }

    /// The same outermost first.
    pub(super) fn turn(&mut self) -> Stack<'_> {
        if let Some(written) = self.addresses.get_mut(..self.length) {
            written.reverse();
        }
        let addresses = self.addresses();
        let hash = addresses.iter().fold(HASH_OF_NONE, |hash, address| hash_with(hash, *address));
        // Nothing is known of its modules. In a forked child the loader cannot be asked.
        let may_go = !mode::is_library();
        if may_go {
            modules::ask();
        }
        Stack { addresses, hash, shortened: self.shortened, may_go, source: None }
    }
}

/// Takes addresses from the innermost outwards: the first half fills up, the second is a ring that
/// ends up holding the outermost ones.
pub(super) struct Collector<'a> {
    stack: &'a mut CapturedStack,
    /// Where the ring begins, and where it ends.
    inner: usize,
    depth: usize,
    /// The place of the next address.
    next: usize,
    seen: usize,
}

impl<'a> Collector<'a> {
    pub(super) fn new(stack: &'a mut CapturedStack, depth: usize) -> Self {
        let depth = depth.clamp(2, MAX_STACK_DEPTH);
        Self { stack, inner: depth - depth / 2, depth, next: 0, seen: 0 }
    }

    /// False when the stack is over.
    #[inline]
    pub(super) fn take(&mut self, address: u64) -> bool {
        // libgcc reports one frame with address 0 past the outermost.
        if address == 0 {
            return false;
        }
        if self.next == self.depth {
            self.next = self.inner;
        }
        if let Some(place) = self.stack.addresses.get_mut(self.next) {
            place.write(address);
        }
        self.next += 1;
        self.seen += 1;
        true
    }

    /// Are these all that are kept but for the outermost ones, if so many more follow at least?
    #[inline]
    pub(super) fn needs_only_outermost(&self, more: usize) -> bool {
        self.seen >= self.inner && self.seen + more > self.depth
    }

    /// Takes all others of a stack, with the outermost ones given outermost first; nothing if those are too few.
    pub(super) fn end_with(&mut self, outermost: &[u64]) -> bool {
        let (ring, kept) = (self.stack.addresses.get_mut(self.inner..self.depth), self.depth - self.inner);
        let (Some(ring), Some(outermost)) = (ring, outermost.get(..kept)) else { return false };
        for (place, address) in ring.iter_mut().zip(outermost.iter().rev()) {
            place.write(*address);
        }
        (self.next, self.seen) = (self.depth, self.depth + 1);
        true
    }

    pub(super) fn finish(self) {
        self.stack.length = self.seen.min(self.depth);
        self.stack.shortened = self.seen > self.depth;
        if self.stack.shortened {
            self.mark_the_gap();
        }
    }

    /// Turns the ring so that it reads innermost first, and puts the mark before it.
    fn mark_the_gap(self) {
        let (start, end) = (self.inner, self.depth);
        let Some(ring) = self.stack.addresses.get_mut(start..=end) else { return };
        // The oldest stands where the next one would have gone. One place further is the mark's.
        if let Some(addresses) = ring.get_mut(..end - start) {
            addresses.rotate_left((self.next - start) % addresses.len().max(1));
        }
        if let Some(mark) = ring.last_mut() {
            mark.write(FRAMES_LEFT_OUT);
        }
        ring.rotate_right(1);
        self.stack.length = end + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collected(depth: usize, frames: u64) -> Vec<u64> {
        let mut stack = CapturedStack::empty();
        let mut collector = Collector::new(&mut stack, depth);
        (0..frames).all(|n| collector.take(100 + n));
        collector.finish();
        stack.addresses().to_vec()
    }

    #[test]
    fn a_deep_stack_keeps_its_innermost_and_outermost_halves() {
        assert_eq!(collected(4, 4), [100, 101, 102, 103]);
        assert_eq!(collected(4, 5), [100, 101, FRAMES_LEFT_OUT, 103, 104]);
        assert_eq!(collected(5, 553), [100, 101, 102, FRAMES_LEFT_OUT, 651, 652]);
        assert_eq!(collected(MAX_STACK_DEPTH, 10_000).len(), MAX_STACK_DEPTH + 1);
    }

    #[test]
    fn every_depth_and_length_keeps_the_right_ends() {
        for depth in 2..12usize {
            for frames in 0..40u64 {
                let got = collected(depth, frames);
                if frames as usize <= depth {
                    assert_eq!(got, (100..100 + frames).collect::<Vec<_>>());
                } else {
                    let (inner, outer) = (depth - depth / 2, depth / 2);
                    assert_eq!(got[..inner], (100..).take(inner).collect::<Vec<u64>>());
                    assert_eq!(got[inner], FRAMES_LEFT_OUT);
                    assert_eq!(got[inner + 1..], (100 + frames - outer as u64..100 + frames).collect::<Vec<_>>());
                }
            }
        }
    }
}
