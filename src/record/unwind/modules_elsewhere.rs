//! Where the loader does not say which modules were unloaded: addresses are taken to be of what is loaded now.

use crate::snapshot::Module;

pub(super) fn unloads() -> u64 {
    0
}

#[derive(Debug, Default)]
pub(crate) struct KnownModules;

impl KnownModules {
    pub(crate) fn now() -> Self {
        Self
    }

    pub(crate) fn address(&self, address: u64, _unloads: u64) -> u64 {
        address
    }

    pub(crate) fn with(&self, loaded: Vec<Module>) -> (Vec<Module>, usize) {
        let still = loaded.len();
        (loaded, still)
    }
}
