//! Which threads have begun which: those that a test has begun work for that test, as far as they work for any.
//!
//! Of the threads that the first one begins, each founds a family: the test harness runs every test on one. What such
//! a thread begins, and what those begin, is of its family.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Threads that are related work for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Family(u32);

impl Family {
    /// Nobody saw how the thread began.
    pub(crate) const UNKNOWN: Self = Self(0);
    /// The process's first thread, which has begun all others.
    const FIRST: Self = Self(u32::MAX);

    /// May a thread of this family do the work of one of the other?
    pub(crate) fn may_work_for(self, other: Self) -> bool {
        self == other || [Self::UNKNOWN, Self::FIRST].contains(&other) || self == Self::UNKNOWN
    }
}

thread_local! {
    // Const and without a destructor.
    static FAMILY: Cell<Family> = const { Cell::new(Family::UNKNOWN) };
    static HAS_OWN_WORK: Cell<bool> = const { Cell::new(false) };
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
    match FAMILY.get() {
        Family::UNKNOWN if is_first_thread() => Family::FIRST,
        known => known,
    }
}

/// A thread that has been begun and has not freed its first block yet, which is what it was given.
#[derive(Debug)]
struct Begun {
    given: AtomicUsize,
    family: AtomicU32,
}

/// The newest of them. One that is never asked for, as it was begun by other code than Rust's, is overwritten.
static BEGUN: [Begun; 256] = [const { Begun { given: AtomicUsize::new(0), family: AtomicU32::new(0) } }; 256];
static NEXT: AtomicUsize = AtomicUsize::new(0);
static LAST_FAMILY: AtomicU32 = AtomicU32::new(0);

/// This thread is about to begin another one, which is given something that lies here.
pub(crate) fn begins(given: usize) {
    let family = match family() {
        Family::FIRST => Family(LAST_FAMILY.fetch_add(1, Ordering::Relaxed) + 1),
        family => family,
    };
    let next = NEXT.fetch_add(1, Ordering::Relaxed) % BEGUN.len();
    let Some(place) = BEGUN.get(next) else { return };
    place.family.store(family.0, Ordering::Relaxed);
    place.given.store(given, Ordering::Release);
}

/// This thread begins, by freeing what it was given.
pub(crate) fn begun(given: usize) {
    let Some(place) = BEGUN.iter().find(|begun| begun.given.load(Ordering::Acquire) == given) else { return };
    FAMILY.set(Family(place.family.load(Ordering::Relaxed)));
    place.given.store(0, Ordering::Relaxed);
}

#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "asks for two numbers")]
fn is_first_thread() -> bool {
    // SAFETY: they have no preconditions and do nothing but answer.
    unsafe { libc::gettid() == libc::getpid() }
}

#[cfg(not(target_os = "linux"))]
fn is_first_thread() -> bool {
    false
}
