//! What a stream with a budget keeps of older times: the time spans whose records it deleted.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::{ContextId, StackId};

/// A time span whose records a stream with a budget deleted. It does not include blocks below the threshold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OlderTime {
    /// Its beginning in nanoseconds since the recording began.
    pub from_ns: u64,
    /// Its end.
    pub to_ns: u64,
    /// How many records it had.
    pub records: u64,
    /// Some records are missing, so the true `highest` may be larger, and the true `least` of a stack smaller.
    pub lacks_records: bool,
    /// The most bytes that were live at once; in a sample, estimated by the weights of sizes.
    pub highest: u64,
    /// When `highest` was first reached.
    pub highest_ns: u64,
    /// The stacks that held most, the largest first.
    pub stacks: Vec<OlderRow<StackId>>,
    /// The scopes that held most. Empty if an older version of memtrace wrote the recording.
    pub scopes: Vec<OlderRow<ContextId>>,
}

/// Bytes of the live blocks of a stack or a scope during an [`OlderTime`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OlderRow<K> {
    /// The stack or the scope that allocated the blocks.
    pub of: K,
    /// The fewest bytes that the blocks held.
    pub least: u64,
    /// What the blocks held at [`OlderTime::highest_ns`].
    pub at_highest: u64,
}

impl OlderTime {
    /// Keeps at most `most` stacks and `most` scopes: those that held most.
    pub fn keep(&mut self, most: usize) {
        keep(&mut self.stacks, most);
        keep(&mut self.scopes, most);
    }

    /// Whether the scopes are known as well.
    pub fn has_scopes(&self) -> bool {
        !self.scopes.is_empty() || self.stacks.is_empty()
    }

    /// Merges this time span with the next one, and keeps at most `most` stacks and scopes.
    #[must_use]
    pub fn joined(&self, next: &Self, most: usize) -> Self {
        let highest = if next.highest > self.highest { next } else { self };
        let mut joined = Self {
            from_ns: self.from_ns,
            to_ns: next.to_ns,
            records: self.records.saturating_add(next.records),
            lacks_records: self.lacks_records || next.lacks_records,
            highest: highest.highest,
            highest_ns: highest.highest_ns,
            stacks: joined(&self.stacks, &next.stacks, &highest.stacks),
            scopes: Vec::new(),
        };
        if self.has_scopes() && next.has_scopes() {
            joined.scopes = self::joined(&self.scopes, &next.scopes, &highest.scopes);
        }
        joined.keep(most);
        joined
    }
}

fn keep<K: Copy + Ord>(rows: &mut Vec<OlderRow<K>>, most: usize) {
    rows.retain(|row| row.least.max(row.at_highest) > 0);
    rows.sort_by_key(|row| (Reverse(row.at_highest.max(row.least)), row.of));
    rows.truncate(most);
}

/// The rows of two neighbouring time spans as one. `least` is the smaller of a row's two values, or 0 if one span
/// lacks the row. `highest` has the rows of the span with the higher total: `at_highest` is from there.
fn joined<K: Copy + Ord>(first: &[OlderRow<K>], next: &[OlderRow<K>], highest: &[OlderRow<K>]) -> Vec<OlderRow<K>> {
    let least = |rows: &[OlderRow<K>]| rows.iter().map(|row| (row.of, row.least)).collect::<BTreeMap<_, _>>();
    let (before, after) = (least(first), least(next));
    let mut rows: BTreeMap<K, OlderRow<K>> = BTreeMap::new();
    for (of, bytes) in before {
        let least = after.get(&of).map_or(0, |later| bytes.min(*later));
        rows.insert(of, OlderRow { of, least, at_highest: 0 });
    }
    for row in highest {
        let new = OlderRow { of: row.of, least: 0, at_highest: 0 };
        rows.entry(row.of).or_insert(new).at_highest = row.at_highest;
    }
    rows.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(from_ns: u64, highest: u64, stacks: &[(u32, u64, u64)]) -> OlderTime {
        fn rows<K>(of: impl Fn(u32) -> K, rows: &[(u32, u64, u64)]) -> Vec<OlderRow<K>> {
            let row = |&(number, least, at_highest): &(u32, u64, u64)| OlderRow { of: of(number), least, at_highest };
            rows.iter().map(row).collect()
        }
        let (to_ns, highest_ns) = (from_ns + 10, from_ns + 5);
        let (stacks, scopes) = (rows(StackId, stacks), rows(ContextId, stacks));
        OlderTime { from_ns, to_ns, records: 3, lacks_records: false, highest, highest_ns, stacks, scopes }
    }

    #[test]
    fn two_times_as_one_have_the_higher_ones_stacks_and_the_lesser_floors() {
        let first = time(0, 100, &[(1, 5, 60), (2, 9, 40), (4, 1, 0)]);
        let second = time(10, 90, &[(1, 7, 7), (3, 80, 83), (4, 2, 0)]);
        let expected = time(0, 100, &[(1, 5, 60), (2, 0, 40), (4, 1, 0)]);
        assert_eq!(first.joined(&second, 9), OlderTime { to_ns: 20, records: 6, ..expected });
        let higher =
            time(10, 101, &second.stacks.iter().map(|row| (row.of.0, row.least, row.at_highest)).collect::<Vec<_>>());
        let expected = time(10, 101, &[(3, 0, 83), (1, 5, 7)]);
        assert_eq!(first.joined(&higher, 2), OlderTime { from_ns: 0, records: 6, ..expected });
        let torn = OlderTime { lacks_records: true, ..second.clone() };
        assert!(first.joined(&torn, 9).lacks_records && torn.joined(&first, 9).lacks_records);
        let unknown = OlderTime { scopes: Vec::new(), ..second };
        assert!(!first.joined(&unknown, 9).has_scopes() && !unknown.joined(&first, 9).has_scopes());
    }
}
