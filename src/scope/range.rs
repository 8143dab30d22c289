//! Ranges of NVTX, NVIDIA's tools extension, as scopes of the calling thread.
//!
//! NVTX groups ranges into *domains*, which are numbers here. On each thread, each domain has a stack of ranges. A
//! range's *level* is the number of ranges of its domain that are open outside it. Ranges are counted however deep they
//! nest. A range has a level but no scope if it has no label, or if too many scopes are open.

use std::cell::RefCell;

use memtrace_core::snapshot::ContextId;

use super::open::MAX_OPEN;
use super::{ScopeGuard, ScopeKind, below};
use crate::errno::KeepErrno;
use crate::record::memory::{OwnVec, System, try_push};
use crate::record::{CONTEXTS, guard, own};

/// The most domains with open ranges on one thread. Ranges of further domains are not counted and do not become scopes.
const MAX_DOMAINS: usize = 32;

/// Returned in place of a level if the range does not exist or is not counted.
const NO_RANGE: i32 = -1;

thread_local! {
    /// The destructor closes the ranges that are still open when the thread ends.
    static RANGES: RefCell<OpenRanges> = const { RefCell::new(OpenRanges::new()) };
}

/// The name of a range's scope.
#[derive(Clone, Copy, Debug)]
pub enum Label<'a> {
    /// A text. If it is empty, the range has no label.
    Text(&'a str),
    /// A number that [`register`] returned; any other number is no label.
    Registered(usize),
}

impl Label<'_> {
    /// The context of a range with this label inside `parent`. If there is no label, it is `parent` itself.
    fn below(self, parent: ContextId) -> ContextId {
        match self {
            Self::Text("") => parent,
            Self::Text(text) => below(parent, text, false),
            Self::Registered(number) => CONTEXTS.intern_like(parent, registered(number)),
        }
    }
}

/// Begins a range on this thread and returns its level, or a negative number if the range is not counted.
pub fn push(domain: usize, label: Label<'_>) -> i32 {
    on_this_thread(|ranges| ranges.push(domain, label))
}

/// Ends the domain's innermost range on this thread and returns its level, or a negative number if there is no range.
pub fn pop(domain: usize) -> i32 {
    on_this_thread(|ranges| ranges.pop(domain))
}

/// Ends all of the domain's ranges on this thread.
pub fn pop_all(domain: usize) {
    on_this_thread(|ranges| {
        ranges.pop_all(domain);
        None
    });
}

/// A number for a label, never 0. Equal labels have equal numbers. The number is valid as long as the process lives.
pub fn register(text: &str) -> usize {
    let _errno = KeepErrno::new();
    // The number is made from the context that consists of this label only. This context stays in the table of
    // contexts.
    own(|| Label::Text(text).below(ContextId::ROOT).0 as usize + 1)
}

fn registered(number: usize) -> ContextId {
    u32::try_from(number.wrapping_sub(1)).map_or(ContextId::ROOT, ContextId)
}

fn on_this_thread(change: impl FnOnce(&mut OpenRanges) -> Option<u32>) -> i32 {
    // This may be a signal handler that interrupted memtrace's own work. It must not wait for a lock of that work.
    if guard::state() & guard::OWN != 0 {
        return NO_RANGE;
    }
    let _errno = KeepErrno::new();
    // In the last destructors of a thread, `RANGES` no longer exists.
    let level = RANGES.try_with(|ranges| {
        let mut ranges = ranges.try_borrow_mut().ok()?;
        own(|| change(&mut ranges))
    });
    level.ok().flatten().and_then(|level| i32::try_from(level).ok()).unwrap_or(NO_RANGE)
}

/// The open ranges of one thread.
#[derive(Debug)]
struct OpenRanges {
    /// At most [`MAX_DOMAINS`] entries.
    domains: OwnVec<Depth>,
    /// The ranges that are scopes, in the order in which they began: at most [`MAX_OPEN`].
    scopes: OwnVec<RangeScope>,
}

