//! Fork handlers (`pthread_atfork`): the forking thread holds every lock of the recorder during `fork`, so a child
//! never inherits a locked lock or half-written data. A child of a recording process does not record.
#![expect(unsafe_code, reason = "pthread_atfork is a C function; locks in a static")]

use std::cell::UnsafeCell;
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
    #[cfg(all(feature = "preload", target_os = "linux", target_env = "gnu"))]
    heap: Option<super::own_heap::LockedHeap>,
    /// Other fork handlers may allocate on this thread, and such allocations must not wait for these locks.
    _own: guard::OwnWork,
}

/// The locks of the thread that is forking. At most one thread forks at a time, because it has all of them.
struct Held(UnsafeCell<Option<ForkLocks>>);

// SAFETY: the handlers of a fork run on the thread that forks, and use this only while that thread has the recorder's
// locks. `before` takes the locks first; the other handlers take them out of here before they release them.
unsafe impl Sync for Held {}

static HELD: Held = Held(UnsafeCell::new(None));

static NO_FORK: Lock<(), { rank::NO_FORK }> = Lock::new(());

pub(crate) type NoFork = Locked<'static, (), { rank::NO_FORK }>;

static FORKED: AtomicBool = AtomicBool::new(false);

static IN_CHILD: OnceLock<fn()> = OnceLock::new();

/// Prevents forks while the guard lives. A lock that [`ForkLocks`] does not list is taken only under this guard, so it
/// is free in children.
pub(crate) fn no_fork() -> NoFork {
    watch();
    NO_FORK.lock()
}

/// Like [`no_fork`], for callers that must not wait for long.
#[cfg(feature = "preload")]
pub(crate) fn no_fork_soon() -> Option<NoFork> {
    watch();
    NO_FORK.lock_soon()
}

/// Whether this is a forked child. There, a lock that another thread of the parent held (such as the loader's) stays
/// locked for ever.
pub(crate) fn is_child() -> bool {
    FORKED.load(Ordering::Relaxed) || gates::are_cleared()
}

/// Registers a function that each child calls on the thread that forked, with no lock held.
pub(crate) fn in_each_child(call: fn()) {
    let _ = IN_CHILD.set(call);
}

/// Registers the fork handlers; called before the first lock is taken.
///
/// "Before" handlers run in reverse order of registration. Ours is registered first and runs last, so the other
/// handlers may still allocate and wait for locks under which other threads allocate. memtrace's constructor (code
/// that runs before `main`) calls this; on systems without a constructor, [`own`](super::own()), [`no_fork`] and
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
    if gates::is_stray_child() {
        return gates::children_are_stray();
    }
    let _own = guard::own_work();
    let recorder = RecorderLocks::take();
    let held = ForkLocks {
        recorder,
        measurements: measure::lock(),
        _contexts: CONTEXTS.lock(),
        _stacks: STACKS.lock(),
        _no_fork: NO_FORK.lock(),
        _uses: uses::lock(),
        loader_is_free: loader::wait(),
        #[cfg(all(feature = "preload", target_os = "linux", target_env = "gnu"))]
        heap: Some(super::own_heap::lock()),
        _own,
    };
    // SAFETY: see `Held`.
    unsafe { *HELD.0.get() = Some(held) };
}

#[cfg(unix)]
extern "C" fn in_parent() {
    loader::go_on();
    drop(held_without_heap());
}

#[cfg(unix)]
extern "C" fn in_child() {
    FORKED.store(true, Ordering::Relaxed);
    gates::are_this_process();
    unwind::after_fork();
    let mut held = held_without_heap();
    loader::go_on_in_child(held.as_ref().is_some_and(|held| held.loader_is_free));
    if let Some(held) = &mut held {
        recorder::abandon(&mut held.recorder);
        measure::abandon(&mut held.measurements);
    }
    drop(held);
    if let Some(call) = IN_CHILD.get() {
        call();
    }
}

/// Takes the locks out of [`HELD`]. Only these locks keep other threads away from `HELD`. The heap's lock is released
/// first, because what follows frees memory.
#[cfg(unix)]
fn held_without_heap() -> Option<ForkLocks> {
    if gates::is_stray_child() {
        return None;
    }
    // SAFETY: see `Held`.
    let held = unsafe { &mut *HELD.0.get() };
    #[cfg(all(feature = "preload", target_os = "linux", target_env = "gnu"))]
    if let Some(held) = held {
        held.heap = None;
    }
    held.take()
}
