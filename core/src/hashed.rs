//! Hash maps with foldhash, which is fast: a log has millions of blocks. Each map has a random seed, so a file cannot
//! contain keys that are known to collide.

use std::hash::Hash;
use std::ops::AddAssign;

pub(crate) type HashMap<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;
pub(crate) type HashSet<T> = std::collections::HashSet<T, foldhash::fast::RandomState>;

/// The sum of each key's values.
pub(crate) fn summed<K: Eq + Hash, V: AddAssign + Default>(values: impl IntoIterator<Item = (K, V)>) -> HashMap<K, V> {
    let mut sums: HashMap<K, V> = HashMap::default();
    values.into_iter().for_each(|(key, value)| *sums.entry(key).or_default() += value);
    sums
}

/// Each key's values, in their order.
pub(crate) fn by_key<K: Eq + Hash, V>(values: impl IntoIterator<Item = (K, V)>) -> HashMap<K, Vec<V>> {
    let mut found: HashMap<K, Vec<V>> = HashMap::default();
    values.into_iter().for_each(|(key, value)| found.entry(key).or_default().push(value));
    found
}
