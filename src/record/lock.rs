//! Mutexes with a lock order, which prevents deadlocks. A thread that holds several of these locks takes them in the
//! order of this table.
//!
//! | rank | lock | held | at a fork |
//! |---|---|---|---|
//! | [`ACTIVE`](rank::ACTIVE) | `recorder::slots::ACTIVE` | while a recording begins, changes or ends | held |
//! | [`DEVICES`](rank::DEVICES) | `recorder::slots::DEVICES`, in the order of their indices | while a device's ledger is used | held |
//! | [`MEASURES`](rank::MEASURES) | `measure::REGISTRY` | while open measurements are used | held |
//! | [`CONTEXTS`](rank::CONTEXTS) | `CONTEXTS` | while the table of contexts is used | held |
//! | [`STACKS`](rank::STACKS) | `STACKS` | while a stack is added to the table | held |
//! | [`NO_FORK`](rank::NO_FORK) | `fork::NO_FORK` | around one lock of the driver's tables, the span layer, candle's parameters or the current recording | held |
//! | [`GATES`](rank::GATES) | `gates::CHANGE` | while the gates are updated, with `ACTIVE` or `REGISTRY` held | free, because those are held |
//! | [`USES`](rank::USES) | `uses::USES` | while uses of device memory are recorded or read | held |
//! | [`HEAP`](rank::HEAP) | `own_heap::HEAP`, in the preloaded library | while a block of memtrace's own is allocated or freed | held (a stray child does not use it) |
//!
//! A session's locks are taken before all of these, and never in a forked child. The unwinder and the symbol cache only
//! try to take theirs. Builds with debug assertions count violations of the order; see [`out_of_order`].

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::errno::KeepErrno;

pub(crate) mod rank {
    pub(crate) const ACTIVE: u8 = 0;
    pub(crate) const DEVICES: u8 = 1;
    pub(crate) const MEASURES: u8 = 2;
    pub(crate) const CONTEXTS: u8 = 3;
    pub(crate) const STACKS: u8 = 4;
    pub(crate) const NO_FORK: u8 = 5;
    pub(crate) const GATES: u8 = 6;
    pub(crate) const USES: u8 = 7;
    #[cfg(feature = "preload")]
    pub(crate) const HEAP: u8 = 8;
}

/// A mutex with its rank in the lock order.
#[derive(Debug)]
pub(crate) struct Lock<T, const RANK: u8>(Mutex<T>);

#[derive(Debug)]
pub(crate) struct Locked<'a, T, const RANK: u8> {
    guard: MutexGuard<'a, T>,
    _held: HeldRank<RANK>,
}

impl<T, const RANK: u8> Lock<T, RANK> {
    pub(crate) const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn lock(&self) -> Locked<'_, T, RANK> {
        let _held = HeldRank::new();
        Locked { guard: lock(&self.0), _held }
    }

    /// `None` if the lock is held.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn try_lock(&self) -> Option<Locked<'_, T, RANK>> {
        let guard = match self.0.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(Locked { guard, _held: HeldRank::new() })
    }

    /// For callers that must not wait for long: a signal handler may have interrupted the thread that holds the lock.
    #[cfg(feature = "preload")]
    pub(crate) fn lock_soon(&self) -> Option<Locked<'_, T, RANK>> {
        (0..PATIENCE).find_map(|_| {
            std::hint::spin_loop();
            self.try_lock()
        })
    }
}

/// Number of attempts. All together take about 100 microseconds; the work under the lock takes about one microsecond.
#[cfg(feature = "preload")]
const PATIENCE: usize = 10_000;

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

/// Takes a mutex, without a check of the lock order. Code under memtrace's locks does not panic, so poisoning is
/// ignored.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    match mutex.try_lock() {
        Ok(guard) => guard,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => wait(mutex),
    }
}

/// Out of line: waiting is a system call, which may change `errno`.
#[cold]
#[inline(never)]
fn wait<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    let _errno = KeepErrno::new();
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(debug_assertions)]
thread_local! {
    /// One bit for each rank that this thread holds. Const and without a destructor, like all thread-locals of the hot
    /// path.
    static RANKS: std::cell::Cell<u16> = const { std::cell::Cell::new(0) };
}

static OUT_OF_ORDER: AtomicU64 = AtomicU64::new(0);

/// How often a thread took a lock while it held one of a later rank. Always 0 without debug assertions.
pub(crate) fn out_of_order() -> u64 {
    OUT_OF_ORDER.load(Relaxed)
}

/// A rank that this thread holds. Locks of the same rank may be held together.
#[derive(Debug)]
struct HeldRank<const RANK: u8>;

impl<const RANK: u8> HeldRank<RANK> {
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn new() -> Self {
        #[cfg(debug_assertions)]
        {
            let held = RANKS.get();
            // Neither a message nor a panic: this may run inside the allocator.
            OUT_OF_ORDER.fetch_add((held >> RANK > 1).into(), Relaxed);
            RANKS.set(held | 1 << RANK);
        }
        Self
    }
}

#[cfg(debug_assertions)]
impl<const RANK: u8> Drop for HeldRank<RANK> {
    fn drop(&mut self) {
        RANKS.set(RANKS.get() & !(1 << RANK));
    }
}

#[cfg(test)]
#[cfg(debug_assertions)]
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
