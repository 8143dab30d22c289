//! What `fit` prints: the verdicts first.

use std::collections::BTreeMap;

use memtrace_core::Bytes;
use memtrace_core::analysis::{Card, Fit, FitVerdict};
use memtrace_core::report::{Report, fit_line, fit_section};
use serde_json::{Value, json};

use super::arguments::FitArgs;
use super::judge::{Judged, Planned};
use super::vary::Vary;
use crate::failure::CommandFailure;
use crate::output;

/// The varied argument, and for each card the largest value that fits.
pub(super) type Largest<'a> = Option<(&'a Vary, &'a [Option<u64>])>;

/// Prints the verdicts, and then for each card that the user named what is needed there.
pub(super) fn verdicts(
    args: &FitArgs,
    judged: &Judged,
    value: Option<u64>,
    largest: Largest<'_>,
) -> Result<(), CommandFailure> {
    if args.json {
        return output::print_json(format!("{:#}\n", as_json(judged, value, largest)));
    }
    if let (Some(value), Some((vary, _))) = (value, largest) {
        output::print_lines([format!("For {}={value}:", vary.name)])?;
    }
    let is_one = judged.gpus.len() == 1;
    let mut report = Report { answer: judged.answer.clone(), ..Report::default() };
    for gpu in &judged.gpus {
        let on = if is_one { String::new() } else { format!("{} on ", gpu.device) };
        let line = |(at, fit): (usize, &Fit)| format!("{on}{}{}", fit_line(fit), largest_of(largest, at));
        output::print_lines(gpu.fits.iter().enumerate().map(line))?;
        let shown = if args.is_of_all_cards() { 0 } else { usize::MAX };
        for fit in gpu.fits.iter().take(shown) {
            let mut section = fit_section(fit);
            section.title = if is_one {
                section.title
            } else {
                format!("{} {}", gpu.device, section.title.replacen("On", "on", 1))
            };
            report.sections.push(section);
        }
        report.sections.extend(gpu.plans.iter().flatten().map(|Planned(_, section)| section.clone()));
    }
    output::print_report(&report)
}

fn largest_of(largest: Largest<'_>, card: usize) -> String {
    let Some((vary, largest)) = largest else { return String::new() };
    match largest.get(card).copied().flatten() {
        Some(value) => format!("; largest {}: {value}", vary.name),
        None => format!("; no {} that was tried fits", vary.name),
    }
}

/// A Markdown table: a row for each value that was tried, a column for each card.
pub(super) fn matrix(vary: &Vary, cards: &[Card], found: &BTreeMap<u64, Judged>) -> Vec<String> {
    let row = |cells: Vec<String>| format!("| {} |", cells.join(" | "));
    let heads = cards.iter().map(|card| format!("{} ({})", card.name, Bytes(card.memory)));
    let cell = |fits: Vec<&Fit>| match fits.iter().map(|fit| fit.verdict()).max_by_key(badness) {
        Some(FitVerdict::Fits(least, _)) => format!("fits, {} spare", Bytes(least)),
        Some(FitVerdict::DoesNotFit(least, _)) => format!("no, {} short", Bytes(least)),
        _ => "undecided".to_owned(),
    };
    let line = |(value, judged): (&u64, &Judged)| {
        let of_card = |at: usize| judged.gpus.iter().filter_map(|gpu| gpu.fits.get(at)).collect();
        row([value.to_string()].into_iter().chain((0..cards.len()).map(|at| cell(of_card(at)))).collect())
    };
    let head = row([vary.name.clone()].into_iter().chain(heads).collect());
    [head, format!("|{}", "--:|".repeat(cards.len() + 1))].into_iter().chain(found.iter().map(line)).collect()
}

/// Orders verdicts, because the worst of several GPUs counts: the one that lacks the most, or has the least to spare.
fn badness(verdict: &FitVerdict) -> (u8, i128) {
    match verdict {
        FitVerdict::Fits(least, _) => (0, -i128::from(*least)),
        FitVerdict::Undecided(_, short) => (1, i128::from(*short)),
        FitVerdict::DoesNotFit(least, _) => (2, i128::from(*least)),
    }
}

fn as_json(judged: &Judged, value: Option<u64>, largest: Largest<'_>) -> Value {
    let cards = judged.gpus.iter().flat_map(|gpu| {
        let of = |(at, fit): (usize, &Fit)| {
            let mut card = of_card(fit);
            card["device"] = gpu.device.to_string().into();
            card["plan"] = gpu.plans.get(at).and_then(Option::as_ref).map(|Planned(answer, _)| answer.clone()).into();
            card["largest"] = largest.and_then(|(_, largest)| largest.get(at).copied()).flatten().into();
            card
        };
        gpu.fits.iter().enumerate().map(of).collect::<Vec<_>>()
    });
    let name = largest.map(|(vary, _)| &vary.name);
    json!({ "version": 1, "varied": name, "value": value, "answer": judged.answer, "cards": cards.collect::<Vec<_>>() })
}

fn of_card(fit: &Fit) -> Value {
    let (verdict, least, most) = match fit.verdict() {
        FitVerdict::Fits(least, most) => ("fits", i128::from(least), i128::from(most)),
        FitVerdict::DoesNotFit(least, most) => ("does not fit", -i128::from(most), -i128::from(least)),
        FitVerdict::Undecided(spare, short) => ("undecided", -i128::from(short), i128::from(spare)),
    };
    json!({
        "card": fit.card.name,
        "memory_bytes": fit.card.memory,
        "unified": fit.card.unified,
        "verdict": verdict,
        "doubt": fit.doubt,
        "spare_bytes": [least as i64, most as i64],
        "rows": fit.rows,
    })
}
