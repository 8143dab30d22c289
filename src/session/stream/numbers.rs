//! Numbers in the order of first use.

use std::collections::HashMap;
use std::hash::Hash;

use foldhash::fast::RandomState;

/// From 0.
#[derive(Debug)]
pub(super) struct Numbers<K> {
    numbers: HashMap<K, u32, RandomState>,
    /// Those that do not stand in the file yet, in order.
    new: Vec<K>,
}

impl<K: Copy + Eq + Hash> Numbers<K> {
    pub(super) fn new() -> Self {
        Self { numbers: HashMap::default(), new: Vec::new() }
    }

    pub(super) fn of(&mut self, key: K) -> u32 {
        let next = self.numbers.len() as u32;
        *self.numbers.entry(key).or_insert_with(|| {
            self.new.push(key);
            next
        })
    }

    /// Those that came since the last time, in order.
    pub(super) fn take_new(&mut self) -> Vec<K> {
        std::mem::take(&mut self.new)
    }

    pub(super) fn count(&self) -> usize {
        self.numbers.len()
    }

    /// Forgets what came after the first `count`.
    pub(super) fn go_back(&mut self, count: usize) {
        self.numbers.retain(|_, number| (*number as usize) < count);
        self.new.clear();
    }
}
