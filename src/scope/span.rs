//! `tracing` spans as scopes. A span is identified by its layer and the id that its subscriber gave it.

use memtrace_core::snapshot::ContextId;

use super::open::{ThreadScope, with_open};
use super::{ScopeKind, below, next_instance, push, tell_windows};
use crate::record::guard;

/// A span of one layer. Ids alone are ambiguous, because every subscriber counts its own spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SpanKey {
    pub(crate) layer: u64,
    pub(crate) span: u64,
}

/// Caches the context of a span's last entry. The next entry nearly always has the same one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LastPath {
    parent: ContextId,
    /// `ROOT` while the cache is empty.
    context: ContextId,
}

impl LastPath {
    /// The span's context inside the open scopes. `name` returns the span's name and whether it is a part of a model.
    fn here<N: AsRef<str>>(&mut self, name: impl FnOnce() -> (N, bool)) -> ContextId {
        let parent = guard::context();
        if self.context == ContextId::ROOT || self.parent != parent {
            let (name, is_module) = name();
            let context = below(parent, name.as_ref(), is_module);
            // If the context table is full, the result is `parent`. It is not cached, so that each later entry is
            // counted as lost.
            self.context = if context == parent { ContextId::ROOT } else { context };
            self.parent = parent;
            return context;
        }
        self.context
    }
}

/// Opens a span as a scope inside the open ones.
pub(crate) fn enter_span<N: AsRef<str>>(key: SpanKey, last: &mut LastPath, name: impl FnOnce() -> (N, bool)) {
    let context = last.here(name);
    let instance = next_instance();
    let mut scope = ThreadScope::new(instance, context, ScopeKind::Named);
    scope.span = Some(key);
    match push(scope) {
        true => tell_windows(true, ScopeKind::Named, instance, context),
        false => with_open(|open| open.enter_again(key)).unwrap_or_default(),
    }
}

/// Number of the innermost open entry of a span on this thread.
pub(crate) fn open_instance(key: SpanKey) -> Option<u64> {
    with_open(|open| open.of_span(key).map(|scope| scope.instance)).flatten()
}

/// Closes the innermost open scope of a span on this thread.
pub(crate) fn exit_span(key: SpanKey) {
    if let Some(closed) = with_open(|open| open.exit_span(key)).flatten() {
        tell_windows(false, closed.kind, closed.instance, closed.entered);
    }
}
