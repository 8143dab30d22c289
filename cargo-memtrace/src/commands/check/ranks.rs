//! `check` of several files: each rank must meet each limit. One recording is in memory at a time.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::path::PathBuf;

use memtrace_core::analysis::{RankSummary, Ranks};
use memtrace_core::export::ranks_figures;
use memtrace_core::report::{Report, counted_ranks, missing_ranks, rank_names};
use serde_json::{Value, json};

use super::outcome::{CheckOutcome, CheckVerdict};
use super::{CheckArgs, limits, outcome};
use crate::failure::CommandFailure;
use crate::ranks::JobChoice;
use crate::{called, output, ranks};

/// One limit for all ranks, with the outcome of each.
struct RanksCheck<'a> {
    of: Vec<(&'a RankSummary, CheckOutcome)>,
}

pub(super) fn check(args: &CheckArgs, files: &[PathBuf]) -> Result<(), CommandFailure> {
    if args.baseline.is_some() {
        return Err(CommandFailure::usage(format!(
            "--baseline is for one recording; give ranks a --peak, or compare two folders of them: `{} diff BEFORE AFTER`",
            called::name()
        )));
    }
    let (selection, mut leaks) = (&args.selection, HashMap::new());
    let found = ranks::read(files, Some(selection), JobChoice::of(&args.ranks), &[], |recording, file| {
        if args.no_leak {
            leaks.insert(file.to_owned(), of_devices(limits::no_leak(recording, selection.device)));
        }
        RankSummary::of(recording, file, selection.device, &[])
    })?;
    if !found.ranks.is_empty() && found.ranks.iter().all(|rank| rank.peak.is_none()) {
        return Err(CommandFailure::usage("no rank has anything on this device; choose another with --device"));
    }
    let peaks = args.peak.map(|limit| RanksCheck::of(&found, |rank| peak(rank, limit)));
    let leaks = args.no_leak.then(|| RanksCheck::of(&found, |rank| leaks.remove(&rank.file).flatten()));
    let checks: Vec<RanksCheck<'_>> = peaks.into_iter().chain(leaks).collect();
    print(args, &found, &checks)?;
    verdict(&checks, &found, files.len())
}

fn peak(rank: &RankSummary, limit: u64) -> Option<CheckOutcome> {
    rank.peak.as_ref().map(|peak| limits::peak(peak.device, peak.bytes, limit))
}

/// Combines the outcomes of a rank's devices: the worst one, or all of them if all are met.
fn of_devices(mut outcomes: Vec<CheckOutcome>) -> Option<CheckOutcome> {
    outcomes.sort_by_key(|outcome| Reverse((outcome.verdict, outcome.bytes)));
    let first = outcomes.first()?.verdict;
    let same = outcomes.iter().filter(|outcome| outcome.verdict == first);
    let what = same.map(|outcome| &*outcome.what).collect::<Vec<_>>().join("; ");
    outcomes.into_iter().next().map(|worst| CheckOutcome { what, ..worst })
}

impl<'a> RanksCheck<'a> {
    /// A rank for which `outcome` returns `None` recorded nothing.
    fn of(ranks: &'a Ranks, mut outcome: impl FnMut(&RankSummary) -> Option<CheckOutcome>) -> Self {
        let nothing = || CheckOutcome {
            verdict: CheckVerdict::Undecided,
            what: "nothing was recorded on the device".to_owned(),
            bytes: 0,
        };
        Self { of: ranks.ranks.iter().map(|rank| (rank, outcome(rank).unwrap_or_else(nothing))).collect() }
    }

    fn verdict(&self) -> Option<CheckVerdict> {
        self.of.iter().map(|(_, outcome)| outcome.verdict).max()
    }

    /// The rank with the worst outcome; the first of equal ones.
    fn worst(&self) -> Option<&(&RankSummary, CheckOutcome)> {
        self.of.iter().rev().max_by_key(|(_, outcome)| (outcome.verdict, outcome.bytes))
    }

    /// A line for the ranks that break the limit and one for the undecided ranks, or one line for all ranks.
    fn outcomes(&self) -> Vec<CheckOutcome> {
        let verdicts = [CheckVerdict::Fails, CheckVerdict::Undecided, CheckVerdict::Holds];
        let worst = self.verdict();
        let said = verdicts
            .into_iter()
            .filter(|verdict| *verdict != CheckVerdict::Holds || worst == Some(CheckVerdict::Holds));
        said.filter_map(|verdict| self.outcome(verdict)).collect()
    }

