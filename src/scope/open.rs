//! The scopes that are open on a thread.

use std::cell::RefCell;

use super::Kind;
#[cfg(feature = "tracing")]
use super::SpanKey;
use crate::record::{CONTEXTS, guard, measure};
use crate::snapshot::ContextId;

/// Deeper nesting is not told apart: the scopes beyond keep the context of the deepest one.
pub(super) const MAX_OPEN: usize = 64;

thread_local! {
    // Const and without a destructor: scopes may be opened in thread-local destructors.
    pub(super) static OPEN: RefCell<OpenScopes> = const { RefCell::new(OpenScopes::new()) };
}

#[derive(Clone, Copy, Debug)]
pub(super) struct OpenScope {
    /// Unique number of this entering.
    pub(super) instance: u64,
    /// Its path now.
    context: ContextId,
    /// Its path when it was entered, if a scope around it was closed since.
    pub(super) entered: ContextId,
    pub(super) kind: Kind,
    /// The measurement that it carries; 0 for none.
    carried: measure::Id,
    /// The one in force in it.
    measure: measure::Id,
    /// The span that it stands for.
    #[cfg(feature = "tracing")]
    pub(super) span: Option<SpanKey>,
    /// How often its span was entered again without being opened, too many scopes being open.
    #[cfg(feature = "tracing")]
    again: u32,
}

impl OpenScope {
    pub(super) const fn new(instance: u64, context: ContextId, kind: Kind) -> Self {
        Self {
            instance,
            context,
            entered: context,
            kind,
            carried: 0,
            measure: 0,
            #[cfg(feature = "tracing")]
            span: None,
            #[cfg(feature = "tracing")]
            again: 0,
        }
    }

    pub(super) const fn carrying(self, measure: measure::Id) -> Self {
        Self { carried: measure, ..self }
    }
}

/// The scopes of one thread from the outermost inwards.
#[derive(Debug)]
pub(super) struct OpenScopes {
    scopes: [OpenScope; MAX_OPEN],
    length: usize,
}

impl OpenScopes {
    const fn new() -> Self {
        Self { scopes: [OpenScope::new(0, ContextId::ROOT, Kind::Named); MAX_OPEN], length: 0 }
    }

    /// False if there are too many already.
    pub(super) fn push(&mut self, scope: OpenScope) -> bool {
        let Some(slot) = self.scopes.get_mut(self.length) else { return false };
        let around = guard::measure();
        let in_force = measure::active_for(around, scope.carried);
        *slot = OpenScope { measure: in_force, ..scope };
        self.length += 1;
        guard::set_context(scope.context);
        if in_force != around {
            guard::set_measure(in_force);
        }
        true
    }

    /// Takes out the innermost scope that is meant, wherever it stands; those inside it move up to
    /// what encloses it.
    pub(super) fn remove(&mut self, is_meant: impl Fn(&OpenScope) -> bool) -> Option<OpenScope> {
        let open = self.scopes.get_mut(..self.length)?;
        let at = open.iter().rposition(is_meant)?;
        let closed = *open.get(at)?;
        open.get_mut(at..)?.rotate_left(1);
        self.length -= 1;
        self.repath(at);
        Some(closed)
    }

    /// A span was entered that could not be opened: if it is open already, its next exit is not that
    /// one's.
    #[cfg(feature = "tracing")]
    pub(super) fn enter_again(&mut self, span: SpanKey) {
        if let Some(scope) = self.of_span(span) {
            scope.again = scope.again.saturating_add(1);
        }
    }

    /// Takes out the innermost scope of a span, unless it was entered again since.
    #[cfg(feature = "tracing")]
    pub(super) fn exit_span(&mut self, span: SpanKey) -> Option<OpenScope> {
        let scope = self.of_span(span)?;
        match scope.again.checked_sub(1) {
            Some(fewer) => {
                scope.again = fewer;
                None
            }
            None => self.remove(|scope| scope.span == Some(span)),
        }
    }

    #[cfg(feature = "tracing")]
    fn of_span(&mut self, span: SpanKey) -> Option<&mut OpenScope> {
        self.scopes.get_mut(..self.length)?.iter_mut().rfind(|scope| scope.span == Some(span))
    }

    fn repath(&mut self, from: usize) {
        let enclosing = from.checked_sub(1).and_then(|i| self.scopes.get(i));
        let (mut parent, mut measure) =
            enclosing.map_or((ContextId::ROOT, guard::inherited()), |scope| (scope.context, scope.measure));
        for scope in self.scopes.iter_mut().take(self.length).skip(from) {
            match scope.kind {
                Kind::Named => scope.context = CONTEXTS.intern_like(parent, scope.context),
                Kind::Measure => scope.context = parent,
                _ => {}
            }
            scope.measure = measure::active_for(measure, scope.carried);
            (parent, measure) = (scope.context, scope.measure);
        }
        guard::set_context(parent);
        if measure != guard::measure() {
            guard::set_measure(measure);
        }
    }
}
