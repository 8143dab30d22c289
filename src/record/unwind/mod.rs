//! Stack unwinding. memtrace's own unwinder ([`fast`]) takes a stack if it can prove every step, and the `backtrace`
//! crate (libgcc) all others.
//!
//! ```text
//!   with_stack ── registers ──► known: is it the predicted stack (`stacks/guess.rs`)? Compare its words
//!                                 ▼ no, or there is no prediction
//!                              LastStack: incremental unwinding, frame by frame up to a frame of this thread's last stack
//!                                 │ whose words outside are unchanged: then the rest of the stack is, too
//!                                 │ return address → rule: lock-free cache, one word per entry
//!                                 │ miss: learn ── dl_iterate_phdr ──► .eh_frame of the loaded object, parsed by gimli
//!                                 ▼ more than 128 frames
//!                              DeepStack: the same with room for 65,536 frames
//!                                 │ ──► Collector (keeps the innermost and the outermost half)
//!                                 ▼ a step that cannot be proven
//!                              library::walk: libgcc takes the whole stack again
//! ```
//!
//! `fast` exists on Linux with glibc, on x86-64 and aarch64, whose differences are in `arch`. Elsewhere the `backtrace`
//! crate takes every stack.
//!
//! A step is proven if the call frame information (CFI) has one of three forms (CFA = sp + n, fp + n, or the word at
//! fp + n), the frame is not a signal frame, and the step leads upwards within the stack that the system gave the
//! thread. libgcc takes these stacks:
//!
//! - with signal handlers, coroutines on their own stacks, generated code, or other CFI expressions
//! - taken while another thread changes the rule cache
//! - of forked children: there the loader's lock may be held for ever, and libgcc unwinds without it
//!
//! With `MEMTRACE_CHECK_STACKS=1`, libgcc takes every proven stack as well. Where the two stacks differ, libgcc's is
//! kept and `Health` counts it. With the value `abort`, the first difference ends the program.
//!
//! The unwinder is not a package of its own. It interns each stack while the stack's words are still at hand, reads the
//! recorder's gates and reentrancy guard, and keeps its tables on the recorder's allocators. If these were parameters,
//! every stack would cost an indirect call, or all of `fast` would need type parameters.
//!
//! # Constraints
//! - **Stacks are taken before any of memtrace's locks**, because the unwinder may wait for the loader's lock. For a
//!   lock of its own, it waits for 5 ms at most.
//! - **It keeps no list of loaded objects.** A rule is looked up while the loader holds its lock, so the object cannot
//!   be unloaded meanwhile. Rules of the program, of the object with this code and of the C library hold for ever.
//!   Before any other rule is used, the loader is queried for its count of unloads (once per stack). If the count has
//!   changed, such rules are dropped. An object whose code is on the stack cannot be unloaded, so unloads after the
//!   query do not matter.
//! - **Stacks with code of libraries query the loader** (`dl_iterate_phdr`), as every unwinder did before glibc 2.35.
//!   Such an allocation waits while another thread loads a library or runs a `dl_iterate_phdr` callback. If such a
//!   callback waits for a lock under which another thread allocates, the program deadlocks. Stacks of only the
//!   program's own code query nothing.
//! - **It uses little of the program's stack**, because a thread may have 16 KiB: at most 4 KiB for a block, 8 in an
//!   unoptimised build (`tests/processes/stack_use.rs`). Deep stacks use pooled buffers (`fast/scratch.rs`). CFI is
//!   parsed on a separate stack (`fast/aside.rs`) with all signals blocked. `inline(always)` is only for optimised
//!   builds: otherwise one frame would hold the variables of all inlined functions.

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), target_env = "gnu", not(miri)))]
mod arch;
mod collector;
#[cfg_attr(
    not(all(
        target_os = "linux",
        any(target_arch = "x86_64", target_arch = "aarch64"),
        target_env = "gnu",
        not(miri)
    )),
    path = "elsewhere.rs"
)]
mod fast;
mod library;
mod mode;
#[cfg_attr(not(all(target_os = "linux", target_env = "gnu", not(miri))), path = "objects_elsewhere.rs")]
pub(in crate::record) mod objects;
mod registers;
pub(in crate::record) mod stack;

