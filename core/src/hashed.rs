//! Hash maps with foldhash: a log has millions of blocks, and their numbers are no keys that an attacker would gain by.
//! The hash is seeded for each map.

pub(crate) type HashMap<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;
pub(crate) type HashSet<T> = std::collections::HashSet<T, foldhash::fast::RandomState>;