/// The number of open ranges of a domain. If it is 0, another domain may take the entry.
#[derive(Clone, Copy, Debug)]
struct Depth {
    domain: usize,
    ranges: u32,
}

#[derive(Debug)]
struct RangeScope {
    domain: usize,
    level: u32,
    guard: ScopeGuard,
}

impl OpenRanges {
    const fn new() -> Self {
        Self { domains: OwnVec::new_in(System), scopes: OwnVec::new_in(System) }
    }

    fn push(&mut self, domain: usize, label: Label<'_>) -> Option<u32> {
        let depth = self.depth(domain)?;
        let level = depth.ranges;
        depth.ranges = level.checked_add(1)?;
        self.open(domain, level, label);
        Some(level)
    }

    fn pop(&mut self, domain: usize) -> Option<u32> {
        let depth = self.depth(domain)?;
        let level = depth.ranges.checked_sub(1)?;
        depth.ranges = level;
        drop(self.close(|scope| scope.domain == domain && scope.level == level));
        Some(level)
    }

    fn pop_all(&mut self, domain: usize) {
        if let Some(depth) = self.depth(domain) {
            depth.ranges = 0;
            while self.close(|scope| scope.domain == domain).is_some() {}
        }
    }

    /// The domain's entry. A domain without an entry gets a free one or a new one; `None` if there is no room for a new
    /// one.
    fn depth(&mut self, domain: usize) -> Option<&mut Depth> {
        let known = self.domains.iter().position(|depth| depth.ranges > 0 && depth.domain == domain);
        let free = || self.domains.iter().position(|depth| depth.ranges == 0);
        let at = known.or_else(free).unwrap_or(self.domains.len());
        if at == self.domains.len() && (at == MAX_DOMAINS || !try_push(&mut self.domains, Depth { domain, ranges: 0 }))
        {
            return None;
        }
        let depth = self.domains.get_mut(at)?;
        depth.domain = domain;
        Some(depth)
    }

    fn open(&mut self, domain: usize, level: u32, label: Label<'_>) {
        let parent = guard::context();
        let context = if self.scopes.len() < MAX_OPEN { label.below(parent) } else { parent };
        if context == parent {
            return;
        }
        let guard = ScopeGuard::open(context, ScopeKind::Named, 0);
        if guard.is_open() {
            try_push(&mut self.scopes, RangeScope { domain, level, guard });
        }
    }

    /// Removes the innermost matching scope. Its guard is returned, and closes the scope when it is dropped. `None` if
    /// no scope matches.
    fn close(&mut self, is_meant: impl Fn(&RangeScope) -> bool) -> Option<ScopeGuard> {
        let at = self.scopes.iter().rposition(is_meant)?;
        Some(self.scopes.remove(at).guard)
    }
}

impl Drop for OpenRanges {
    fn drop(&mut self) {
        let _errno = KeepErrno::new();
        own(|| while self.close(|_| true).is_some() {});
    }
}

#[cfg(test)]
mod tests {
    use super::super::{scope, scope_guard, tests::path};
    use super::*;

    const TEXT: Label<'_> = Label::Text("range");

    #[test]
    fn levels_are_counted_by_domain_and_pops_without_ranges_are_refused() {
        assert_eq!((pop(1), push(1, Label::Text("a")), push(2, Label::Text("b"))), (NO_RANGE, 0, 0));
        assert_eq!((push(1, Label::Text("c")), path()), (1, "a>b>c".to_owned()));
        assert_eq!((pop(2), pop(2), path()), (0, NO_RANGE, "a>c".to_owned()));
        assert_eq!((pop(1), pop(1), pop(1), path()), (1, 0, NO_RANGE, String::new()));
    }

