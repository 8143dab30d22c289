//! Ancestry of threads: which threads may do the work of a test.
//!
//! Each thread that the process's first thread starts founds a family, to which all its descendants belong. The test
//! harness runs every test on a thread of its own, so a test's family is the threads that it started.

use super::thread;
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Threads that may work for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Family {
    /// 0: unknown (nobody saw the thread start); 1: the process's first thread.
    number: u32,
    /// Distance from the first thread.
    generation: u32,
}

impl Family {
    pub(crate) const UNKNOWN: Self = Self { number: 0, generation: 0 };
    const FIRST: Self = Self { number: 1, generation: 1 };

    /// May a thread of this family work for one of the other? Not for a thread that it may have started itself.
    pub(crate) fn may_work_for(self, other: Self) -> bool {
        let are_known = self.number > Self::FIRST.number && other.number > Self::FIRST.number;
        self == Self::UNKNOWN
            || other == Self::UNKNOWN
            || self.generation >= other.generation && (self.number == other.number || !are_known)
    }

    /// The family of a thread that a thread of this family starts.
    fn of_child(self) -> Self {
        let generation = self.generation + 1;
        match self {
            Self::UNKNOWN => Self::UNKNOWN,
            Self::FIRST => Self { number: LAST_FAMILY.fetch_add(1, Ordering::Relaxed) + 1, generation },
            Self { number, .. } => Self { number, generation },
        }
    }
}

thread_local! {
    // Const and without a destructor: usable before main, in thread-local destructors and at exit.
    static FAMILY: Cell<Family> = const { Cell::new(Family::UNKNOWN) };
    /// Kernel thread id of the thread that started this one; 0 if unknown.
    static PARENT: Cell<u32> = const { Cell::new(0) };
    static HAS_OWN_WORK: Cell<bool> = const { Cell::new(false) };
}

/// Did the thread with this kernel id start this thread? True if unknown.
pub(crate) fn may_be_started_by(os_thread: u32) -> bool {
    [0, os_thread].contains(&PARENT.get())
}

/// Marks this thread as one that works for nobody else.
pub(crate) fn is_on_its_own() {
    HAS_OWN_WORK.set(true);
}

pub(crate) fn helps() -> bool {
    !HAS_OWN_WORK.get()
}

pub(crate) fn family() -> Family {
    if FAMILY.get() == Family::UNKNOWN && is_first_thread() {
        FAMILY.set(Family::FIRST);
    }
    FAMILY.get()
}

/// A thread that was started and has not yet freed its first block (its start routine's argument).
#[derive(Debug)]
struct StartedThread {
    given: AtomicUsize,
    /// Family number and generation, 32 bits each.
    family: AtomicU64,
    parent: AtomicU32,
}

/// The newest ones. Threads not started by Rust code never claim their entry; it is overwritten in time.
static STARTED: [StartedThread; 256] =
    [const { StartedThread { given: AtomicUsize::new(0), family: AtomicU64::new(0), parent: AtomicU32::new(0) } }; 256];
static NEXT: AtomicUsize = AtomicUsize::new(0);
static LAST_FAMILY: AtomicU32 = AtomicU32::new(Family::FIRST.number);

/// This thread is about to start one whose argument is at this address.
pub(crate) fn on_spawn(given: usize) {
    let Family { number, generation } = family().of_child();
    // Stale: the thread never ran, or was not started by Rust code.
    let stale = STARTED.iter().filter(|started| started.given.load(Ordering::Relaxed) == given);
    stale.for_each(|started| started.given.store(0, Ordering::Relaxed));
    let next = NEXT.fetch_add(1, Ordering::Relaxed) % STARTED.len();
    let Some(place) = STARTED.get(next) else { return };
    place.family.store(u64::from(number) << 32 | u64::from(generation), Ordering::Relaxed);
    place.parent.store(thread::own_os_id(), Ordering::Relaxed);
    place.given.store(given, Ordering::Release);
}

/// This new thread frees its argument: looks up who started it.
pub(crate) fn claim_ancestry(given: usize) {
    let Some(place) = STARTED.iter().find(|started| started.given.load(Ordering::Acquire) == given) else { return };
    let packed = place.family.load(Ordering::Relaxed);
    FAMILY.set(Family { number: (packed >> 32) as u32, generation: packed as u32 });
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
    fn relatives_work_for_each_other_but_not_for_whom_they_began() {
        let [one, other] = [Family::FIRST.of_child(), Family::FIRST.of_child()];
        let (child, grandchild) = (one.of_child(), one.of_child().of_child());
        assert!(child.may_work_for(one) && grandchild.may_work_for(child) && child.may_work_for(child));
        assert!(!one.may_work_for(child) && !child.may_work_for(grandchild));
        assert!(!one.may_work_for(other) && !child.may_work_for(other) && !other.may_work_for(child));
        assert!(one.may_work_for(Family::FIRST) && !Family::FIRST.may_work_for(one));
        assert!(Family::UNKNOWN.may_work_for(child) && one.may_work_for(Family::UNKNOWN));
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
    fn a_thread_is_of_the_family_of_whoever_began_it() {
        let here = family();
        let (there, below) =
            std::thread::spawn(|| (family(), std::thread::spawn(family).join().unwrap())).join().unwrap();
        assert_eq!((there, below), (here.of_child(), here.of_child().of_child()));
    }
}
