//! The oracle: a naive account of a program's blocks.

use std::collections::BTreeMap;

/// Address, size and scopes of a block.
pub(crate) type Known = (u64, u64, String);

/// A program's live blocks in the order of allocation.
#[derive(Default)]
pub(crate) struct Oracle {
    pub(crate) live: Vec<Known>,
    pub(crate) old_freed: u64,
    /// The first maximum: bytes above the start, live set, and old bytes freed by then.
    pub(crate) peak: (i64, Vec<Known>, u64),
    pub(crate) allocs: Vec<u64>,
    pub(crate) frees: Vec<u64>,
    pub(crate) most_blocks: usize,
    /// The state before the first record and after each record.
    pub(crate) states: Vec<Vec<(u64, u64)>>,
    /// Peak bytes by scope path, including inner scopes.
    pub(crate) own_peaks: BTreeMap<String, u64>,
}

impl Oracle {
    pub(crate) fn new() -> Self {
        Self { states: vec![Vec::new()], ..Self::default() }
    }

    pub(crate) fn alloc(&mut self, (address, size): (u64, u64), path: &[&str]) {
        self.live.push((address, size, path.join(" > ")));
        self.allocs.push(size);
        self.most_blocks = self.most_blocks.max(self.live.len());
        let held: u64 = self.live.iter().map(|known| known.1).sum();
        let total = held as i64 - self.old_freed as i64;
        if total > self.peak.0 {
            self.peak = (total, self.live.clone(), self.old_freed);
        }
        self.in_scopes(path);
        self.remember();
    }

    pub(crate) fn free(&mut self, address: u64) {
        let at = self.live.iter().position(|known| known.0 == address).unwrap();
        self.frees.push(self.live.remove(at).1);
        self.remember();
    }

    pub(crate) fn free_old(&mut self, size: u64) {
        self.old_freed += size;
        self.remember();
    }

    fn in_scopes(&mut self, path: &[&str]) {
        for depth in 1..=path.len() {
            let scope = path[..depth].join(" > ");
            let within = |known: &&Known| known.2 == scope || known.2.starts_with(&format!("{scope} > "));
            let held: u64 = self.live.iter().filter(within).map(|known| known.1).sum();
            let most = self.own_peaks.entry(scope).or_default();
            *most = held.max(*most);
        }
    }

    fn remember(&mut self) {
        self.states.push(self.live.iter().map(|known| (known.0, known.1)).collect());
    }
}
