//! Fork handlers (`pthread_atfork`): the forking thread holds every lock of the recorder during `fork`, so a child
//! never inherits a locked lock or half-written data. A child of a recording process does not record.
#![cfg_attr(unix, expect(unsafe_code, reason = "pthread_atfork is a C function"))]

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Once, OnceLock};

use super::lock::{Lock, Locked, rank};
use super::recorder::{self, RecorderLocks};
use super::{CONTEXTS, STACKS, contexts, gates, guard, loader, measure, stacks, unwind, uses};

/// Every lock that is held at a fork, in the order of the table in [`lock`](super::lock).
struct ForkLocks {
    recorder: RecorderLocks,
    measurements: measure::LockedRegistry,
    _contexts: Locked<'static, contexts::Paths, { rank::CONTEXTS }>,
    _stacks: Locked<'static, stacks::Writer, { rank::STACKS }>,
    _no_fork: NoFork,
    loader_is_free: bool,
    _uses: uses::LockedUses,
    /// Other fork handlers may allocate on this thread, and must not wait for these locks.
    _own: guard::OwnWork,
}

thread_local! {
    /// Without a destructor: registering one takes the loader's lock, and its owner may wait for one of these.
    static HELD: RefCell<ManuallyDrop<Option<ForkLocks>>> = const { RefCell::new(ManuallyDrop::new(None)) };
}

static NO_FORK: Lock<(), { rank::NO_FORK }> = Lock::new(());

pub(crate) type NoFork = Locked<'static, (), { rank::NO_FORK }>;

static FORKED: AtomicBool = AtomicBool::new(false);

static IN_CHILD: OnceLock<fn()> = OnceLock::new();

/// Prevents forks while it is held. A lock that [`ForkLocks`] does not list is taken under this one, so that it is free
/// in children.
pub(crate) fn no_fork() -> NoFork {
    watch();
    NO_FORK.lock()
}

/// In a child, a lock that another thread of the parent held (such as the loader's) stays locked for ever.
pub(crate) fn is_child() -> bool {
    FORKED.load(Ordering::Relaxed) || gates::are_cleared()
}

/// Registers a function that each child calls, on the thread that forked, with no lock held.
pub(crate) fn in_each_child(call: fn()) {
    let _ = IN_CHILD.set(call);
}

/// Registers the fork handlers; called before the first lock is taken. "Before" handlers run in reverse order of
/// registration: ours, registered first, runs last, so other handlers may still allocate and wait for locks under which
/// other threads do. The constructor calls this where there is one; elsewhere [`own`](super::own()), [`no_fork`] and
/// scopes do.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        gates::clear_in_children();
        register();
    });
}

#[cfg(unix)]
fn register() {
    // SAFETY: the handlers take and release locks; they do not unwind or allocate from the watched allocator. On
    // failure (no memory) forks work as they do without memtrace.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

#[cfg(not(unix))]
fn register() {}

#[cfg(unix)]
extern "C" fn before() {
    let _own = guard::own_work();
    let recorder = RecorderLocks::take();
    put(Some(ForkLocks {
        recorder,
        measurements: measure::lock(),
        _contexts: CONTEXTS.lock(),
        _stacks: STACKS.lock(),
        _no_fork: NO_FORK.lock(),
        _uses: uses::lock(),
        loader_is_free: loader::wait(),
        _own,
    }));
}

#[cfg(unix)]
extern "C" fn in_parent() {
    loader::go_on();
    put(None);
}

#[cfg(unix)]
extern "C" fn in_child() {
    FORKED.store(true, Ordering::Relaxed);
    unwind::after_fork();
    with(|held| {
        loader::go_on_in_child(held.as_ref().is_none_or(|held| held.loader_is_free));
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

fn put(held: Option<ForkLocks>) {
    with(|slot| drop(std::mem::replace(slot, held)));
}

fn with(f: impl FnOnce(&mut Option<ForkLocks>)) {
    HELD.with(|slot| {
        if let Ok(mut slot) = slot.try_borrow_mut() {
            f(&mut slot);
        }
    });
}
