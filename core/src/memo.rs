//! Remembers a function's result for each key: many records share a stack.

use std::hash::Hash;

use crate::hashed::HashMap;

/// A function of a key, and what it has returned so far, by key.
pub(crate) struct Memo<'a, K, V> {
    make: Box<dyn Fn(K) -> V + 'a>,
    known: HashMap<K, V>,
}

impl<'a, K: Copy + Eq + Hash, V: Clone> Memo<'a, K, V> {
    pub(crate) fn of(make: impl Fn(K) -> V + 'a) -> Self {
        Self { make: Box::new(make), known: HashMap::default() }
    }

    pub(crate) fn get(&mut self, key: K) -> V {
        self.known.entry(key).or_insert_with(|| (self.make)(key)).clone()
    }
}
