//! Names of several ranks, and of their programs, in a sentence.

use std::ops::RangeInclusive;

use crate::analysis::{RankSummary, Ranks};

/// The most names in a sentence.
const MOST_NAMES: usize = 8;

/// `rank 3`, `ranks 0 to 4, 7`, `ranks 0, 1, dump.pickle`. After eight ranges or files, it says how many more there
/// are.
pub fn rank_names(some: &[&RankSummary]) -> String {
    let mut numbers: Vec<u32> = some.iter().filter_map(|rank| rank.process.rank).collect();
    numbers.sort_unstable();
    let files = some.iter().filter(|rank| rank.process.rank.is_none()).map(|rank| rank.file.clone());
    let words: Vec<String> = ranges(&numbers).iter().map(range).chain(files).collect();
    let (noun, kind) = match numbers.len() {
        0 => ("", "files"),
        1 => ("rank ", "files"),
        all if all == some.len() => ("ranks ", "ranges"),
        _ => ("ranks ", "ranges and files"),
    };
    format!("{noun}{}", folded(words, kind))
}

/// `train and eval`
pub(super) fn programs(ranks: &Ranks) -> String {
    let mut programs: Vec<&str> = ranks.all().map(|rank| &*rank.process.program).collect();
    programs.sort_unstable();
    programs.dedup();
    programs.join(" and ")
}

/// `2, 5 to 7`
pub(super) fn listed(ranges: &[RangeInclusive<u32>]) -> String {
    folded(ranges.iter().map(range).collect(), "ranges")
}

fn ranges(sorted: &[u32]) -> Vec<RangeInclusive<u32>> {
    let mut found: Vec<RangeInclusive<u32>> = Vec::new();
    for number in sorted {
        match found.last_mut() {
            Some(last) if last.end().checked_add(1) == Some(*number) => *last = *last.start()..=*number,
            _ => found.push(*number..=*number),
        }
    }
    found
}

fn range(range: &RangeInclusive<u32>) -> String {
    match (range.start(), range.end()) {
        (start, end) if start == end => start.to_string(),
        (start, end) if start.checked_add(1) == Some(*end) => format!("{start}, {end}"),
        (start, end) => format!("{start} to {end}"),
    }
}

fn folded(mut words: Vec<String>, kind: &str) -> String {
    let rest = words.split_off(MOST_NAMES.min(words.len()));
    if !rest.is_empty() {
        words.push(format!("{} more {kind}", rest.len()));
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Process;

    fn named(numbers: &[u32], files: &[&str]) -> String {
        let rank = |rank: Option<u32>, file: &str| RankSummary {
            file: file.to_owned(),
            process: Process { rank, ..Process::default() },
            ..RankSummary::default()
        };
        let numbered = numbers.iter().map(|number| rank(Some(*number), "x"));
        let all: Vec<RankSummary> = numbered.chain(files.iter().map(|file| rank(None, file))).collect();
        rank_names(&all.iter().collect::<Vec<_>>())
    }

    #[test]
    fn ranks_that_follow_each_other_are_a_range_and_many_are_folded() {
        assert_eq!(named(&[3], &[]), "rank 3");
        assert_eq!(named(&[7, 1, 0, 2], &[]), "ranks 0 to 2, 7");
        assert_eq!(named(&[4, 0, 1, 5], &[]), "ranks 0, 1, 4, 5");
        assert_eq!(named(&[u32::MAX, 5], &["a.pickle"]), "ranks 5, 4294967295, a.pickle");
        assert_eq!(named(&[], &["a.pickle", "b.pickle"]), "a.pickle, b.pickle");
        let even: Vec<u32> = (0..10).map(|number| 2 * number).collect();
        assert_eq!(named(&even, &[]), "ranks 0, 2, 4, 6, 8, 10, 12, 14, 2 more ranges");
        assert_eq!(named(&even, &["a"]), "ranks 0, 2, 4, 6, 8, 10, 12, 14, 3 more ranges and files");
        assert_eq!(named(&[9], &["a", "b", "c", "d", "e", "f", "g", "h"]), "rank 9, a, b, c, d, e, f, g, 1 more files");
    }
}
