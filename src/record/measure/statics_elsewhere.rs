//! Substitute for `statics` on other systems: nothing is known.

use std::collections::HashSet;
use std::ops::Range;

pub(crate) fn held_by_statics(_blocks: Vec<Range<u64>>) -> HashSet<u64> {
    HashSet::new()
}
