//! Hash maps with foldhash, which is fast: a log has millions of blocks. The keys are numbers of blocks, which give an
//! attacker nothing to gain. Each map has a seed of its own.

pub(crate) type HashMap<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;
pub(crate) type HashSet<T> = std::collections::HashSet<T, foldhash::fast::RandomState>;
