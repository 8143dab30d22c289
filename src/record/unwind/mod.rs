//! The seam behind which stacks are taken: by an unwinder of our own where there is one and it can prove
//! every step, by the `backtrace` crate otherwise.

mod collector;
#[cfg_attr(not(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu", not(miri))), path = "elsewhere.rs")]
mod fast;
mod library;
mod mode;

use self::collector::{CapturedStack, Collector};
use self::fast::Registers;
pub(crate) use self::mode::{after_fork, check_stacks, compared_stacks, wrong_stacks};
use crate::units::MAX_STACK_DEPTH;

/// A stack, outermost frame first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stack<'a> {
    /// Code addresses, and perhaps [`FRAMES_LEFT_OUT`](crate::snapshot::FRAMES_LEFT_OUT).
    pub(crate) addresses: &'a [u64],
    /// [`hash_with`] of them one after the other.
    pub(crate) hash: u64,
    /// Frames were left out in the middle.
    pub(crate) shortened: bool,
}

/// The hash of a stack without frames.
pub(crate) const HASH_OF_NONE: u64 = 0x6d65_6d74_7261_6365;

/// The hash of a stack with one frame more, further in.
#[inline]
pub(crate) fn hash_with(hash: u64, address: u64) -> u64 {
    let product = u128::from(hash ^ address) * 0x9e37_79b9_7f4a_7c15;
    (product >> 64) as u64 ^ product as u64
}

/// Takes the calling thread's stack; its number of addresses.
#[inline(never)]
pub fn take_stack() -> usize {
    with_stack(MAX_STACK_DEPTH, |stack| stack.addresses.len())
}

/// Does something with the calling thread's stack. One that is deeper than `depth` keeps its innermost and outermost
/// halves, with [`FRAMES_LEFT_OUT`](crate::snapshot::FRAMES_LEFT_OUT) between them: the inner frames name the
/// operator, the outer ones the user's line, and what recurses lies between.
#[inline(always)]
pub(crate) fn with_stack<T>(depth: usize, work: impl FnOnce(Stack<'_>) -> T) -> T {
    let start = Registers::here();
    let taken = if mode::is_fast() { fast::with_last(start, depth, work) } else { Err(work) };
    let done = taken.unwrap_or_else(|work| with_walked(start, depth, work));
    // This frame stays live until the walk is over: this line is still to be done in it.
    std::hint::black_box(&start);
    done
}

/// Apart, because of the two kilobytes that it writes.
#[cold]
#[inline(never)]
fn with_walked<T>(start: Registers, depth: usize, work: impl FnOnce(Stack<'_>) -> T) -> T {
    let mut stack = CapturedStack::empty();
    stack.take(start, depth);
    work(stack.turn())
}

impl CapturedStack {
    fn take(&mut self, start: Registers, depth: usize) {
        if mode::is_checked() {
            self.take_checked(start, depth);
        } else if mode::is_library() || !self.fill(depth, |collector| fast::walk(start, collector)) {
            self.fill(depth, |collector| library::walk(start.sp, collector));
        }
    }

    /// Takes the library's stack, and compares both of ours with it.
    fn take_checked(&mut self, start: Registers, depth: usize) {
        self.fill(depth, |collector| library::walk(start.sp, collector));
        let same = |ours: Stack<'_>| ours.addresses.iter().rev().eq(self.addresses());
        if let Ok(same) = fast::with_last(start, depth, same) {
            mode::count(same);
        }
        let mut walked = Self::empty();
        if walked.fill(depth, |collector| fast::walk(start, collector)) {
            mode::count(walked.addresses() == self.addresses());
        }
    }

    #[inline]
    fn fill(&mut self, depth: usize, walk: impl FnOnce(&mut Collector<'_>) -> bool) -> bool {
        let mut collector = Collector::new(self, depth);
        let proven = walk(&mut collector);
        collector.finish();
        proven
    }
}
