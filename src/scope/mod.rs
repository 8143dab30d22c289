//! Labels for parts of the program: [`scope`], its guard form, and carrying them to other threads.

mod open;
#[cfg(feature = "tracing")]
mod span;

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::record::{CONTEXTS, fork, guard, measure, recorder};
use crate::snapshot::ContextId;

use open::{OPEN, OpenScope};
#[cfg(feature = "tracing")]
pub(crate) use span::{LastPath, SpanKey, enter_span, exit_span};

/// Runs `f`; what this thread allocates meanwhile is labelled `name`, below the scopes already open.
///
/// The label goes on this thread only: work that other threads do for `f` is not labelled, unless
/// it carries the [`Context`]. With no recording under way a scope costs about as much as a map
/// look-up.
///
/// ```
/// let sum = memtrace::scope("forward", || 1 + 1);
/// # assert_eq!(sum, 2);
/// ```
#[inline(always)]
pub fn scope<R>(name: impl AsRef<str>, f: impl FnOnce() -> R) -> R {
    // Inlined, so that `f` is, too: the compiler makes one function of equal ones, with the line of any.

    let _scope = scope_guard(name);
    f()
}

/// [`scope`] for a part of a model: tables by module show its name, others show it as they show a scope's.
///
/// ```
/// let sum = memtrace::module("encoder", || memtrace::module("layer 3", || 1 + 1));
/// # assert_eq!(sum, 2);
/// ```
#[inline(always)]
pub fn module<R>(name: impl AsRef<str>, f: impl FnOnce() -> R) -> R {
    // Inlined as `scope` is.
    let _scope = module_guard(name.as_ref());
    f()
}

fn module_guard(name: &str) -> ScopeGuard {
    ScopeGuard::open(below(guard::context(), name, true), Kind::Named)
}

/// The path of a scope below another one.
fn below(parent: ContextId, name: &str, is_module: bool) -> ContextId {
    fork::watch();
    CONTEXTS.intern(parent, name, is_module)
}

/// The guard form of [`scope`]: the scope is open until the guard is dropped.
///
/// ```
/// let forward = memtrace::scope_guard("forward");
/// let activations = vec![0f32; 1024];
/// drop(forward);
/// ```
///
/// A guard stays on its thread:
/// ```compile_fail
/// let guard = memtrace::scope_guard("forward");
/// std::thread::spawn(move || drop(guard));
/// ```
pub fn scope_guard(name: impl AsRef<str>) -> ScopeGuard {
    named_guard(name.as_ref())
}

fn named_guard(name: &str) -> ScopeGuard {
    ScopeGuard::open(below(guard::context(), name, false), Kind::Named)
}

/// Closes its scope when dropped, in whatever order guards are dropped.
#[must_use = "a scope closes when its guard is dropped"]
#[derive(Debug)]
pub struct ScopeGuard {
    instance: u64,
    /// Belongs to the thread that opened it.
    thread: PhantomData<*const ()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Opened by name, below what was open.
    Named,
    /// A future's scope: entered at each poll, below what was open where the future was made.
    #[cfg(feature = "tracing")]
    Task,
    /// Carried here from elsewhere: not an entering of its own.
    Carried,
    /// A measurement begins here, in the scopes that are open.
    Measure,
}

impl Kind {
    fn is_entering(self) -> bool {
        !matches!(self, Self::Carried | Self::Measure)
    }
}

fn next_instance() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // Relaxed: only the uniqueness of the number matters.
    NEXT.fetch_add(1, Relaxed)
}

/// False, and counted, if too many are open.
fn push(scope: OpenScope) -> bool {
    let pushed = OPEN.with(|open| open.borrow_mut().push(scope));
    if !pushed {
        CONTEXTS.count_refused();
    }
    pushed
}

fn enter_windows(kind: Kind, instance: u64, context: ContextId) {
    if kind.is_entering() && recorder::is_recording() {
        recorder::on_scope(true, instance, context);
    }
}

fn exit_windows(kind: Kind, instance: u64, context: ContextId) {
    if kind.is_entering() && recorder::is_recording() {
        recorder::on_scope(false, instance, context);
    }
}

impl ScopeGuard {
    fn open(context: ContextId, kind: Kind) -> Self {
        Self::open_carrying(context, kind, 0)
    }

    fn open_carrying(context: ContextId, kind: Kind, measure: measure::Id) -> Self {
        let instance = next_instance();
        let thread = PhantomData;
        if push(OpenScope::new(instance, context, kind).carrying(measure)) {
            enter_windows(kind, instance, context);
            return Self { instance, thread };
        }
        // A guard of no scope.
        Self { instance: 0, thread }
    }

    /// Puts a measurement in force on this thread; `None` if too many scopes are open.
    pub(crate) fn of_measure(measure: measure::Id) -> Option<Self> {
        let guard = Self::open_carrying(guard::context(), Kind::Measure, measure);
        (guard.instance != 0).then_some(guard)
    }

    /// The scope stays open until the thread ends.
    #[cfg(feature = "rayon")]
    pub(crate) fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for ScopeGuard {
    fn drop(&mut self) {
        if let Some(closed) = OPEN.with(|open| open.borrow_mut().remove(|scope| scope.instance == self.instance)) {
            exit_windows(closed.kind, closed.instance, closed.entered);
        }
    }
}

/// The scopes that are open on a thread, and the measurement in force there, to be carried to work that runs
/// elsewhere.
///
/// ```
/// let _scope = memtrace::scope_guard("load");
/// let here = memtrace::Context::current();
/// std::thread::spawn(move || here.scope(|| vec![0u8; 4096])).join().unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    path: ContextId,
    /// 0 for none.
    measure: measure::Id,
}

impl Context {
    /// The scopes open on this thread now, and the innermost [`measure`](fn@crate::measure).
    pub fn current() -> Self {
        Self { path: guard::context(), measure: measure::carry() }
    }

    /// Puts these scopes in place of this thread's until the guard is dropped; what is allocated meanwhile
    /// counts for the measurement that they come from.
    pub fn enter(self) -> ScopeGuard {
        ScopeGuard::open_carrying(self.path, Kind::Carried, self.measure)
    }

    /// The same scopes with another measurement.
    #[cfg(feature = "rayon")]
    pub(crate) fn measured_as(self, measure: measure::Id) -> Self {
        Self { measure, ..self }
    }

    /// A scope called `name` below these, for a future to be polled in.
    #[cfg(feature = "tracing")]
    pub(crate) fn below(self, name: &str) -> Self {
        Self { path: below(self.path, name, false), ..self }
    }

    /// Enters the innermost of these scopes as a future's own.
    #[cfg(feature = "tracing")]
    pub(crate) fn enter_task(self) -> ScopeGuard {
        ScopeGuard::open_carrying(self.path, Kind::Task, self.measure)
    }

    /// Runs `f` with these scopes in place of this thread's.
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

    fn path() -> String {
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
