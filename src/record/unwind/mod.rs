//! The seam behind which stacks are taken: by an unwinder of our own where there is one and it can prove
//! every step, by the `backtrace` crate otherwise.

mod collector;
#[cfg_attr(not(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu", not(miri))), path = "elsewhere.rs")]
mod fast;
mod library;
mod mode;
#[cfg_attr(not(all(target_os = "linux", target_env = "gnu", not(miri))), path = "modules_elsewhere.rs")]
mod modules;

use self::collector::{CapturedStack, Collector};
pub(crate) use self::fast::Source;
use self::fast::{DeepStack, Registers};
pub(in crate::record) use self::fast::{
    clear_unused_stack, each_word, part_from_here, thread_begins, was_held_at_first, whole_stack,
};
pub(crate) use self::mode::{after_fork, check_stacks, compared_stacks, wrong_stacks};
pub(crate) use self::modules::{KnownModules, mark};
use super::STACKS;
use crate::units::MAX_STACK_DEPTH;

/// Part of a thread's stack: from the lowest address to past the highest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StackPart {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// A stack, outermost frame first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stack<'a> {
    /// Code addresses, and perhaps [`FRAMES_LEFT_OUT`](crate::snapshot::FRAMES_LEFT_OUT).
    pub(crate) addresses: &'a [u64],
    /// [`hash_with`] of them one after the other.
    pub(crate) hash: u64,
    /// Frames were left out in the middle.
    pub(crate) shortened: bool,
    /// It may have code of modules that will be unloaded.
    pub(crate) may_go: bool,
    /// Where its words lie, if it may be known again by that.
    pub(crate) source: Source<'a>,
}

/// Where the words of a stack lie, as distances from its innermost frame's stack pointer, which is that of the caller
/// once it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spacing<'a> {
    /// The stack pointers of its frames, in the order of their addresses. The words below those are the addresses.
    pub(crate) offsets: &'a [u32],
    /// For each frame that is found by its rbp: where that was read, if not by the innermost one, and what it was.
    pub(crate) bps: &'a [[u32; 2]],
    /// The same for the word that ended the stack, a 0; or 0 if its outermost frame is known to have no caller.
    pub(crate) end: u32,
}

/// Frames of the deepest stack that has a spacing, and how many of them may be found by their rbp.
pub(crate) const SPACING_FRAMES: usize = 128;
pub(crate) const SPACING_BPS: usize = 8;

/// Room for a [`Spacing`].
#[derive(Debug)]
pub(crate) struct SpacingBuffer {
    pub(crate) offsets: [u32; SPACING_FRAMES],
    pub(crate) bps: [[u32; 2]; SPACING_BPS],
}

impl SpacingBuffer {
    pub(crate) const fn new() -> Self {
        Self { offsets: [0; SPACING_FRAMES], bps: [[0; 2]; SPACING_BPS] }
    }
}

/// A stack that was taken before, outermost frame first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known<'a> {
    /// Who knows it goes by this.
    pub(crate) number: u32,
    pub(crate) addresses: &'a [u64],
    pub(crate) spacing: Spacing<'a>,
}

/// What was found.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Taken<'a> {
    /// The stack that was guessed.
    Guessed(Known<'a>),
    /// Any other one.
    Walked(Stack<'a>),
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
    with_stack(
        MAX_STACK_DEPTH,
        |_| None,
        |taken| match taken {
            Taken::Walked(stack) => stack.addresses.len(),
            Taken::Guessed(known) => known.addresses.len(),
        },
    )
}

/// Does something with the calling thread's stack. One that is deeper than `depth` keeps its innermost and outermost
/// halves, with [`FRAMES_LEFT_OUT`](crate::snapshot::FRAMES_LEFT_OUT) between them: the inner frames name the
/// operator, the outer ones the user's line, and what recurses lies between. `guess` is asked, if there is time for
/// it, which stack with a certain innermost address it might be.
#[inline(always)]
pub(crate) fn with_stack<'a, T>(
    depth: usize,
    guess: impl FnOnce(u64) -> Option<Known<'a>>,
    work: impl FnOnce(Taken<'_>) -> T,
) -> T {
    let start = Registers::here();
    let taken = if mode::is_fast() { fast::with_taken(start, depth, guess, work) } else { Err(work) };
    let done = taken.unwrap_or_else(|work| with_walked(start, depth, |stack| work(Taken::Walked(stack))));
    // This frame stays live until the walk is over: this line is still to be done in it.
    std::hint::black_box(&start);
    done
}

/// Apart, because it takes long.
#[cold]
#[inline(never)]
fn with_walked<T>(start: Registers, depth: usize, work: impl FnOnce(Stack<'_>) -> T) -> T {
    fast::with_room(|stack, deep| {
        stack.take(start, depth, deep);
        work(stack.turn())
    })
}

impl CapturedStack {
    #[inline(never)]
    fn take(&mut self, start: Registers, depth: usize, deep: Option<DeepStack<'_>>) {
        if mode::is_checked() {
            self.take_checked(start, depth, deep);
        } else if mode::is_library() || !self.walk(start, depth, deep) {
            self.fill(depth, |collector| library::walk(start.sp, collector));
        }
    }

    fn walk(&mut self, start: Registers, depth: usize, deep: Option<DeepStack<'_>>) -> bool {
        deep.is_some_and(|deep| self.fill(depth, |collector| fast::walk(start, deep, collector)))
    }

    /// Takes the library's stack, and compares ours with it, however they are taken.
    #[inline(never)]
    fn take_checked(&mut self, start: Registers, depth: usize, deep: Option<DeepStack<'_>>) {
        self.fill(depth, |collector| library::walk(start.sp, collector));
        let same = |ours: &[u64]| ours.iter().rev().eq(self.addresses());
        let same_of_last = |stack: Stack<'_>| {
            let same = same(stack.addresses);
            if same {
                // The library's would not be known again.
                STACKS.intern(stack);
            }
            same
        };
        if let Ok(same) = fast::with_last(start, depth, same_of_last) {
            mode::count(same);
        }
        if let Some(known) = fast::guessed(start, depth, |innermost| STACKS.guess(innermost)) {
            mode::count(same(known.addresses));
        }
        let mut walked = Self::empty();
        if walked.walk(start, depth, deep) {
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
