//! Compares the stacks of memtrace's unwinder with libgcc's.

mod cfi;
mod deep;
mod frames;
mod handlers;
mod known;
mod last;
mod libraries;
mod programs;
mod steps;
mod threads;

use std::cell::RefCell;
use std::ffi::c_void;
use std::time::Duration;

use memtrace_core::snapshot::StackId;
use memtrace_core::units::MAX_STACK_DEPTH;

use super::{DeepStack, Registers, predicted, with_last, with_scratch};
use crate::record::STACKS;
use crate::record::unwind::stack::{KnownStack, PredictStack};
use crate::record::unwind::{CapturedStack, library};

/// Predicts a stored stack for every innermost address.
struct Stored(StackId);

impl PredictStack<'static> for Stored {
    fn predict(self, _innermost: u64) -> Option<KnownStack<'static>> {
        STACKS.known(self.0)
    }
}

/// Our stack, if every step was proven, and libgcc's stack.
#[derive(Debug, PartialEq, Eq)]
struct Both {
    ours: Option<Vec<u64>>,
    libgccs: Vec<u64>,
}

#[inline(never)]
fn both() -> Both {
    let start = Registers::here();
    let walked = |stack: &mut CapturedStack, deep: Option<&mut DeepStack>| {
        stack.walk(start, MAX_STACK_DEPTH, deep).then(|| stack.addresses().to_vec())
    };
    let take = || with_scratch(walked);
    // Nothing is proven while another thread changes the cache. That thread may have to wait for a processor.
    let or_wait = |attempt: u32| {
        take().or_else(|| {
            if attempt < 3_000 {
                std::thread::yield_now()
            } else {
                std::thread::sleep(Duration::from_millis(1))
            }
            None
        })
    };
    let ours = (0..3_020).find_map(or_wait);
    // Incremental unwinding. If its result differs from the walk's, that result is reported.
    let inward = |addresses: &[u64]| addresses.iter().rev().copied().collect::<Vec<u64>>();
    let last = with_last(start, MAX_STACK_DEPTH, |stack| (inward(stack.addresses), STACKS.intern(stack))).ok();
    let ours = last.clone().map(|(last, _)| last).or(ours);
    // The same for a stored stack, if it is recognised as that.
    EARLIER.with_borrow_mut(|earlier| earlier.extend(last.map(|(_, stack)| stack)));
    let recognised = |stack: &StackId| predicted(start, MAX_STACK_DEPTH, Stored(*stack));
    let wrong = |known: &KnownStack<'_>| ours.as_ref().is_some_and(|ours| *ours != inward(known.addresses));
    let earlier = EARLIER.with_borrow(|earlier| earlier.iter().filter_map(recognised).find(wrong));
    let ours = earlier.map(|known| inward(known.addresses)).or(ours);
    let mut stack = CapturedStack::empty();
    stack.fill(MAX_STACK_DEPTH, |to| library::walk(start.sp, to));
    let libgccs = stack.addresses().to_vec();
    std::hint::black_box(&start);
    Both { ours, libgccs }
}

impl Both {
    #[track_caller]
    fn assert_proven(&self) {
        assert_eq!(self.ours.as_deref(), Some(self.libgccs.as_slice()));
        assert!(self.libgccs.len() > 1);
    }

    #[track_caller]
    fn assert_not_proven(&self) {
        assert_eq!(self.ours, None);
        assert!(!self.libgccs.is_empty());
    }
}

thread_local! {
    /// Stacks of this thread.
    static EARLIER: RefCell<Vec<StackId>> = const { RefCell::new(Vec::new()) };
    /// Stacks taken where no test may fail, because nothing may unwind from there.
    static SEEN: RefCell<Vec<Both>> = const { RefCell::new(Vec::new()) };
}

extern "C" fn note(_: *mut c_void) {
    SEEN.with_borrow_mut(|seen| seen.push(both()));
}

/// The stacks that [`note`] took meanwhile.
fn seen_in(work: impl FnOnce()) -> Vec<Both> {
    SEEN.take();
    work();
    SEEN.take()
}

#[track_caller]
fn only_one(mut seen: Vec<Both>) -> Both {
    assert_eq!(seen.len(), 1);
    seen.remove(0)
}
