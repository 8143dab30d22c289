//! What a report of ranks lacks: ranks without a file, files that were not read, and unknown data.

use std::collections::BTreeMap;

use super::super::Section;
use super::names::{listed, rank_names};
use crate::analysis::{RankSummary, Ranks};
use crate::hashed::by_key;
use crate::units::{self, capitalized};

/// Whether a statement applies to a rank.
type IsSo = fn(&RankSummary) -> bool;

/// `1 rank`, `8 ranks`.
pub fn counted(count: usize) -> String {
    units::counted(count as u64, "rank")
}

/// The section at the end of a report of ranks: ranks without a file, what was not read, and what is unknown.
pub fn missing_ranks(ranks: &Ranks) -> Section {
    let mut lines: Vec<String> = Vec::new();
    lines.extend(missing(ranks));
    lines.extend(ranks.unread.iter().map(|unread| format!("Not read: {}.", unread.reason)));
    lines.extend(
        ranks.seconds.iter().map(|second| format!("Left out: {}, of the same rank as {}.", second.file, second.counts)),
    );
    lines.extend(at_moment(ranks));
    let sentences: [(IsSo, &str); 6] = [
        (|rank| rank.is_cut_off, "killed, or still recording; the state at the last flush"),
        (|rank| rank.peak.is_none(), "nothing was recorded on the device; counts as 0"),
        (
            |rank| rank.gpus.len() > 1,
            "used several GPUs; compared on the one with the largest peak, or on that of --device",
        ),
        (|rank| rank.is_sample, "small blocks were sampled; rows are estimates"),
        (|rank| rank.is_rank_of_name, "the rank is that of the file's name"),
        (|rank| rank.process.rank.is_none(), "no rank is known; named by the file"),
    ];
    lines.extend(sentences.iter().filter_map(|(is, what)| of_ranks(ranks, is, what)));
    Section::of_lines("missing_ranks", "What is missing, and what is not known", lines)
}

/// Ranks whose moment is unknown, and what is missing at the moment of other ranks.
fn at_moment(ranks: &Ranks) -> Vec<String> {
    let unknown = ranks.without.iter().filter_map(|rank| Some((rank, rank.moment_unknown.clone()?)));
    let unknown = unknown.map(|(rank, why)| (why, rank));
    let lacks = ranks.ranks.iter().flat_map(|rank| rank.moment_notes.iter().map(move |note| (note.clone(), rank)));
    let of = BTreeMap::from_iter(by_key(unknown.chain(lacks)));
    of.into_iter().map(|(sentence, some)| said_of(&some, ranks.all().count(), &sentence)).collect()
}

/// The statement `what` after the ranks to which it applies: `Ranks 3, 7: …`
fn of_ranks(ranks: &Ranks, is: &IsSo, what: &str) -> Option<String> {
    let found: Vec<&RankSummary> = ranks.ranks.iter().filter(|rank| is(rank)).collect();
    (!found.is_empty()).then(|| said_of(&found, ranks.all().count(), what))
}

fn said_of(some: &[&RankSummary], of: usize, what: &str) -> String {
    let who = match some.len() {
        all if all == of && all > 1 => format!("all {}", counted(all)),
        _ => rank_names(some),
    };
    // File names are not capitalized.
    let is_word = ["rank ", "ranks ", "all "].iter().any(|word| who.starts_with(word));
    let who = if is_word { capitalized(&who) } else { who };
    format!("{who}: {what}.")
}

fn missing(ranks: &Ranks) -> Vec<String> {
    let Some(highest) = ranks.highest() else { return Vec::new() };
    let missing = ranks.missing();
    let count: u64 = missing.iter().map(|range| u64::from(range.end() - range.start()) + 1).sum();
    let (verb, noun) = if count == 1 { ("has", "Rank") } else { ("have", "Ranks") };
    let found = (count > 0).then(|| format!("{noun} {} {verb} no recording here.", listed(&missing)));
    let known = match ranks.world_size() {
        Some(size) if found.is_none() && ranks.unread.is_empty() => {
            format!("All {size} ranks that the launcher started are here.")
        }
        Some(size) => format!("The launcher started {size} ranks."),
        None => format!("Ranks above {highest} may be missing: the number of ranks is not recorded."),
    };
    found.into_iter().chain([known]).collect()
}
