//! Spans as scopes: opened and closed by the numbers that their subscriber knows them by.

use super::open::{OPEN, OpenScope};
use super::{Kind, enter_windows, exit_windows, next_instance, push};
use crate::record::{CONTEXTS, fork, guard};

/// A span of one layer: two subscribers give their spans the same numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SpanKey {
    pub(crate) layer: u64,
    pub(crate) span: u64,
}

/// Opens a span as a scope below what is open.
pub(crate) fn enter_span(key: SpanKey, name: &str, of_model: bool) {
    fork::watch();
    let context = CONTEXTS.intern_span(guard::context(), name, of_model);
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
