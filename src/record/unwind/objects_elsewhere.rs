//! Substitute for `objects` where the loader does not count unloads. Every address counts as one of the objects that
//! are loaded now.

use memtrace_core::snapshot::LoadedObject;

pub(super) fn query_counts() {}

#[inline]
pub(crate) fn mark(_addresses: &[u64]) -> u64 {
    0
}

pub(crate) use self::CurrentObjectMap as ObjectMap;

#[derive(Debug, Default)]
pub(crate) struct CurrentObjectMap;

impl CurrentObjectMap {
    pub(crate) fn now() -> Self {
        Self
    }

    pub(crate) fn address(&self, address: u64, _mark: u64) -> u64 {
        address
    }

    pub(crate) fn all(&self, loaded: impl FnOnce() -> Vec<LoadedObject>) -> (Vec<LoadedObject>, usize) {
        let loaded = loaded();
        let count = loaded.len();
        (loaded, count)
    }
}
