//! Which threads have begun which: those that a test has begun work for that test, as far as they work for any.
//!
//! Of the threads that the first one begins, each founds a family: the test harness runs every test on one. What such
//! a thread begins, and what those begin, is of its family.

use super::thread;
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Threads that are related work for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Family {
    /// 0 if nobody saw how the thread began, 1 for the process's first thread.
    number: u32,
    /// How many threads there are from the first one down to this.
    generation: u32,
}

impl Family {
    pub(crate) const UNKNOWN: Self = Self { number: 0, generation: 0 };
    /// The first thread has begun all others.
    const FIRST: Self = Self { number: 1, generation: 1 };

    /// May a thread of this family do the work of that one? Not for one that it may have begun itself.
    pub(crate) fn may_work_for(self, other: Self) -> bool {
        let are_known = self.number > Self::FIRST.number && other.number > Self::FIRST.number;
        self == Self::UNKNOWN
            || other == Self::UNKNOWN
            || self.generation >= other.generation && (self.number == other.number || !are_known)
    }

    /// That of a thread that one of this family begins.
    fn of_next(self) -> Self {
        let generation = self.generation + 1;
        match self {
            Self::UNKNOWN => Self::UNKNOWN,
            Self::FIRST => Self { number: LAST_FAMILY.fetch_add(1, Ordering::Relaxed) + 1, generation },
            Self { number, .. } => Self { number, generation },
        }
    }
}

thread_local! {
    // Const and without a destructor.
    static FAMILY: Cell<Family> = const { Cell::new(Family::UNKNOWN) };
    /// The system's number of the thread that began this one; 0 if nobody saw it.
    static PARENT: Cell<u32> = const { Cell::new(0) };
    static HAS_OWN_WORK: Cell<bool> = const { Cell::new(false) };
}

/// Was this thread begun by that one, which the system knows by this number? So it may seem if nobody knows.
pub(crate) fn may_be_begun_by(os_thread: u32) -> bool {
    [0, os_thread].contains(&PARENT.get())
}

/// This thread has work of its own: it does nobody else's.
pub(crate) fn is_on_its_own() {
    HAS_OWN_WORK.set(true);
}

/// May this thread do the work of others?
pub(crate) fn helps() -> bool {
    !HAS_OWN_WORK.get()
}

/// That of this thread.
pub(crate) fn family() -> Family {
    if FAMILY.get() == Family::UNKNOWN && is_first_thread() {
        FAMILY.set(Family::FIRST);
    }
    FAMILY.get()
}

/// A thread that has been begun and has not freed its first block yet, which is what it was given.
#[derive(Debug)]
struct Begun {
    given: AtomicUsize,
    /// Number and generation.
    family: AtomicU64,
    parent: AtomicU32,
}

/// The newest of them. One that is never asked for, as it was begun by other code than Rust's, is overwritten.
static BEGUN: [Begun; 256] =
    [const { Begun { given: AtomicUsize::new(0), family: AtomicU64::new(0), parent: AtomicU32::new(0) } }; 256];
static NEXT: AtomicUsize = AtomicUsize::new(0);
static LAST_FAMILY: AtomicU32 = AtomicU32::new(Family::FIRST.number);

/// This thread is about to begin another one, which is given something that lies here.
pub(crate) fn begins(given: usize) {
    let Family { number, generation } = family().of_next();
    // One that never began, or not by Rust's code, may have been given what lay there.
    let stale = BEGUN.iter().filter(|begun| begun.given.load(Ordering::Relaxed) == given);
    stale.for_each(|begun| begun.given.store(0, Ordering::Relaxed));
    let next = NEXT.fetch_add(1, Ordering::Relaxed) % BEGUN.len();
    let Some(place) = BEGUN.get(next) else { return };
    place.family.store(u64::from(number) << 32 | u64::from(generation), Ordering::Relaxed);
    place.parent.store(thread::own_os_id(), Ordering::Relaxed);
    place.given.store(given, Ordering::Release);
}

/// This thread begins, by freeing what it was given.
pub(crate) fn begun(given: usize) {
    let Some(place) = BEGUN.iter().find(|begun| begun.given.load(Ordering::Acquire) == given) else { return };
    let packed = place.family.load(Ordering::Relaxed);
    FAMILY.set(Family { number: (packed >> 32) as u32, generation: packed as u32 });
    PARENT.set(place.parent.load(Ordering::Relaxed));
    place.given.store(0, Ordering::Relaxed);
}

#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "asks for a number")]
fn is_first_thread() -> bool {
    // SAFETY: it has no preconditions and does nothing but answer.
    thread::own_os_id() == unsafe { libc::getpid() } as u32
}

#[cfg(not(target_os = "linux"))]
fn is_first_thread() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relatives_work_for_each_other_but_not_for_whom_they_began() {
        let [one, other] = [Family::FIRST.of_next(), Family::FIRST.of_next()];
        let (child, grandchild) = (one.of_next(), one.of_next().of_next());
        assert!(child.may_work_for(one) && grandchild.may_work_for(child) && child.may_work_for(child));
        assert!(!one.may_work_for(child) && !child.may_work_for(grandchild));
        assert!(!one.may_work_for(other) && !child.may_work_for(other) && !other.may_work_for(child));
        assert!(one.may_work_for(Family::FIRST) && !Family::FIRST.may_work_for(one));
        assert!(Family::UNKNOWN.may_work_for(child) && one.may_work_for(Family::UNKNOWN));
        assert_eq!(Family::UNKNOWN.of_next(), Family::UNKNOWN);
    }

    #[test]
    fn of_two_that_were_given_the_same_the_newer_one_begins() {
        let (given, here) = (0x123, family());
        std::thread::spawn(move || begins(given)).join().unwrap();
        begins(given);
        let there = move || {
            begun(given);
            family()
        };
        assert_eq!(std::thread::spawn(there).join().unwrap(), here.of_next());
    }

    #[test]
    fn a_thread_is_of_the_family_of_whoever_began_it() {
        let here = family();
        let (there, below) =
            std::thread::spawn(|| (family(), std::thread::spawn(family).join().unwrap())).join().unwrap();
        assert_eq!((there, below), (here.of_next(), here.of_next().of_next()));
    }
}
