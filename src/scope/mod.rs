//! Scopes: labels for parts of the program. Each thread has a stack of open scopes.
//!
//! The path of open scopes is interned to one number, the *context*, which every record carries. A [`Context`] takes a
//! thread's open scopes to other threads. An open scope also says which measurement is active inside it (see
//! `assertion`).

#[cfg(all(feature = "nvtx", unix))]
mod nvtx;
#[cfg(any(all(feature = "nvtx", unix), feature = "preload"))]
pub mod nvtx_tables;
mod open;
#[cfg(feature = "preload")]
pub mod range;
#[cfg(feature = "tracing")]
mod span;

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::record::{CONTEXTS, fork, guard, measure, recorder};

use memtrace_core::snapshot::ContextId;
use open::{ThreadScope, with_open};
#[cfg(feature = "tracing")]
pub(crate) use span::{LastPath, SpanKey, enter_span, exit_span, open_instance};

/// Runs `f` in a scope: this thread's allocations are labelled `name`, inside the scopes that are already open.
///
/// Other threads that work for `f` are not labelled, unless they are given the [`Context`]. While nothing is recorded,
/// a scope costs about as much as a hash map lookup.
///
/// ```
/// let sum = memtrace::scope("forward", || 1 + 1);
/// # assert_eq!(sum, 2);
/// ```
#[inline(always)]
pub fn scope<R>(name: impl AsRef<str>, f: impl FnOnce() -> R) -> R {
    // Inlined because the compiler merges functions with identical code. Otherwise a stack could show the line of
    // another caller, whose closure has the same code.
    let _scope = scope_guard(name);
    f()
}

/// Like [`scope`], but for a part of a model. Tables by module show its name; everywhere else it is an ordinary scope.
///
/// ```
/// let sum = memtrace::module("encoder", || memtrace::module("layer 3", || 1 + 1));
/// # assert_eq!(sum, 2);
/// ```
#[inline(always)]
pub fn module<R>(name: impl AsRef<str>, f: impl FnOnce() -> R) -> R {
    // Inlined for the same reason as `scope`.
    let _scope = named_guard(name.as_ref(), true);
    f()
}

/// The context of a scope called `name` inside the context `parent`.
fn below(parent: ContextId, name: &str, is_module: bool) -> ContextId {
    fork::watch();
    CONTEXTS.intern(parent, name, is_module)
}

/// Opens a scope until the guard is dropped.
///
/// ```
/// let forward = memtrace::scope_guard("forward");
/// let activations = vec![0f32; 1024];
/// drop(forward);
/// ```
///
/// A guard cannot be sent to another thread:
/// ```compile_fail
/// let guard = memtrace::scope_guard("forward");
/// std::thread::spawn(move || drop(guard));
/// ```
pub fn scope_guard(name: impl AsRef<str>) -> ScopeGuard {
    named_guard(name.as_ref(), false)
}

fn named_guard(name: &str, is_module: bool) -> ScopeGuard {
    ScopeGuard::open(below(guard::context(), name, is_module), ScopeKind::Named, 0)
}

/// Closes its scope when dropped; guards may be dropped in any order.
#[must_use = "the scope closes when its guard is dropped; bind it: `let _scope = …`"]
#[derive(Debug)]
pub struct ScopeGuard {
    instance: u64,
    /// Makes the guard not `Send`, because its scope is open on this thread.
    thread: PhantomData<*const ()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScopeKind {
    /// Opened by name, inside the scopes that are already open.
    Named,
    /// A future's scope, entered at each poll, inside the scopes that were open where the future was created.
    #[cfg(feature = "tracing")]
    Task,
    /// The scopes of a [`Context`], opened elsewhere. Entering them here does not count as another entry of these
    /// scopes.
    Carried,
    /// A measurement, not a scope of the user's.
    Measure,
}

impl ScopeKind {
    fn is_entry(self) -> bool {
        !matches!(self, Self::Carried | Self::Measure)
    }
}

fn next_instance() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // Relaxed: only the uniqueness of the number matters.
    NEXT.fetch_add(1, Relaxed)
}

/// False if the scope cannot be opened, mostly because too many are open. Such scopes are counted as lost.
fn push(scope: ThreadScope) -> bool {
    let pushed = with_open(|open| open.push(scope)) == Some(true);
    if !pushed {
        CONTEXTS.count_refused();
    }
    pushed
}

fn tell_windows(enter: bool, kind: ScopeKind, instance: u64, context: ContextId) {
    if kind.is_entry() && recorder::is_recording() {
        recorder::on_scope(enter, instance, context);
    }
}

impl ScopeGuard {
    fn open(context: ContextId, kind: ScopeKind, measure: measure::Id) -> Self {
        let instance = next_instance();
        let thread = PhantomData;
        if push(ThreadScope::new(instance, context, kind).carrying(measure)) {
            tell_windows(true, kind, instance, context);
            return Self { instance, thread };
        }
        // Nothing was opened, so dropping the guard closes nothing.
        Self { instance: 0, thread }
    }

