//! Dumps on a panic and at the process's exit: snapshots that no code requested.

use std::sync::atomic::Ordering;
use std::sync::{Once, PoisonError, RwLock};

use super::collect::Copied;
use super::outputs::Snapshot;
use super::recording::{self, SharedRecording};
use crate::record::{Leaves, guard, own};

/// The active recording; `None` inside own work, where looking for it could deadlock.
pub(super) fn current() -> Option<SharedRecording> {
    if guard::state() & guard::OWN != 0 { None } else { recording::current() }
}

pub(super) fn hook_panics() {
    // `set_hook` panics on a thread that is already panicking.
    if std::thread::panicking() {
        return;
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let hook = std::panic::take_hook();
        // The first `take_hook` put the default hook in place, so the second one returns it.
        let is_default = is_same(&*hook, &*std::panic::take_hook());
        *HOOK_BEFORE.write().unwrap_or_else(PoisonError::into_inner) = Some((hook, is_default));
        let before = HookBefore;
        std::panic::set_hook(Box::new(move |panic| {
            // Copied first, because memory that a hook takes does not belong in the snapshot.
            let copied = copy_at_panic();
            before.call(panic);
            if let Some(copied) = copied {
                copied.write();
            }
        }));
    });
}

type PanicHook = dyn Fn(&std::panic::PanicHookInfo<'_>) + Send + Sync;

/// The program's hook, which memtrace's hook calls, and whether it is the default one.
static HOOK_BEFORE: RwLock<Option<(Box<PanicHook>, bool)>> = RwLock::new(None);

/// Drops the program's hook with memtrace's. It has no state, so memtrace's hook takes no memory: a measurement in which
/// the first session begins would count it.
struct HookBefore;

impl HookBefore {
    fn call(&self, panic: &std::panic::PanicHookInfo<'_>) {
        match &*HOOK_BEFORE.read().unwrap_or_else(PoisonError::into_inner) {
            // The memory of the default hook, most of it for the backtrace, does not count as the program's.
            Some((hook, true)) => own(|| hook(panic)),
            // It runs outside own work, because it may keep some memory.
            Some((hook, false)) => hook(panic),
            None => {}
        }
    }
}

impl Drop for HookBefore {
    fn drop(&mut self) {
        let hook = HOOK_BEFORE.write().unwrap_or_else(PoisonError::into_inner).take();
        drop(hook);
    }
}

/// Whether both hooks are the same hook without state. Hooks without state have no address of their own, so their
/// tables of functions are compared. `std` makes its default hook in one place, so it always has the same table.
fn is_same(one: &PanicHook, other: &PanicHook) -> bool {
    size_of_val(one) == 0 && std::ptr::eq(one, other)
}

/// The state at a panic.
struct AtPanic {
    recording: SharedRecording,
    copied: Copied,
}

/// `write` drops it as own work.
impl Leaves for AtPanic {}

/// Only the first panic of a recording is dumped, because a server may catch thousands.
fn copy_at_panic() -> Option<AtPanic> {
    let recording = current().filter(|recording| recording.dumps.on_panic)?;
    let is_first = !recording.panicked.swap(true, Ordering::AcqRel);
    is_first.then(|| own(|| AtPanic { copied: recording.copied(), recording }))
}

impl AtPanic {
    fn write(self) {
        own(|| {
            let Self { recording, copied } = self;
            recording.flush();
            recording.dumps.write(&Snapshot::take(|| copied.finish()), "after a panic");
        });
    }
}

/// Registers a handler, once, that finishes the active recording when the process exits.
pub(super) fn at_exit() {
    static ONCE: Once = Once::new();
    ONCE.call_once(exit::register);
}

mod exit {
    #![expect(unsafe_code, reason = "`atexit` is a C function")]

    use super::{guard, own, recording};

    pub(super) fn register() {
        // SAFETY: the function does not unwind and uses nothing that is destroyed before exit. If registering fails
        // because memory is short, the process leaves no last snapshot.
        unsafe { libc::atexit(finish) };
    }

    extern "C" fn finish() {
        // If `exit` was called inside own work, `finish_current` would wait for locks that this work holds.
        if guard::state() & guard::OWN != 0 {
            return;
        }
        let _ = std::panic::catch_unwind(|| own(recording::finish_current));
    }
}
