//! `fit`: whether a program fits on GPUs, judged by a run on a simulated one. Exit code 0 if it does, 1 if not, 3 if
//! undecided.

mod arguments;
mod available;
mod check;
mod free;
mod host;
mod judge;
mod law;
mod print;
mod search;
mod vary;

use std::collections::BTreeMap;

use memtrace_core::analysis::{Card, Fit, FitVerdict};

pub(crate) use self::arguments::{FitArgs, card};
use self::judge::{Judged, doubt_values, judge, of_recording};
use self::law::Law;
use self::vary::Vary;
use crate::failure::CommandFailure;
use crate::{input, output};

pub(crate) fn run(args: &FitArgs) -> Result<(), CommandFailure> {
    if let Some(measured) = &args.check {
        return check::check(args, measured);
    }
    let recorded = args.recording.as_deref().map(|file| input::read(Some(file))).transpose()?.map(|read| read.data);
    let cards = host::cards_of(args, recorded.as_ref())?;
    let Some(vary) = &args.vary else {
        let mut judged = match &recorded {
            Some(data) => of_recording(args, &cards, data)?,
            None => judge(args, &cards, None)?,
        };
        doubt_values(args, &mut judged, None)?;
        print::verdicts(args, &judged, None, None)?;
        return end(args, &judged);
    };
    let mut tried = Tried { args, vary, cards: &cards, found: BTreeMap::new() };
    let largest: Vec<Option<u64>> = (0..cards.len())
        .map(|card| search::largest(&vary.values, |value| tried.fits(value, card)))
        .collect::<Result<_, _>>()?;
    // The largest value with which the program fits on all cards, or else the smallest value.
    let fits_on_all = largest.iter().copied().collect::<Option<Vec<u64>>>().and_then(|all| all.into_iter().min());
    let value = fits_on_all.or_else(|| tried.found.keys().next().copied()).unwrap_or_default();
    if args.md {
        output::print_lines(print::matrix(vary, &cards, &tried.found))?;
    }
    let peaks = tried.peaks();
    let same = if_same(&vary.name, &peaks);
    same.iter().for_each(output::say);
    let law = Law::through(&peaks).filter(|_| same.is_none());
    let Some(mut judged) = tried.found.remove(&value) else { return Ok(()) };
    doubt_values(args, &mut judged, Some((&vary.name, value)))?;
    if !args.md {
        print::verdicts(args, &judged, Some(value), Some((vary, &largest)))?;
    }
    if let Some(law) = law.filter(|_| !args.json && !args.md) {
        output::print_lines([law.hint(&vary.name)])?;
    }
    end(args, &judged)
}

/// A message if the peak is the same with all values, which are the first numbers of the pairs.
fn if_same(name: &str, peaks: &[(u64, u64)]) -> Option<String> {
    let is_same = peaks.len() > 1 && peaks.windows(2).all(|two| matches!(two, [(_, one), (_, other)] if one == other));
    let count = peaks.len();
    is_same.then(|| {
        format!("the peak is the same with all {count} values of {name}: perhaps the program does not read it")
    })
}

/// The runs so far, by the value of the varied argument.
struct Tried<'a> {
    args: &'a FitArgs,
    vary: &'a Vary,
    cards: &'a [Card],
    found: BTreeMap<u64, Judged>,
}

impl Tried<'_> {
    fn fits(&mut self, value: u64, card: usize) -> Result<bool, CommandFailure> {
        if !self.found.contains_key(&value) {
            let judged = judge(self.args, self.cards, Some((&self.vary.name, value)))?;
            self.found.insert(value, judged);
        }
        Ok(self.found.get(&value).is_some_and(|judged| judged.fits_on(card)))
    }

    /// The bytes that were live at the peak of the fullest GPU, by value.
    fn peaks(&self) -> Vec<(u64, u64)> {
        self.found.iter().map(|(value, judged)| (*value, judged.peak())).collect()
    }
}

/// A program that is to run on several cards must fit on all of them. If no card is named, there is nothing to check.
fn end(args: &FitArgs, judged: &Judged) -> Result<(), CommandFailure> {
    if args.is_of_all_cards() {
        return Ok(());
    }
    let of = |is: fn(&FitVerdict) -> bool| -> Vec<String> {
        let fits = judged.gpus.iter().flat_map(|gpu| &gpu.fits);
        let mut names: Vec<String> =
            fits.filter(|fit: &&Fit| is(&fit.verdict())).map(|fit| fit.card.name.clone()).collect();
        names.dedup();
        names
    };
    let bad = of(|verdict| matches!(verdict, FitVerdict::DoesNotFit(..)));
    let unknown = of(|verdict| matches!(verdict, FitVerdict::Undecided(..)));
    match (bad.is_empty(), unknown.is_empty()) {
        (false, _) => Err(CommandFailure::Check(vec![format!("does not fit on {}", bad.join(", "))])),
        (_, false) => Err(CommandFailure::Undecided(vec![format!("on {}", unknown.join(", "))])),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_changes_nothing_is_mentioned() {
        assert_eq!(if_same("batch", &[(1, 70), (2, 71), (4, 70)]), None);
        assert_eq!(if_same("batch", &[(1, 70)]), None);
        let text = if_same("batch", &[(1, 70), (2, 70)]).unwrap();
        assert!(text.contains("all 2 values of batch"), "{text}");
    }
}