use memtrace_core::units::MAX_STACK_DEPTH;

use self::collector::{CapturedStack, Collector};
use self::fast::DeepStack;
pub(in crate::record) use self::fast::{
    clear_unused_stack, each_word, on_thread_start, part_from_here, was_held_at_start, whole_stack,
};
pub(crate) use self::mode::{COMPARED, StackCheck, WRONG, after_fork, check_stacks};
pub(crate) use self::objects::ObjectMap;
use self::registers::Registers;
use self::stack::{FoundStack, PredictStack, Stack};
use super::STACKS;

/// Takes the calling thread's stack and returns the number of its addresses.
#[inline(never)]
pub fn take_stack() -> usize {
    // Memory that is taken here is not the program's, whoever calls.
    let _own = super::guard::own_work();
    with_stack(MAX_STACK_DEPTH, (), |taken| match taken {
        FoundStack::Walked(stack) => stack.addresses.len(),
        FoundStack::Guessed(known) => known.addresses.len(),
    })
}

/// Calls `work` with the calling thread's stack. A stack deeper than `depth` keeps its innermost and outermost halves,
/// with [`FRAMES_LEFT_OUT`](crate::snapshot::FRAMES_LEFT_OUT) between them. The inner frames name the operator, and the
/// outer ones the user line. Recursion lies in between.
#[inline(always)]
pub(crate) fn with_stack<'a, T>(
    depth: usize,
    prediction: impl PredictStack<'a>,
    work: impl FnOnce(FoundStack<'_>) -> T,
) -> T {
    let start = Registers::here();
    let taken =
        if mode::current() == mode::FAST { fast::with_taken(start, depth, prediction, work) } else { Err(work) };
    let done = taken.unwrap_or_else(|work| with_walked(start, depth, |stack| work(FoundStack::Walked(stack))));
    // Uses `start` after the walk, so that this frame stays live until then.
    std::hint::black_box(&start);
    done
}

#[cold]
#[inline(never)]
fn with_walked<T>(start: Registers, depth: usize, work: impl FnOnce(Stack<'_>) -> T) -> T {
    fast::with_scratch(|stack, deep| {
        stack.take(start, depth, deep);
        work(stack.turn())
    })
}

impl CapturedStack {
    #[inline(never)]
    fn take(&mut self, start: Registers, depth: usize, deep: Option<&mut DeepStack>) {
        if mode::current() == mode::CHECKED {
            self.take_checked(start, depth, deep);
        } else if mode::current() == mode::LIBRARY || !self.walk(start, depth, deep) {
            self.fill(depth, |collector| library::walk(start.sp, collector));
        }
    }

    fn walk(&mut self, start: Registers, depth: usize, deep: Option<&mut DeepStack>) -> bool {
        deep.is_some_and(|deep| self.fill(depth, |collector| fast::walk(start, deep, collector)))
    }

    /// Takes libgcc's stack, and compares every other method with it.
    #[inline(never)]
    fn take_checked(&mut self, start: Registers, depth: usize, deep: Option<&mut DeepStack>) {
        self.fill(depth, |collector| library::walk(start.sp, collector));
        let same = |ours: &[u64]| ours.iter().rev().eq(self.addresses());
        let same_of_last = |stack: Stack<'_>| {
            let same = same(stack.addresses);
            if same {
                // libgcc's stack has no spacing, so it could not be recognised later.
                STACKS.intern(stack);
            }
            same
        };
        if let Ok(same) = fast::with_last(start, depth, same_of_last) {
            mode::count(same);
        }
        if let Some(known) = fast::predicted(start, depth, &STACKS) {
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
