//! What a stream with a budget keeps of times whose records it deleted.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::StackId;

/// A time whose records a stream with a budget deleted. Blocks below the threshold are not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OlderTime {
    /// Its begin in nanoseconds since the recording began.
    pub from_ns: u64,
    /// Its end.
    pub to_ns: u64,
    /// How many records it had.
    pub records: u64,
    /// Some records are missing: the highest may have been higher, and the least of a stack less.
    pub lacks_records: bool,
    /// The most bytes that were live at once; in a sample by the weight of sizes.
    pub highest: u64,
    /// When that was first so.
    pub highest_ns: u64,
    /// The stacks that held most, the largest first.
    pub stacks: Vec<OlderStack>,
}

/// What the blocks of a stack held in an [`OlderTime`], in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OlderStack {
    /// The stack that allocated them.
    pub stack: StackId,
    /// The least.
    pub least: u64,
    /// At the highest moment.
    pub at_highest: u64,
}

impl OlderTime {
    /// Keeps the stacks that held most, at most so many.
    pub fn keep(&mut self, most: usize) {
        self.stacks.retain(|row| row.least.max(row.at_highest) > 0);
        self.stacks.sort_by_key(|row| (Reverse(row.at_highest.max(row.least)), row.stack.0));
        self.stacks.truncate(most);
    }

    /// This time and the next one as one, with at most so many stacks.
    #[must_use]
    pub fn joined(&self, next: &Self, most: usize) -> Self {
        let highest = if next.highest > self.highest { next } else { self };
        let least = |time: &Self| time.stacks.iter().map(|row| (row.stack.0, row.least)).collect::<BTreeMap<_, _>>();
        let (before, after) = (least(self), least(next));
        let mut rows: BTreeMap<u32, OlderStack> = BTreeMap::new();
        for (stack, bytes) in &before {
            let least = after.get(stack).map_or(0, |later| *bytes.min(later));
            rows.insert(*stack, OlderStack { stack: StackId(*stack), least, at_highest: 0 });
        }
        for row in &highest.stacks {
            let new = OlderStack { stack: row.stack, least: 0, at_highest: 0 };
            rows.entry(row.stack.0).or_insert(new).at_highest = row.at_highest;
        }
        let mut joined = Self {
            from_ns: self.from_ns,
            to_ns: next.to_ns,
            records: self.records.saturating_add(next.records),
            lacks_records: self.lacks_records || next.lacks_records,
            highest: highest.highest,
            highest_ns: highest.highest_ns,
            stacks: rows.into_values().collect(),
        };
        joined.keep(most);
        joined
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(from_ns: u64, highest: u64, stacks: &[(u32, u64, u64)]) -> OlderTime {
        let row =
            |&(stack, least, at_highest): &(u32, u64, u64)| OlderStack { stack: StackId(stack), least, at_highest };
        let (to_ns, highest_ns) = (from_ns + 10, from_ns + 5);
        let stacks = stacks.iter().map(row).collect();
        OlderTime { from_ns, to_ns, records: 3, lacks_records: false, highest, highest_ns, stacks }
    }

    #[test]
    fn two_times_as_one_have_the_higher_ones_stacks_and_the_lesser_floors() {
        let first = time(0, 100, &[(1, 5, 60), (2, 9, 40), (4, 1, 0)]);
        let second = time(10, 90, &[(1, 7, 7), (3, 80, 83), (4, 2, 0)]);
        let expected = time(0, 100, &[(1, 5, 60), (2, 0, 40), (4, 1, 0)]);
        assert_eq!(first.joined(&second, 9), OlderTime { to_ns: 20, records: 6, ..expected });
        let higher = time(
            10,
            101,
            &second.stacks.iter().map(|row| (row.stack.0, row.least, row.at_highest)).collect::<Vec<_>>(),
        );
        let expected = time(10, 101, &[(3, 0, 83), (1, 5, 7)]);
        assert_eq!(first.joined(&higher, 2), OlderTime { from_ns: 0, records: 6, ..expected });
        let torn = OlderTime { lacks_records: true, ..second };
        assert!(first.joined(&torn, 9).lacks_records && torn.joined(&first, 9).lacks_records);
    }
}