    /// Makes a measurement active on this thread. `None` if no scope can be opened, mostly because too many are open.
    pub(crate) fn of_measure(measure: measure::Id) -> Option<Self> {
        let guard = Self::open(guard::context(), ScopeKind::Measure, measure);
        guard.is_open().then_some(guard)
    }

    /// False if the scope could not be opened, see [`push`].
    fn is_open(&self) -> bool {
        self.instance != 0
    }

    /// Leaves the scope open until the thread ends.
    #[cfg(feature = "rayon")]
    pub(crate) fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for ScopeGuard {
    fn drop(&mut self) {
        if let Some(closed) = with_open(|open| open.remove(|scope| scope.instance == self.instance)).flatten() {
            tell_windows(false, closed.kind, closed.instance, closed.entered);
        }
    }
}

/// The scopes that are open on a thread and the measurement that is active there. Hand it to work on other threads.
///
/// ```
/// let _scope = memtrace::scope_guard("load");
/// let here = memtrace::Context::current();
/// std::thread::spawn(move || here.scope(|| vec![0u8; 4096])).join().unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    path: ContextId,
    /// The measurement that is active there; 0 for none.
    measure: measure::Id,
}

impl Context {
    /// The open scopes of this thread, and its innermost [`measure`](fn@crate::measure).
    pub fn current() -> Self {
        Self { path: guard::context(), measure: measure::carry() }
    }

    /// Until the guard is dropped, this thread has the context's scopes instead of its own. Meanwhile, allocations
    /// count for the measurement that was active where the context was taken.
    pub fn enter(self) -> ScopeGuard {
        ScopeGuard::open(self.path, ScopeKind::Carried, self.measure)
    }

    /// The same scopes with another measurement.
    #[cfg(feature = "rayon")]
    pub(crate) fn measured_as(self, measure: measure::Id) -> Self {
        Self { measure, ..self }
    }

    /// This context with one more scope inside, which is called `name`. A future is polled in the result.
    #[cfg(feature = "tracing")]
    pub(crate) fn below(self, name: &str) -> Self {
        Self { path: below(self.path, name, false), ..self }
    }

    /// Enters the context for one poll of a future.
    #[cfg(feature = "tracing")]
    pub(crate) fn enter_task(self) -> ScopeGuard {
        ScopeGuard::open(self.path, ScopeKind::Task, self.measure)
    }

    /// Runs `f` with the context's scopes instead of those of this thread.
    #[inline(always)]
    pub fn scope<R>(self, f: impl FnOnce() -> R) -> R {
        let _scope = self.enter();
        f()
    }
}

#[cfg(test)]
mod tests {
    use super::open::MAX_OPEN;
    use super::*;

    pub(super) fn path() -> String {
        let nodes = CONTEXTS.nodes();
        let mut names = Vec::new();
        let mut at = guard::context();
        while at != ContextId::ROOT {
            names.push(nodes[at.0 as usize].name.clone());
            at = nodes[at.0 as usize].parent;
        }
        names.reverse();
        names.join(">")
    }

    #[test]
    fn scopes_nest_and_end_with_a_panic() {
        scope("a", || {
            let caught = std::panic::catch_unwind(|| scope("b", || scope("c", || panic!("{}", path()))));
            assert_eq!(*caught.unwrap_err().downcast::<String>().unwrap(), "a>b>c");
            assert_eq!(path(), "a");
        });
        assert_eq!(path(), "");
    }

    #[test]
    fn guards_may_be_dropped_in_any_order() {
        let (a, b, c) = (scope_guard("a"), scope_guard("b"), scope_guard("c"));
        drop(b);
        assert_eq!(path(), "a>c");
        drop(a);
        assert_eq!(path(), "c");
        let d = scope_guard("d");
        drop(c);
        assert_eq!(path(), "d");
        drop(d);
        assert_eq!(path(), "");
    }

    #[test]
    fn a_context_is_carried_to_another_thread_and_left_there() {
        let _outer = scope_guard("outer");
        let here = Context::current();
        let there = std::thread::spawn(move || {
            let _own = scope_guard("own");
            let inside = here.scope(|| scope("inner", path));
            (inside, path())
        });
        assert_eq!(there.join().unwrap(), ("outer>inner".to_owned(), "own".to_owned()));
    }

    #[test]
    fn scopes_nested_too_deep_still_close_in_order() {
        fn nest(levels: usize) -> usize {
            scope("level", || if levels == 0 { path().split('>').count() } else { nest(levels - 1) })
        }
        assert_eq!(nest(MAX_OPEN + 20), MAX_OPEN);
        assert_eq!(path(), "");
    }
}
