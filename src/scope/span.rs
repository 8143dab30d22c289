//! Spans as scopes: opened and closed by the numbers that their subscriber knows them by.

use super::open::{OPEN, OpenScope};
use super::{Kind, below, enter_windows, exit_windows, next_instance, push};
use crate::record::guard;
use crate::snapshot::ContextId;

/// A span of one layer: two subscribers give their spans the same numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SpanKey {
    pub(crate) layer: u64,
    pub(crate) span: u64,
}

/// The path that a span took last: nearly always it is the next one, too, and need not be looked up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LastPath {
    parent: ContextId,
    /// The root as long as there is none.
    context: ContextId,
}

impl LastPath {
    /// The path below what is open. `name` gives the span's name and says whether it is a model's.
    fn here<N: AsRef<str>>(&mut self, name: impl FnOnce() -> (N, bool)) -> ContextId {
        let parent = guard::context();
        if self.context == ContextId::ROOT || self.parent != parent {
            let (name, is_module) = name();
            let context = below(parent, name.as_ref(), is_module);
            // Where there was no room for it, that is counted each time.
            let found = if context == parent { ContextId::ROOT } else { context };
            (self.parent, self.context) = (parent, found);
            return context;
        }
        self.context
    }
}

/// Opens a span as a scope below what is open.
pub(crate) fn enter_span<N: AsRef<str>>(key: SpanKey, last: &mut LastPath, name: impl FnOnce() -> (N, bool)) {
    let context = last.here(name);
    let instance = next_instance();
    let mut scope = OpenScope::new(instance, context, Kind::Named);
    scope.span = Some(key);
    match push(scope) {
        true => enter_windows(Kind::Named, instance, context),
        false => OPEN.with(|open| open.borrow_mut().enter_again(key)),
    }
}

/// Closes the innermost open scope of a span on this thread.
pub(crate) fn exit_span(key: SpanKey) {
    if let Some(closed) = OPEN.with(|open| open.borrow_mut().exit_span(key)) {
        exit_windows(closed.kind, closed.instance, closed.entered);
    }
}
