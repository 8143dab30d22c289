//! The stack of open scopes of a thread.

use memtrace_core::snapshot::ContextId;

use super::ScopeKind;
#[cfg(feature = "tracing")]
use super::SpanKey;
use crate::record::kept::{PerThread, Place, Pool};
use crate::record::{CONTEXTS, guard, measure};

/// The most scopes that a thread has open. Allocations in further scopes belong to the innermost open one.
pub(super) const MAX_OPEN: usize = 64;

thread_local! {
    // Const-initialized and without a destructor, because thread-local destructors may open scopes.
    static OPEN: Place<ScopeStack> = const { Place::new() };
}

static STACKS: Pool<ScopeStack> = Pool::new();

impl PerThread for ScopeStack {
    const EMPTY: &'static Self = &Self::new();
    const POOL: &'static Pool<Self> = &STACKS;
}

/// `None` if this thread's stack of scopes cannot be used: there is no memory for it, the thread has ended, or a
/// signal handler interrupted code that uses it.
pub(super) fn with_open<T>(work: impl FnOnce(&mut ScopeStack) -> T) -> Option<T> {
    OPEN.with(|place| place.with(|open| open.map(work)))
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ThreadScope {
    /// Unique number of this entry.
    pub(super) instance: u64,
    /// The context inside this scope, as it is now.
    context: ContextId,
    /// The context inside this scope at its entry. `context` differs if an enclosing scope was closed since.
    pub(super) entered: ContextId,
    pub(super) kind: ScopeKind,
    /// The measurement that a `Context` brought with this scope, or that this scope is; 0 for none.
    carried: measure::Id,
    /// The measurement that is active inside the scope; 0 for none.
    measure: measure::Id,
    #[cfg(feature = "tracing")]
    pub(super) span: Option<SpanKey>,
    /// How many later entries of the span were not opened, because too many scopes were open.
    #[cfg(feature = "tracing")]
    again: u32,
    /// The scope is also a range of NVTX.
    #[cfg(all(feature = "nvtx", unix))]
    is_range: bool,
}

impl ThreadScope {
    pub(super) const fn new(instance: u64, context: ContextId, kind: ScopeKind) -> Self {
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
            #[cfg(all(feature = "nvtx", unix))]
            is_range: false,
        }
    }

    pub(super) const fn carrying(self, measure: measure::Id) -> Self {
        Self { carried: measure, ..self }
    }

    /// Begins a range of NVTX, if there is a tool. Ranges that came from NVTX are opened as memtrace's own work, so
    /// they are never sent back.
    #[cfg(all(feature = "nvtx", unix))]
    fn begin_range(&mut self) {
        let is_own = guard::state() & guard::OWN != 0;
        self.is_range = !is_own && self.kind != ScopeKind::Measure && super::nvtx::begin(self.context);
    }
}

/// The open scopes of one thread, outermost first.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScopeStack {
    scopes: [ThreadScope; MAX_OPEN],
    length: usize,
}

impl ScopeStack {
    const fn new() -> Self {
        Self { scopes: [ThreadScope::new(0, ContextId::ROOT, ScopeKind::Named); MAX_OPEN], length: 0 }
    }

    /// False if the stack is full.
    pub(super) fn push(&mut self, scope: ThreadScope) -> bool {
        let Some(slot) = self.scopes.get_mut(self.length) else { return false };
        let outer = guard::measure();
        let active = measure::active_for(outer, scope.carried);
        *slot = ThreadScope { measure: active, ..scope };
        #[cfg(all(feature = "nvtx", unix))]
        slot.begin_range();
        self.length += 1;
        guard::set_context(scope.context);
        if active != outer {
            guard::set_measure(active);
        }
        true
    }

    /// Removes the innermost matching scope. The scopes inside it stay open, inside the scope around it.
    pub(super) fn remove(&mut self, matches: impl Fn(&ThreadScope) -> bool) -> Option<ThreadScope> {
        let open = self.scopes.get_mut(..self.length)?;
        let at = open.iter().rposition(matches)?;
        let closed = *open.get(at)?;
        let inside = open.get_mut(at..)?;
        inside.rotate_left(1);
        #[cfg(all(feature = "nvtx", unix))]
        end_range(&closed, inside.split_last_mut().map_or(&mut [], |(_, inside)| inside));
        self.length -= 1;
        self.repath(at);
        Some(closed)
    }

    /// Notes that an entry of the span could not be opened, so that its exit does not close an earlier entry.
    #[cfg(feature = "tracing")]
    pub(super) fn enter_again(&mut self, span: SpanKey) {
        if let Some(scope) = self.of_span(span) {
            scope.again = scope.again.saturating_add(1);
        }
    }

    /// Removes the innermost scope of a span, unless the exit belongs to an entry that was not opened.
    #[cfg(feature = "tracing")]
    pub(super) fn exit_span(&mut self, span: SpanKey) -> Option<ThreadScope> {
        let scope = self.of_span(span)?;
        if scope.again > 0 {
            scope.again -= 1;
            return None;
        }
        self.remove(|scope| scope.span == Some(span))
    }

    #[cfg(feature = "tracing")]
    pub(super) fn of_span(&mut self, span: SpanKey) -> Option<&mut ThreadScope> {
        self.scopes.get_mut(..self.length)?.iter_mut().rfind(|scope| scope.span == Some(span))
    }

    /// Recomputes the contexts and measurements of the scopes from this index on, and of the thread.
    fn repath(&mut self, from: usize) {
        let enclosing = from.checked_sub(1).and_then(|i| self.scopes.get(i));
        let (mut parent, mut measure) =
            enclosing.map_or((ContextId::ROOT, guard::inherited()), |scope| (scope.context, scope.measure));
        for scope in self.scopes.iter_mut().take(self.length).skip(from) {
            match scope.kind {
                ScopeKind::Named => scope.context = CONTEXTS.intern_like(parent, scope.context),
                ScopeKind::Measure => scope.context = parent,
                _ => {}
            }
            scope.measure = measure::active_for(measure, scope.carried);
            parent = scope.context;
            measure = scope.measure;
        }
        guard::set_context(parent);
        if measure != guard::measure() {
            guard::set_measure(measure);
        }
    }
}

/// Ends the range of a closed scope. NVTX can end only a thread's newest range, so the ranges inside it end first,
/// and begin again afterwards.
#[cfg(all(feature = "nvtx", unix))]
fn end_range(closed: &ThreadScope, inside: &mut [ThreadScope]) {
    if closed.is_range {
        inside.iter().filter(|scope| scope.is_range).for_each(|_| super::nvtx::end());
        super::nvtx::end();
        inside.iter_mut().filter(|scope| scope.is_range).for_each(ThreadScope::begin_range);
    }
}
