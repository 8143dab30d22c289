//! The rank in a file's name.

const WORD: &str = "rank";

/// The rank in a name such as `run_rank3.pickle`, `rank_3` or `rank-3`. `None` if the name has several different
/// ranks. A rank within a host (`local_rank3`) is not a rank of the job.
pub fn rank_of_name(name: &str) -> Option<u32> {
    let name = name.rsplit('/').next()?.to_ascii_lowercase();
    let number = |(at, _): (usize, &str)| {
        let (before, after) = (name.get(..at)?, name.get(at + WORD.len()..)?);
        let is_local = before.trim_end_matches(['_', '-']).ends_with("local");
        let is_word = !before.ends_with(char::is_alphabetic) && !is_local;
        let digits = after.strip_prefix(['_', '-']).unwrap_or(after);
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        digits.get(..end)?.parse::<u32>().ok().filter(|_| is_word)
    };
    let mut found = name.match_indices(WORD).filter_map(number);
    let first = found.next()?;
    found.all(|other| other == first).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_its_rank_if_it_has_one() {
        for (name, rank) in [
            ("rank3.pickle", Some(3)),
            ("snapshot_rank_12_step7.pickle", Some(12)),
            ("Rank-0.memtrace.gz", Some(0)),
            ("box_net_7_rank4294967295_17.pickle", Some(u32::MAX)),
            ("rank2-of-rank2.pickle", Some(2)),
            ("rank2_rank3.pickle", None),
            ("rank4294967296.pickle", None),
            ("prank3.pickle", None),
            ("ranks3.pickle", None),
            ("rank.pickle", None),
            ("local_rank1.pickle", None),
            ("rank5_local_rank1.pickle", Some(5)),
            ("3.pickle", None),
            ("größe-rank7", Some(7)),
            ("rank1/rank2.pickle", Some(2)),
        ] {
            assert_eq!(rank_of_name(name), rank, "{name}");
        }
    }
}
