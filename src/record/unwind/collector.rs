//! Bounded collection of a stack's addresses. Of a stack that is too deep, it keeps the innermost and the outermost
//! part.

use std::mem::MaybeUninit;

use memtrace_core::snapshot::FRAMES_LEFT_OUT;
use memtrace_core::units::MAX_STACK_DEPTH;

use super::stack::{HASH_OF_NONE, Stack, hash_with};
use super::{mode, objects};

/// Code addresses, innermost first: at most [`MAX_STACK_DEPTH`], and a mark where frames were left out.
#[derive(Clone, Debug)]
pub(super) struct CapturedStack {
    /// Uninitialised, because zeroing costs as much as ten frames.
    addresses: [MaybeUninit<u64>; MAX_STACK_DEPTH + 1],
    length: usize,
    /// Frames in the middle were left out.
    shortened: bool,
}

impl CapturedStack {
    #[inline(always)]
    pub(super) fn empty() -> Self {
        Self { addresses: [const { MaybeUninit::uninit() }; MAX_STACK_DEPTH + 1], length: 0, shortened: false }
    }

    #[expect(unsafe_code, reason = "reads the initialised part of the array")]
    pub(super) fn addresses(&self) -> &[u64] {
        let written = self.addresses.get(..self.length).unwrap_or(&[]);
        // SAFETY: the collector writes addresses in order from the first on, and `length` counts only written ones.
        unsafe { written.assume_init_ref() }
    }

    /// Reverses the addresses, so that the outermost is first.
    pub(super) fn turn(&mut self) -> Stack<'_> {
        if let Some(written) = self.addresses.get_mut(..self.length) {
            written.reverse();
        }
        let addresses = self.addresses();
        let hash = addresses.iter().fold(HASH_OF_NONE, |hash, address| hash_with(hash, *address));
        // In a forked child the loader cannot be queried, so nothing is known of the stack's loaded objects.
        let may_go = mode::current() != mode::LIBRARY;
        if may_go {
            objects::query_counts();
        }
        Stack { addresses, hash, shortened: self.shortened, may_go, source: None }
    }
}

/// Takes addresses from the innermost frame outwards. The first half fills up. The second half is a ring buffer, which
/// ends up with the outermost addresses.
pub(super) struct Collector<'a> {
    stack: &'a mut CapturedStack,
    /// Start of the ring. `depth` is its end.
    inner: usize,
    depth: usize,
    /// Index for the next address.
    next: usize,
    seen: usize,
}

impl<'a> Collector<'a> {
    pub(super) fn new(stack: &'a mut CapturedStack, depth: usize) -> Self {
        let depth = depth.clamp(2, MAX_STACK_DEPTH);
        Self { stack, inner: depth - depth / 2, depth, next: 0, seen: 0 }
    }

    /// Takes the next address. False at the end of the stack.
    #[inline]
    pub(super) fn take(&mut self, address: u64) -> bool {
        // libgcc reports a frame with address 0 after the outermost one.
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

    /// Takes a whole stack, whose outermost frame is first.
    pub(super) fn take_all(&mut self, addresses: &[u64]) {
        let outer = addresses.len().saturating_sub(self.inner).min(self.depth - self.inner);
        let outermost = addresses.get(..outer).unwrap_or(&[]).iter().rev();
        addresses.iter().rev().take(self.inner).chain(outermost).all(|address| self.take(*address));
        self.seen = addresses.len();
    }

    pub(super) fn finish(self) {
        self.stack.length = self.seen.min(self.depth);
        self.stack.shortened = self.seen > self.depth;
        if self.stack.shortened {
            self.mark_the_gap();
        }
    }

    /// Rotates the ring into order and puts the mark before it.
    fn mark_the_gap(self) {
        let (start, end) = (self.inner, self.depth);
        let Some(ring) = self.stack.addresses.get_mut(start..=end) else { return };
        // The oldest address is where the next one would have been written. The slot after the ring is for the mark.
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
