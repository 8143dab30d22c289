//! Where the loader does not say which modules were unloaded: addresses are taken to be of what is loaded now.

use crate::snapshot::LoadedObject;

pub(super) fn ask() {}

#[inline]
pub(crate) fn mark(_addresses: &[u64]) -> u64 {
    0
}

#[derive(Debug, Default)]
pub(crate) struct KnownModules;

impl KnownModules {
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
