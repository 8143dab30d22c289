//! The seam behind which stacks are taken: by an unwinder of our own where there is one and it can prove
//! every step, by the `backtrace` crate otherwise.

mod collector;
#[cfg_attr(not(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu", not(miri))), path = "elsewhere.rs")]
mod fast;
mod library;
mod mode;

pub(crate) use self::collector::CapturedStack;
use self::collector::Collector;
use self::fast::Registers;
pub(crate) use self::mode::{after_fork, check_stacks, compared_stacks, wrong_stacks};
use crate::units::MAX_STACK_DEPTH;

/// Takes the calling thread's stack; its number of addresses.
#[inline(never)]
pub fn take_stack() -> usize {
    CapturedStack::here(MAX_STACK_DEPTH).addresses().len()
}

impl CapturedStack {
    /// The calling thread's stack. A stack deeper than `depth` keeps its innermost and outermost halves,
    /// with [`FRAMES_LEFT_OUT`](crate::snapshot::FRAMES_LEFT_OUT) between them: the inner frames name the
    /// operator, the outer ones the user's line, and what recurses lies between.
    #[inline(always)]
    pub(crate) fn here(depth: usize) -> Self {
        let mut stack = Self::empty();
        stack.take(depth);
        stack
    }

    /// Apart from [`here`](Self::here), so that two kilobytes are written where they are wanted.
    #[inline(never)]
    fn take(&mut self, depth: usize) {
        // This frame stays live until the walk is over: the last line is still to be done in it.
        let start = Registers::here();
        if mode::is_library() || !self.fill(depth, |collector| fast::walk(start, collector)) {
            self.fill(depth, |collector| library::walk(start.sp, collector));
        } else if mode::is_checked() {
            self.check(depth, start);
        }
        std::hint::black_box(&start);
    }

    #[inline]
    fn fill(&mut self, depth: usize, walk: impl FnOnce(&mut Collector<'_>) -> bool) -> bool {
        let mut collector = Collector::new(self, depth);
        let proven = walk(&mut collector);
        collector.finish();
        proven
    }

    /// Takes the library's stack in place of another one.
    #[cold]
    fn check(&mut self, depth: usize, start: Registers) {
        let mut reference = Self::empty();
        reference.fill(depth, |collector| library::walk(start.sp, collector));
        let same = self.addresses() == reference.addresses();
        mode::count(same);
        if !same {
            *self = reference;
        }
    }
}
