//! The seam behind which stacks are taken: by an unwinder of our own where there is one and it can prove
//! every step, by the `backtrace` crate otherwise.

mod collector;
#[cfg_attr(not(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu", not(miri))), path = "elsewhere.rs")]
mod fast;
mod library;
mod mode;
#[cfg_attr(not(all(target_os = "linux", target_env = "gnu", not(miri))), path = "modules_elsewhere.rs")]
pub(in crate::record) mod modules;
#[cfg_attr(
    not(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu", not(miri))),
    path = "registers_elsewhere.rs"
)]
mod registers;
pub(in crate::record) mod stack;

use self::collector::{CapturedStack, Collector};
use self::fast::DeepStack;
pub(in crate::record) use self::fast::{
    clear_unused_stack, each_word, part_from_here, thread_begins, was_held_at_first, whole_stack,
};
pub(crate) use self::mode::{COMPARED, WRONG, after_fork, check_stacks};
pub(crate) use self::modules::KnownModules;
use self::registers::Registers;
use self::stack::{Known, Stack, Taken};
use super::STACKS;
use crate::units::MAX_STACK_DEPTH;

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