    /// The line for the ranks with this verdict: how many there are, which ones, and the outcome of the worst.
    fn outcome(&self, verdict: CheckVerdict) -> Option<CheckOutcome> {
        let of: Vec<_> = self.of.iter().filter(|(_, outcome)| outcome.verdict == verdict).collect();
        let (rank, worst) = of.iter().rev().max_by_key(|(_, outcome)| outcome.bytes)?;
        let names = match of.len() {
            some if some > 1 && some < self.of.len() => {
                format!(": {}", rank_names(&of.iter().map(|(rank, _)| *rank).collect::<Vec<_>>()))
            }
            _ => String::new(),
        };
        let first = match of.len() {
            1 => ":",
            _ if worst.bytes > 0 => ". Worst:",
            _ => ". First:",
        };
        let (verb, all) = (verb(verdict, of.len()), counted_ranks(self.of.len()));
        let what = format!("{} of {all} {verb}{names}{first} {}: {}", of.len(), rank.name(), worst.what);
        Some(CheckOutcome { what, ..worst.clone() })
    }

    fn json(&self) -> Value {
        let worst = self.worst().map(|(rank, _)| *rank);
        let of = self.of.iter().map(|(rank, outcome)| {
            let (number, file) = (rank.process.rank, &rank.file);
            json!({ "rank": number, "file": file, "met": outcome.verdict.is_met(), "what": outcome.what })
        });
        json!({
            "met": self.verdict().and_then(CheckVerdict::is_met),
            "what": self.outcomes().into_iter().map(|outcome| outcome.what).collect::<Vec<_>>().join("; "),
            "worst_rank": worst.and_then(|rank| rank.process.rank),
            "worst_file": worst.map(|rank| &rank.file),
            "ranks": of.collect::<Vec<_>>(),
        })
    }
}

fn verb(verdict: CheckVerdict, ranks: usize) -> &'static str {
    match (verdict, ranks) {
        (CheckVerdict::Holds, 1) => "passes",
        (CheckVerdict::Holds, _) => "pass",
        (CheckVerdict::Fails, 1) => "fails",
        (CheckVerdict::Fails, _) => "fail",
        (CheckVerdict::Undecided, 1) => "cannot be judged",
        (CheckVerdict::Undecided, _) => "cannot be judged",
    }
}

fn print(args: &CheckArgs, ranks: &Ranks, checks: &[RanksCheck<'_>]) -> Result<(), CommandFailure> {
    if args.selection.json {
        let checks: Vec<Value> = checks.iter().map(RanksCheck::json).collect();
        let value = json!({ "version": 1, "checks": checks, "ranks": ranks_figures(ranks) });
        return output::print_json(format!("{value:#}\n"));
    }
    let held = checks.iter().flat_map(|check| outcome::held(&check.outcomes()));
    let report = Report { answer: held.collect(), sections: vec![missing_ranks(ranks)], ..Report::default() };
    output::print(&report, None, &args.selection)
}

/// If files could not be read, a broken limit is certain all the same. That a limit is met is not certain then.
fn verdict(checks: &[RanksCheck<'_>], ranks: &Ranks, files: usize) -> Result<(), CommandFailure> {
    let judged = outcome::verdict(checks.iter().flat_map(RanksCheck::outcomes).collect());
    let (first, second) = match (judged, ranks::all_read(ranks.unread.len(), files)) {
        (Err(broken @ CommandFailure::Check(_)), Err(unread)) => (broken, unread),
        (Err(undecided), Err(unread)) => (unread, undecided),
        (judged, read) => return judged.and(read),
    };
    output::tell(second.lines().iter().map(|line| format!("{}: {line}", second.word())));
    Err(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_as_bad_as_its_worst_device() {
        let outcome = |verdict, what: &str, bytes| CheckOutcome { verdict, what: what.to_owned(), bytes };
        let of = |outcomes: &[CheckOutcome]| {
            of_devices(outcomes.to_vec()).map(|CheckOutcome { verdict, what, bytes }| (verdict, what, bytes))
        };
        let [small, large] =
            [("small", 5), ("large", 9)].map(|(what, bytes)| outcome(CheckVerdict::Fails, what, bytes));
        let [one, two] = ["one", "two"].map(|what| outcome(CheckVerdict::Holds, what, 0));
        let open = outcome(CheckVerdict::Undecided, "open", 0);
        let all = [one.clone(), small, open.clone(), large];
        assert_eq!(of(&all), Some((CheckVerdict::Fails, "large; small".to_owned(), 9)));
        assert_eq!(of(&[one.clone(), open]), Some((CheckVerdict::Undecided, "open".to_owned(), 0)));
        assert_eq!(of(&[one, two]), Some((CheckVerdict::Holds, "one; two".to_owned(), 0)));
        assert_eq!(of(&[]), None);
    }
}
