//! Forks happen while none of our locks is held, so that what a child inherits is whole; and a child
//! of a recording process goes on without recording.
#![cfg_attr(unix, expect(unsafe_code, reason = "pthread_atfork is a C function"))]

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Once, OnceLock};

use super::lock::{Lock, Locked, rank};
use super::recorder::{self, RecorderLocks};
use super::{CONTEXTS, STACKS, contexts, guard, measure, stacks, unwind};

/// Every lock that the table in [`lock`](super::lock) says is held at a fork, in that order.
struct Held {
    recorder: RecorderLocks,
    measurements: measure::LockedRegistry,
    _contexts: Locked<'static, contexts::Paths, { rank::CONTEXTS }>,
    _stacks: Locked<'static, stacks::Writer, { rank::STACKS }>,
    _no_fork: NoFork,
    /// Other fork handlers may allocate meanwhile, on this thread: that must not wait for these locks.
    _own: guard::OwnWork,
}

thread_local! {
    /// What the thread that forks holds meanwhile, on both sides of the fork. Without a destructor: to register one takes
    /// the loader's lock, which another thread may have that waits for one of these.
    static HELD: RefCell<ManuallyDrop<Option<Held>>> = const { RefCell::new(ManuallyDrop::new(None)) };
}

static NO_FORK: Lock<(), { rank::NO_FORK }> = Lock::new(());

pub(crate) type NoFork = Locked<'static, (), { rank::NO_FORK }>;

/// This process was forked off one that watched for it.
static FORKED: AtomicBool = AtomicBool::new(false);

/// What else is to be done in a child.
static IN_CHILD: OnceLock<fn()> = OnceLock::new();

/// While this is held no child is forked off. Whoever has a lock that [`Held`] does not know holds this around it, so that the
/// lock is free in children.
pub(crate) fn no_fork() -> NoFork {
    watch();
    NO_FORK.lock()
}

/// Is this a child? What other threads of the parent's may have held, such as the loader's lock, may be held for ever.
pub(crate) fn is_child() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Has this called in a child, on the thread that forked; nothing is held any more.
pub(crate) fn in_each_child(call: fn()) {
    let _ = IN_CHILD.set(call);
}

/// To be called before the first of our locks is taken, and early: handlers before a fork run in the reverse order of
/// their registration. Ours is to be the last of them, so that others may allocate in theirs, and wait for locks under
/// which other threads do; and the first after the fork. The constructor calls it where there is one; elsewhere
/// [`own`](super::own()), [`no_fork`] and scopes do, which come before every other lock.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(register);
}

#[cfg(unix)]
fn register() {
    // SAFETY: the handlers take and release locks and neither allocate from the watched allocator nor
    // unwind. A failure (no memory) leaves forks as they would be without memtrace.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

#[cfg(not(unix))]
fn register() {}

#[cfg(unix)]
extern "C" fn before() {
    let _own = guard::own_work();
    let recorder = RecorderLocks::take();
    put(Some(Held {
        recorder,
        measurements: measure::lock(),
        _contexts: CONTEXTS.lock(),
        _stacks: STACKS.lock(),
        _no_fork: NO_FORK.lock(),
        _own,
    }));
}

#[cfg(unix)]
extern "C" fn in_parent() {
    put(None);
}

#[cfg(unix)]
extern "C" fn in_child() {
    FORKED.store(true, Ordering::Relaxed);
    unwind::after_fork();
    with(|held| {
        if let Some(held) = held {
            recorder::abandon(&mut held.recorder);
            measure::abandon(&mut held.measurements);
        }
    });
    put(None);
    if let Some(call) = IN_CHILD.get() {
        call();
    }
}

fn put(held: Option<Held>) {
    with(|slot| drop(std::mem::replace(slot, held)));
}

fn with(f: impl FnOnce(&mut Option<Held>)) {
    HELD.with(|slot| slot.try_borrow_mut().map_or((), |mut slot| f(&mut slot)));
}
