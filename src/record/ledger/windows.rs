//! Per-scope statistics: the memory allocated in each scope, and the device's high-water mark while the scope was open.

use memtrace_core::snapshot::{ContextId, Sampling, ScopeStats};

use super::super::CONTEXTS;
use super::super::memory::{OwnVec, System, try_push};
use super::weight_sum::WeightSum;

/// The statistics of one device's scopes. An event costs one comparison, and one addition per enclosing scope. The open
/// scopes' maxima are updated only when a scope is entered or left.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Windows {
    /// Largest total since a scope was last entered or left.
    largest: i64,
    cells: OwnVec<ContextTotals>,
    open: OwnVec<OpenScope>,
    /// Scopes and contexts that are not tracked, for lack of memory.
    pub(crate) lost: u64,
}

#[derive(Clone, Copy, Debug)]
struct OpenScope {
    /// Unique for each entry of a scope, so that scopes may be left in any order, on any thread.
    instance: u64,
    context: ContextId,
    largest: i64,
}

#[derive(Clone, Copy, Debug, Default)]
struct ContextTotals {
    parent: ContextId,
    calls: u64,
    /// A fixed-point number, like [`WeightSum::parts`].
    allocations: u64,
    allocated_bytes: u64,
    now: u64,
    own_peak: u64,
    total_peak: Option<i64>,
}

/// Bytes in blocks that were allocated in this context, or in one inside it.
#[cfg(feature = "metrics")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScopeBytes {
    pub(crate) context: ContextId,
    pub(crate) live: u64,
    pub(crate) peak: u64,
}

impl Windows {
    pub(crate) const fn new() -> Self {
        Self { open: OwnVec::new_in(System), largest: 0, cells: OwnVec::new_in(System), lost: 0 }
    }

    pub(crate) fn enter(&mut self, instance: u64, context: ContextId, total: i64) {
        self.settle(total);
        if !try_push(&mut self.open, OpenScope { instance, context, largest: total }) {
            self.lost += 1;
        }
        if let Some(cell) = self.cell(context) {
            cell.calls += 1;
        }
    }

    /// Resets the statistics; live bytes and open scopes stay.
    pub(crate) fn restart(&mut self, total: i64) {
        self.largest = total;
        self.open.iter_mut().for_each(|scope| scope.largest = total);
        for cell in &mut self.cells {
            *cell =
                ContextTotals { parent: cell.parent, now: cell.now, own_peak: cell.now, ..ContextTotals::default() };
        }
    }

    /// The same scopes for another device, on which nothing is live yet.
    pub(crate) fn for_other_device(&self) -> Self {
        let mut new = Self { lost: self.lost, ..Self::new() };
        for scope in &self.open {
            new.lost += u64::from(!try_push(&mut new.open, OpenScope { largest: 0, ..*scope }));
        }
        for ContextTotals { parent, calls, total_peak, .. } in self.cells.iter().copied() {
            let cell = ContextTotals { parent, calls, total_peak: total_peak.map(|_| 0), ..ContextTotals::default() };
            new.lost += u64::from(!try_push(&mut new.cells, cell));
        }
        new
    }

    /// Leaves a scope. False for a scope that was entered before the recording, which is ignored.
    pub(crate) fn exit(&mut self, instance: u64, total: i64) -> bool {
        self.settle(total);
        let Some(at) = self.open.iter().rposition(|scope| scope.instance == instance) else { return false };
        let scope = self.open.remove(at);
        if let Some(cell) = self.cell(scope.context) {
            cell.total_peak = cell.total_peak.max(Some(scope.largest));
        }
        true
    }

    #[inline]
    pub(crate) fn on_alloc(&mut self, context: ContextId, block: WeightSum, total: i64) {
        self.largest = self.largest.max(total);
        self.each_enclosing(context, |cell| {
            cell.allocations += block.parts;
            cell.allocated_bytes += block.bytes;
            cell.now += block.bytes;
            cell.own_peak = cell.own_peak.max(cell.now);
        });
    }

    /// Undoes [`on_free`](Self::on_free).
    pub(crate) fn take_back(&mut self, context: ContextId, bytes: u64) {
        self.each_enclosing(context, |cell| {
            cell.now += bytes;
            cell.own_peak = cell.own_peak.max(cell.now);
        });
    }

    /// Notes a total that was reached since a scope was last entered or left.
    pub(crate) fn note_total(&mut self, total: i64) {
        self.largest = self.largest.max(total);
    }

    #[inline]
    pub(crate) fn on_free(&mut self, context: ContextId, bytes: u64) {
        self.each_enclosing(context, |cell| cell.now = cell.now.saturating_sub(bytes));
    }

    /// Statistics of every context that was used. `base` is the bytes that were live before the recording.
    pub(crate) fn stats(&self, base: u64) -> Vec<ScopeStats> {
        let with_total = |(index, cell): (usize, &ContextTotals)| {
            let context = ContextId(index as u32 + 1);
            let total = cell.total_peak.max(self.still_open(context));
            ScopeStats {
                context,
                calls: cell.calls,
                allocations: Sampling::whole(cell.allocations),
                allocated_bytes: cell.allocated_bytes,
                own_peak: cell.own_peak,
                total_peak: total.map(|t| base.saturating_add_signed(t)),
            }
        };
        let used = |stats: &ScopeStats| stats.calls > 0 || stats.allocations > 0;
        self.cells.iter().enumerate().map(with_total).filter(used).collect()
    }

