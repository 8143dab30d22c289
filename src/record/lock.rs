//! Locks of the hooks, and the order in which a thread takes those that it holds together:
//!
//! | rank | lock | is held | at a fork |
//! |---|---|---|---|
//! | [`ACTIVE`](rank::ACTIVE) | `recorder::slots::ACTIVE` | while a recording begins, changes or ends | held |
//! | [`DEVICES`](rank::DEVICES) | `recorder::slots::DEVICES`, one after the other by their numbers | around each device's ledger | held |
//! | [`MEASURES`](rank::MEASURES) | `measure::REGISTRY` | around what open measurements see | held |
//! | [`CONTEXTS`](rank::CONTEXTS) | `CONTEXTS` | around the table of paths of scopes | held |
//! | [`STACKS`](rank::STACKS) | `STACKS` | while a stack is added to the table | held |
//! | [`NO_FORK`](rank::NO_FORK) | `fork::NO_FORK` | around one lock of the driver's tables, the span layer, candle's parameters, or of the recording that is under way | held |
//! | [`GATES`](rank::GATES) | `gates::CHANGE` | while the gates follow `ACTIVE` or `REGISTRY`, which is held then | free, because those are held |
//!
//! Locks of a session are taken before all of these, and not at all in a child. Those of the unwinder and of the symbol cache are
//! only ever tried. Builds with debug assertions count what is taken out of order, see [`out_of_order`].

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use self::held::Held;
pub(crate) use self::held::out_of_order;
use crate::errno::KeepErrno;

/// The order; the table above has the reasons.
pub(crate) mod rank {
    pub(crate) const ACTIVE: u8 = 0;
    pub(crate) const DEVICES: u8 = 1;
    pub(crate) const MEASURES: u8 = 2;
    pub(crate) const CONTEXTS: u8 = 3;
    pub(crate) const STACKS: u8 = 4;
    pub(crate) const NO_FORK: u8 = 5;
    pub(crate) const GATES: u8 = 6;
}

/// A lock with its place in the order.
#[derive(Debug)]
pub(crate) struct Lock<T, const RANK: u8>(Mutex<T>);

/// While this lives the lock is held.
#[derive(Debug)]
pub(crate) struct Locked<'a, T, const RANK: u8> {
    guard: MutexGuard<'a, T>,
    _held: Held<RANK>,
}

impl<T, const RANK: u8> Lock<T, RANK> {
    pub(crate) const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn lock(&self) -> Locked<'_, T, RANK> {
        let _held = Held::new();
        Locked { guard: lock(&self.0), _held }
    }
}

impl<T, const RANK: u8> Deref for Locked<'_, T, RANK> {
    type Target = T;
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T, const RANK: u8> DerefMut for Locked<'_, T, RANK> {
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// Takes a lock that is outside of the order. Nothing that is done under one of ours panics.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    match mutex.try_lock() {
        Ok(guard) => guard,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => wait(mutex),
    }
}

/// Waiting is a system call, which leaves its own error behind.
#[cold]
#[inline(never)]
fn wait<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    let _errno = KeepErrno::new();
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(not(debug_assertions))]
mod held {
    #[derive(Debug)]
    pub(super) struct Held<const RANK: u8>;

    impl<const RANK: u8> Held<RANK> {
        #[inline(always)]
        pub(super) fn new() -> Self {
            Self
        }
    }

    pub(crate) fn out_of_order() -> u64 {
        0
    }
}

#[cfg(debug_assertions)]
mod held {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    thread_local! {
        /// A bit for each rank of which this thread holds a lock. Without a destructor, as all that hooks look at.
        static RANKS: Cell<u8> = const { Cell::new(0) };
    }

    static OUT_OF_ORDER: AtomicU64 = AtomicU64::new(0);

    /// A rank that this thread holds. Locks of one rank may be held together.
    #[derive(Debug)]
    pub(super) struct Held<const RANK: u8>;

    impl<const RANK: u8> Held<RANK> {
        pub(super) fn new() -> Self {
            let held = RANKS.get();
            // Neither a message nor a panic: this may be inside of the allocator.
            OUT_OF_ORDER.fetch_add((held >> RANK > 1).into(), Relaxed);
            RANKS.set(held | 1 << RANK);
            Self
        }
    }

    impl<const RANK: u8> Drop for Held<RANK> {
        fn drop(&mut self) {
            RANKS.set(RANKS.get() & !(1 << RANK));
        }
    }

    /// How often a thread of this process has taken a lock while it held one that comes later.
    pub(crate) fn out_of_order() -> u64 {
        OUT_OF_ORDER.load(Relaxed)
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_taken_after_a_later_one_is_counted() {
        let (early, late) = (Lock::<(), 1>::new(()), Lock::<(), 2>::new(()));
        let before = out_of_order();
        drop((early.lock(), late.lock()));
        assert_eq!(out_of_order(), before);
        drop((late.lock(), early.lock()));
        assert_eq!(out_of_order(), before + 1);
        drop(early.lock());
        assert_eq!(out_of_order(), before + 1);
    }
}
