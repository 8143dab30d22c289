//! The seam behind which stacks are taken. Today: the `backtrace` crate (libgcc's unwinder).
#![expect(unsafe_code, reason = "the unsynchronised unwinder: the synchronised one takes a process-wide lock")]

use crate::snapshot::FRAMES_LEFT_OUT;
use crate::units::MAX_STACK_DEPTH;

/// Code addresses of a stack, innermost first, at most [`MAX_STACK_DEPTH`] and a mark of them.
#[derive(Clone, Debug)]
pub(crate) struct CapturedStack {
    addresses: [u64; MAX_STACK_DEPTH + 1],
    length: usize,
    /// Frames were left out in the middle.
    pub(crate) shortened: bool,
}

impl CapturedStack {
    /// The calling thread's stack. A stack deeper than `depth` keeps its innermost and outermost
    /// halves, with [`FRAMES_LEFT_OUT`] between them: the inner frames name the operator, the outer
    /// ones the user's line, and what recurses lies between.
    #[inline(never)]
    pub(crate) fn here(depth: usize) -> Self {
        let mut collector = Collector::new(depth);
        // SAFETY: on unix `trace_unsynchronized` calls libgcc's or libunwind's thread-safe unwinder
        // (only its Windows form needs the lock). The closure neither allocates nor panics.
        unsafe { backtrace::trace_unsynchronized(|frame| collector.take(frame.ip() as u64)) };
        collector.finish()
    }

    pub(crate) fn addresses(&self) -> &[u64] {
        self.addresses.get(..self.length).unwrap_or(&[])
    }

    #[cfg(test)]
    pub(crate) fn of(addresses: &[u64]) -> Self {
        let mut collector = Collector::new(MAX_STACK_DEPTH);
        addresses.iter().all(|&address| collector.take(address));
        collector.finish()
    }
}

/// Takes addresses from the innermost outwards in bounded space: the first half fills up, the
/// second is a ring that ends up holding the outermost ones.
struct Collector {
    stack: CapturedStack,
    inner: usize,
    outer: usize,
    seen: usize,
}

impl Collector {
    fn new(depth: usize) -> Self {
        let depth = depth.clamp(2, MAX_STACK_DEPTH);
        let stack = CapturedStack { addresses: [0; MAX_STACK_DEPTH + 1], length: 0, shortened: false };
        Self { stack, inner: depth - depth / 2, outer: depth / 2, seen: 0 }
    }

    fn take(&mut self, address: u64) -> bool {
        // libgcc reports one frame with address 0 past the outermost.
        if address == 0 {
            return false;
        }
        let slot = if self.seen < self.inner { self.seen } else { self.inner + (self.seen - self.inner) % self.outer };
        if let Some(place) = self.stack.addresses.get_mut(slot) {
            *place = address;
        }
        self.seen += 1;
        true
    }

    fn finish(mut self) -> CapturedStack {
        let depth = self.inner + self.outer;
        self.stack.length = self.seen.min(depth);
        if self.seen > depth {
            self.mark_the_gap();
        }
        self.stack
    }

    /// Turns the ring so that it reads innermost first, and puts the mark before it.
    fn mark_the_gap(&mut self) {
        let (start, end) = (self.inner, self.inner + self.outer);
        let oldest = (self.seen - self.inner) % self.outer;
        if let Some(ring) = self.stack.addresses.get_mut(start..end) {
            ring.rotate_left(oldest);
        }
        self.stack.addresses.copy_within(start..end, start + 1);
        if let Some(mark) = self.stack.addresses.get_mut(start) {
            *mark = FRAMES_LEFT_OUT;
        }
        self.stack.length = end + 1;
        self.stack.shortened = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collected(depth: usize, frames: u64) -> Vec<u64> {
        let mut collector = Collector::new(depth);
        (0..frames).all(|n| collector.take(100 + n));
        collector.finish().addresses().to_vec()
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

    #[test]
    fn the_unwinder_agrees_with_the_synchronised_one() {
        #[inline(never)]
        fn both() -> (Vec<u64>, Vec<u64>) {
            let mut reference = Vec::new();
            backtrace::trace(|frame| {
                reference.push(frame.ip() as u64);
                true
            });
            let ours = CapturedStack::here(MAX_STACK_DEPTH).addresses().to_vec();
            (ours, reference.into_iter().filter(|&ip| ip != 0).collect())
        }
        let (ours, reference) = both();
        // The frames outside this function are the same ones; inside it the calls differ.
        let common = ours.iter().rev().zip(reference.iter().rev()).take_while(|(a, b)| a == b).count();
        assert!(common >= 4 && common + 4 >= reference.len(), "{common} of {} frames agree", reference.len());
    }
}
