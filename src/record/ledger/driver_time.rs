//! Time spent in the driver, by allocation site. The sums cover all calls, including those whose records the ring has
//! overwritten.

use memtrace_core::snapshot::{CallTime, ContextId, StackId};

use crate::record::memory::{OwnMap, own_map};

/// All durations are in ticks of the processor's time counter, although [`CallTime`]'s fields are named `_ns`.
#[derive(Debug)]
pub(crate) struct DriverTime {
    times: OwnMap<(StackId, ContextId), CallTime>,
    /// Sum of all calls from sites for which there was no memory.
    rest: CallTime,
}

impl DriverTime {
    pub(crate) fn new() -> Self {
        Self { times: own_map(), rest: CallTime::default() }
    }

    pub(crate) fn on_alloc(&mut self, stack: StackId, context: ContextId, took: u64, grew: bool) {
        let time = self.place(stack, context);
        time.allocs += 1;
        time.alloc_ns = time.alloc_ns.saturating_add(took);
        if grew {
            time.growing += 1;
            time.growing_ns = time.growing_ns.saturating_add(took);
        }
    }

    pub(crate) fn on_free(&mut self, stack: StackId, context: ContextId, took: u64) {
        let time = self.place(stack, context);
        time.frees += 1;
        time.free_ns = time.free_ns.saturating_add(took);
    }

    fn place(&mut self, stack: StackId, context: ContextId) -> &mut CallTime {
        if self.times.try_reserve(1).is_err() {
            return &mut self.rest;
        }
        self.times.entry((stack, context)).or_insert(CallTime { stack, context, ..CallTime::default() })
    }

    pub(crate) fn forget(&mut self) {
        self.times.clear();
        self.rest = CallTime::default();
    }

    /// The durations, converted by `ns` from ticks to nanoseconds, in the order of stack and context ids.
    pub(crate) fn copy(&self, ns: impl Fn(u64) -> u64) -> Vec<CallTime> {
        let rest = Some(self.rest).filter(|rest| rest.allocs + rest.frees > 0);
        let mut all: Vec<CallTime> = self.times.values().copied().chain(rest).collect();
        for time in &mut all {
            for field in [&mut time.alloc_ns, &mut time.free_ns, &mut time.growing_ns] {
                *field = ns(*field);
            }
        }
        all.sort_unstable_by_key(|time| (time.stack, time.context));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::scarce::with_memory_for;

    #[test]
    fn calls_of_sites_without_room_are_added_up() {
        let mut calls = DriverTime::new();
        with_memory_for(0, || {
            calls.on_alloc(StackId(1), ContextId(1), 10, false);
            let rest = CallTime { allocs: 1, alloc_ns: 10, ..CallTime::default() };
            assert_eq!(calls.copy(|ticks| ticks), [rest]);
            calls.on_free(StackId(2), ContextId(2), 5);
            assert_eq!(calls.copy(|ticks| ticks), [CallTime { frees: 1, free_ns: 5, ..rest }]);
        });
    }

    #[test]
    fn times_add_up_by_place() {
        let mut calls = DriverTime::new();
        let (here, there) = ((StackId(2), ContextId::ROOT), (StackId(1), ContextId(3)));
        calls.on_alloc(here.0, here.1, 10, false);
        calls.on_alloc(here.0, here.1, 30, true);
        calls.on_free(here.0, here.1, 5);
        calls.on_free(there.0, there.1, u64::MAX);
        calls.on_free(there.0, there.1, 1);
        let copy = calls.copy(|ticks| ticks / 5);
        let first = CallTime {
            stack: StackId(1),
            context: ContextId(3),
            frees: 2,
            free_ns: u64::MAX / 5,
            ..CallTime::default()
        };
        let second = CallTime {
            stack: StackId(2),
            allocs: 2,
            alloc_ns: 8,
            growing: 1,
            growing_ns: 6,
            frees: 1,
            free_ns: 1,
            ..CallTime::default()
        };
        assert_eq!(copy, [first, second]);
        calls.forget();
        assert_eq!(calls.copy(|ticks| ticks), []);
    }
}
