//! Ancestry of threads: which threads may do the work of a test.
//!
//! Each thread that the process's first thread starts founds a family, to which all its descendants belong. The test
//! harness runs every test on its own thread, so a test's family is that thread and its descendants.

use super::super::thread;
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// A set of threads that may work for each other, as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Family(u32);

impl Family {
    /// The family of a thread that nothing saw start.
    pub(crate) const UNKNOWN: Self = Self(0);
    /// The family of the process's first thread. It works for no test, and all threads may work for it.
    const FIRST: Self = Self(1);

    /// Whether a thread of this family may work for a thread of the other.
    pub(crate) fn may_work_for(self, other: Self) -> bool {
        self == other || self == Self::UNKNOWN || [Self::UNKNOWN, Self::FIRST].contains(&other)
    }

    /// The family of a new thread whose parent is of this family.
    fn of_child(self) -> Self {
        match self {
            Self::FIRST => Self(LAST_FAMILY.fetch_add(1, Ordering::Relaxed) + 1),
            family => family,
        }
    }
}

thread_local! {
    // Both are const and have no destructors, so they are usable before main, in thread-local destructors and at exit.
    static FAMILY: Cell<Family> = const { Cell::new(Family::UNKNOWN) };
    /// Kernel thread id of the thread that started this one; 0 if unknown.
    static PARENT: Cell<u32> = const { Cell::new(0) };
}

/// Whether the thread with this kernel id started this thread. True if unknown.
pub(crate) fn may_be_started_by(os_thread: u32) -> bool {
    [0, os_thread].contains(&PARENT.get())
}

pub(crate) fn family() -> Family {
    if FAMILY.get() == Family::UNKNOWN && is_first_thread() {
        FAMILY.set(Family::FIRST);
    }
    FAMILY.get()
}

/// A thread that was started, but has not freed its first block yet (the argument of its start routine).
#[derive(Debug)]
struct StartedThread {
    /// The complement of the argument's address. The address itself must not be here, because static memory is searched
    /// for addresses of blocks.
    given: AtomicUsize,
    family: AtomicU32,
    parent: AtomicU32,
}

/// The newest started threads. A thread that Rust code did not start never claims its entry, which is overwritten in
/// time.
static STARTED: [StartedThread; 256] =
    [const { StartedThread { given: AtomicUsize::new(0), family: AtomicU32::new(0), parent: AtomicU32::new(0) } }; 256];
static NEXT: AtomicUsize = AtomicUsize::new(0);
static LAST_FAMILY: AtomicU32 = AtomicU32::new(Family::FIRST.0);

/// Called when this thread is about to start another one, whose argument is at the address `given`.
pub(crate) fn on_spawn(given: usize) {
    let given = !given;
    let Family(number) = family().of_child();
    // Older entries for this address are stale: their thread never ran, or Rust code did not start it.
    let stale = STARTED.iter().filter(|started| started.given.load(Ordering::Relaxed) == given);
    stale.for_each(|started| started.given.store(0, Ordering::Relaxed));
    let next = NEXT.fetch_add(1, Ordering::Relaxed) % STARTED.len();
    let Some(place) = STARTED.get(next) else { return };
    place.family.store(number, Ordering::Relaxed);
    place.parent.store(thread::own_os_id(), Ordering::Relaxed);
    place.given.store(given, Ordering::Release);
}

/// Called when a new thread frees its argument. Looks up which thread started the new one.
pub(crate) fn claim_ancestry(given: usize) {
    let given = !given;
    let Some(place) = STARTED.iter().find(|started| started.given.load(Ordering::Acquire) == given) else { return };
    FAMILY.set(Family(place.family.load(Ordering::Relaxed)));
    PARENT.set(place.parent.load(Ordering::Relaxed));
    place.given.store(0, Ordering::Relaxed);
}

#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "getpid is a C function")]
fn is_first_thread() -> bool {
    // SAFETY: no preconditions.
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
    fn relatives_work_for_each_other_and_the_first_thread_for_nobody() {
        let [one, other] = [Family::FIRST.of_child(), Family::FIRST.of_child()];
        assert_eq!(one.of_child().of_child(), one);
        assert!(one.may_work_for(one) && !one.may_work_for(other));
        assert!(one.may_work_for(Family::FIRST) && !Family::FIRST.may_work_for(one));
        assert!(Family::UNKNOWN.may_work_for(one) && one.may_work_for(Family::UNKNOWN));
        assert_eq!(Family::UNKNOWN.of_child(), Family::UNKNOWN);
    }

    #[test]
    fn of_two_that_were_given_the_same_the_newer_one_begins() {
        let (given, here) = (0x123, family());
        std::thread::spawn(move || on_spawn(given)).join().unwrap();
        on_spawn(given);
        let there = move || {
            claim_ancestry(given);
            family()
        };
        assert_eq!(std::thread::spawn(there).join().unwrap(), here.of_child());
    }

    #[test]
    fn whoever_frees_an_argument_is_of_the_family_of_the_thread_that_gave_it() {
        let parent = std::thread::spawn(|| {
            FAMILY.set(Family(77));
            // More than there are places for.
            (0..600).for_each(|given| on_spawn(0x1000 + given));
            thread::own_os_id()
        });
        let parent = parent.join().unwrap();
        let claim = |given| {
            claim_ancestry(given);
            (family(), PARENT.get())
        };
        let newest = std::thread::spawn(move || claim(0x1000 + 599)).join().unwrap();
        assert_eq!(newest, (Family(77), parent));
        assert_ne!(std::thread::spawn(move || claim(0x1000)).join().unwrap().0, Family(77), "overwritten");
    }

    #[test]
    fn a_thread_is_of_the_family_of_whoever_began_it() {
        let here = family();
        let (there, below) =
            std::thread::spawn(|| (family(), std::thread::spawn(family).join().unwrap())).join().unwrap();
        assert!(there == here || here == Family::FIRST);
        assert_eq!(below, there);
    }
}