    #[test]
    fn registered_labels_are_found_and_unknown_ones_are_none() {
        let (a, b) = (register("registered"), register("other"));
        assert_eq!((register("registered") == a, a == b, register("") > 0), (true, false, true));
        assert_eq!((push(0, Label::Registered(b)), path()), (0, "other".to_owned()));
        assert_eq!((push(0, Label::Registered(a)), path()), (1, "other>registered".to_owned()));
        for (level, none) in [0, register(""), usize::MAX, usize::MAX - 1, u32::MAX as usize].into_iter().enumerate() {
            assert_eq!(push(0, Label::Registered(none)), level as i32 + 2);
        }
        assert_eq!((push(0, Label::Text("")), path()), (7, "other>registered".to_owned()));
        pop_all(0);
        assert_eq!((pop(0), path()), (NO_RANGE, String::new()));
    }

    #[test]
    fn ranges_and_scopes_may_end_in_any_order() {
        let outer = scope_guard("outer");
        push(0, Label::Text("a"));
        let inner = scope_guard("inner");
        push(0, Label::Text("b"));
        drop(outer);
        assert_eq!(path(), "a>inner>b");
        assert_eq!((pop(0), path()), (1, "a>inner".to_owned()));
        assert_eq!((pop(0), path()), (0, "inner".to_owned()));
        assert_eq!((pop(0), path()), (NO_RANGE, "inner".to_owned()));
        drop(inner);
        assert_eq!(path(), "");
    }

    #[test]
    fn deep_ranges_are_counted_and_those_within_the_bound_are_scopes() {
        let depth = || path().split('>').filter(|name| !name.is_empty()).count();
        let _outer = scope_guard("outer");
        assert!((0..10_000).all(|level| push(0, TEXT) == level));
        assert_eq!(depth(), MAX_OPEN);
        assert!((0..10_000).rev().all(|level| pop(0) == level && depth() == MAX_OPEN.min(level as usize + 1)));
        assert_eq!(pop(0), NO_RANGE);
        scope("scope", || assert_eq!(path(), "outer>scope"));
    }

    #[test]
    fn a_range_for_which_no_scope_was_left_closes_no_other_one() {
        let mut guards: Vec<_> = (0..MAX_OPEN).map(|_| scope_guard("full")).collect();
        assert_eq!(push(0, Label::Text("refused")), 0);
        guards.truncate(1);
        assert_eq!((push(0, Label::Text("open")), path()), (1, "full>open".to_owned()));
        assert_eq!((pop(0), path()), (1, "full".to_owned()));
        assert_eq!((pop(0), path()), (0, "full".to_owned()));
    }

    #[test]
    fn more_domains_than_are_counted_have_no_ranges() {
        let most = MAX_DOMAINS as i32;
        assert!((0..most + 5).all(|domain| push(domain as usize, TEXT) == if domain < most { 0 } else { NO_RANGE }));
        assert_eq!((pop(MAX_DOMAINS), pop(3), push(MAX_DOMAINS, TEXT)), (NO_RANGE, 0, 0));
        (0..=MAX_DOMAINS).for_each(pop_all);
        assert_eq!(path(), "");
    }

    #[test]
    fn ranges_within_memtraces_own_work_are_none() {
        let _outer = push(0, TEXT);
        assert_eq!(own(|| (push(0, TEXT).unsigned_abs(), pop(0).unsigned_abs())), (1, 1));
        assert_eq!((path(), pop(0)), ("range".to_owned(), 0));
    }

    #[test]
    fn the_end_of_a_thread_closes_its_ranges() {
        thread_local!(static LATE: Late = const { Late });
        struct Late;
        impl Drop for Late {
            fn drop(&mut self) {
                // The two destructors run in either order.
                assert!([NO_RANGE, 1].contains(&push(0, TEXT)));
            }
        }
        let open = std::thread::spawn(|| {
            LATE.with(|_| push(0, TEXT));
            guard::context()
        });
        assert_ne!(open.join().unwrap(), ContextId::ROOT);
    }
}