    /// Live bytes of every context in which something was allocated, and their high-water mark.
    #[cfg(feature = "metrics")]
    pub(crate) fn bytes(&self) -> impl Iterator<Item = ScopeBytes> {
        let used = self.cells.iter().enumerate().filter(|(_, cell)| cell.own_peak > 0);
        used.map(|(index, cell)| ScopeBytes {
            context: ContextId(index as u32 + 1),
            live: cell.now,
            peak: cell.own_peak,
        })
    }

    /// The largest total since the scope with this instance number was entered. `None` if that was before the
    /// recording.
    #[cfg(feature = "tracing")]
    pub(crate) fn largest_since(&self, instance: u64) -> Option<i64> {
        let open = self.open.iter().rfind(|scope| scope.instance == instance)?;
        Some(open.largest.max(self.largest))
    }

    fn still_open(&self, context: ContextId) -> Option<i64> {
        let open = self.open.iter().filter(|scope| scope.context == context);
        open.map(|scope| scope.largest.max(self.largest)).max()
    }

    fn settle(&mut self, total: i64) {
        let largest = self.largest;
        self.open.iter_mut().for_each(|scope| scope.largest = scope.largest.max(largest));
        self.largest = total;
    }

    #[inline]
    fn each_enclosing(&mut self, context: ContextId, mut change: impl FnMut(&mut ContextTotals)) {
        let mut at = context;
        while at != ContextId::ROOT {
            let Some(cell) = self.cell(at) else { return };
            change(cell);
            at = cell.parent;
        }
    }

    fn cell(&mut self, context: ContextId) -> Option<&mut ContextTotals> {
        let index = (context.0 as usize).checked_sub(1)?;
        if index >= self.cells.len() {
            self.grow();
        }
        self.cells.get_mut(index)
    }

    #[cold]
    fn grow(&mut self) {
        let known = ContextId(self.cells.len() as u32 + 1);
        CONTEXTS.parents_from(known, |parent| {
            if !try_push(&mut self.cells, ContextTotals { parent, ..ContextTotals::default() }) {
                self.lost += 1;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::scarce::with_memory_for;

    fn scopes() -> [ContextId; 2] {
        let outer = CONTEXTS.intern(ContextId::ROOT, "outer", false);
        [outer, CONTEXTS.intern(outer, "inner", false)]
    }

    fn own_peaks(windows: &Windows) -> [u64; 2] {
        let stats = windows.stats(0);
        scopes().map(|scope| stats.iter().find(|stats| stats.context == scope).map_or(0, |stats| stats.own_peak))
    }

    #[test]
    fn a_restart_keeps_live_bytes_and_parents() {
        let [_, inner] = scopes();
        let mut windows = Windows::new();
        windows.on_alloc(inner, WeightSum::one(100), 100);
        windows.on_free(inner, 40);
        windows.restart(60);
        windows.on_alloc(inner, WeightSum::one(1), 61);
        assert_eq!(own_peaks(&windows), [61, 61]);
        windows.restart(61);
        windows.on_free(inner, 61);
        windows.on_alloc(inner, WeightSum::one(5), 5);
        assert_eq!(own_peaks(&windows), [61, 61]);
    }

    #[test]
    fn what_is_taken_back_is_live_again() {
        let [_, inner] = scopes();
        let mut windows = Windows::new();
        windows.on_alloc(inner, WeightSum::one(10), 10);
        windows.on_free(inner, 10);
        windows.take_back(inner, 10);
        windows.on_alloc(inner, WeightSum::one(5), 15);
        assert_eq!(own_peaks(&windows), [15, 15]);
    }

    #[test]
    fn scopes_without_room_are_counted() {
        let [outer, _] = scopes();
        let mut windows = Windows::new();
        with_memory_for(0, || (1..=2).for_each(|instance| windows.enter(instance, ContextId::ROOT, 0)));
        assert_eq!((windows.lost, windows.exit(1, 0)), (2, false));
        with_memory_for(0, || windows.on_alloc(outer, WeightSum::one(1), 1));
        assert!(windows.lost > 2 && windows.stats(0).is_empty());
    }

    #[test]
    fn another_devices_scopes_are_the_same_or_counted_as_lost() {
        let [outer, inner] = scopes();
        let mut windows = Windows { lost: 5, ..Windows::new() };
        windows.enter(1, outer, 3);
        windows.enter(2, inner, 3);
        let mut other = windows.for_other_device();
        assert_eq!((other.lost, other.stats(0).len()), (5, 2));
        assert!(other.exit(2, 0) && other.exit(1, 0));
        let without = with_memory_for(0, || windows.for_other_device());
        assert_eq!(without.lost, 5 + 2 + windows.cells.len() as u64);
    }

    #[test]
    fn a_noted_total_counts_for_open_scopes_and_bytes_add_up() {
        let [outer, _] = scopes();
        let mut windows = Windows::new();
        windows.enter(1, outer, 0);
        windows.on_alloc(outer, WeightSum::one(10), 10);
        windows.on_alloc(outer, WeightSum::one(5), 15);
        windows.note_total(50);
        assert!(windows.exit(1, 15));
        let stats = windows.stats(100).into_iter().find(|stats| stats.context == outer).unwrap();
        assert_eq!((stats.total_peak, stats.allocated_bytes, stats.allocations), (Some(150), 15, 2));
    }

    #[test]
    #[cfg(feature = "metrics")]
    fn only_scopes_that_held_memory_have_bytes() {
        let [outer, inner] = scopes();
        let mut windows = Windows::new();
        windows.enter(1, inner, 0);
        assert_eq!(windows.bytes().count(), 0);
        windows.on_alloc(outer, WeightSum::one(7), 7);
        assert_eq!(windows.bytes().map(|bytes| (bytes.context, bytes.live)).collect::<Vec<_>>(), [(outer, 7)]);
    }
}
