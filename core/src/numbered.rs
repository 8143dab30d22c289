//! Keys numbered in the order of their first use.

use std::borrow::Borrow;
use std::hash::Hash;

use crate::hashed::HashMap;

/// A map that numbers its keys from 0, in the order of first use.
#[derive(Debug)]
pub(crate) struct Numbered<K, V = ()> {
    numbers: HashMap<K, usize>,
    rows: Vec<(K, V)>,
}

impl<K, V> Default for Numbered<K, V> {
    fn default() -> Self {
        Self { numbers: HashMap::default(), rows: Vec::new() }
    }
}

impl<K: Clone + Eq + Hash, V: Default> Numbered<K, V> {
    /// The key's number. Adds the key if it is new.
    pub(crate) fn number(&mut self, key: K) -> usize {
        let (next, rows) = (self.rows.len(), &mut self.rows);
        *self.numbers.entry(key).or_insert_with_key(|key| {
            rows.push((key.clone(), V::default()));
            next
        })
    }

    /// The key's number, or `None` if the key is not in the map.
    pub(crate) fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<usize>
    where
        K: Borrow<Q>,
    {
        self.numbers.get(key).copied()
    }

    /// Changes the key's value. Adds the key if it is new.
    pub(crate) fn update(&mut self, key: K, change: impl FnOnce(&mut V)) {
        let number = self.number(key);
        self.update_row(number, change);
    }

    /// Changes the value of the key with this number.
    pub(crate) fn update_row(&mut self, number: usize, change: impl FnOnce(&mut V)) {
        if let Some((_, value)) = self.rows.get_mut(number) {
            change(value);
        }
    }

    /// Keys and values by number.
    pub(crate) fn rows(&self) -> &[(K, V)] {
        &self.rows
    }

    /// The keys by number.
    pub(crate) fn keys(&self) -> impl ExactSizeIterator<Item = &K> {
        self.rows.iter().map(|(key, _)| key)
    }
}
