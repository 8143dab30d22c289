//! The report that compares a recording of PyTorch with one of candle: tables of paired operators, and what has no
//! counterpart.

use super::diff_rows::{COLUMNS, fill};
use super::section::Section;
use crate::analysis::{Diff, DiffRow, LiveSet, OperatorPairs};
use crate::snapshot::Weight;
use crate::units::Bytes;

/// How many bytes of each peak belong to pairs.
pub(super) fn answer(pairs: &OperatorPairs) -> String {
    let Diff { before, after, .. } = pairs.at_peak;
    let of = |part: u64, rest: u64| {
        let whole = part + rest;
        format!("{} of {} ({:.1} %)", Bytes(part), Bytes(whole), 100.0 * part as f64 / whole.max(1) as f64)
    };
    let (rest_before, rest_after) = (pairs.unpaired.before, pairs.unpaired.after);
    format!("Paired by operator: {} before, {} after.", of(before, rest_before), of(after, rest_after))
}

pub(super) fn sections(
    pairs: &OperatorPairs,
    (old, new): (&LiveSet<'_>, &LiveSet<'_>),
    limits: (usize, u64),
) -> Vec<Section> {
    let mut paired = table("diff_by_operator", "Change, by paired operators".to_owned(), &pairs.at_peak, limits);
    paired.about = vec!["An operator of PyTorch ↔ the operators of candle that do the same work.".to_owned()];
    let mut sections = vec![paired];
    if !pairs.unpaired.rows.is_empty() {
        let mut unpaired = table("unpaired_operators", "Not paired".to_owned(), &pairs.unpaired, limits);
        unpaired.about = vec!["The other program calls no such operator, or the table of pairs lacks it.".to_owned()];
        sections.push(unpaired);
    }
    sections.push(side_by_side(pairs, old, new));
    let kept = "Kept for the backward pass, by operator".to_owned();
    let temporaries = "Temporaries, by operator".to_owned();
    let tables =
        [("kept_by_operator", kept, &pairs.kept), ("temporaries_by_operator", temporaries, &pairs.temporaries)];
    let filled = tables.into_iter().filter(|(_, _, diff)| !diff.rows.is_empty());
    sections.extend(filled.map(|(key, title, diff)| table(key, title, diff, limits)));
    sections
}

/// A table of at most `most` rows, including unchanged ones, that have at least `threshold` bytes in either recording.
/// All others are folded into one row.
fn table(key: &'static str, title: String, diff: &Diff, (most, threshold): (usize, u64)) -> Section {
    let mut section = Section::of_columns(key, title, &COLUMNS);
    section.columns.pop();
    section.columns.push("Operator");
    let mut rows: Vec<&DiffRow> = diff.rows.iter().collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.before.max(row.after)));
    let is_large = |row: &&&DiffRow| row.before.max(row.after) >= threshold;
    let shown = rows.iter().take_while(is_large).take(most).count();
    fill(&mut section, &rows[..shown], &rows[shown..], |row| row.label.clone());
    section
}

fn side_by_side(pairs: &OperatorPairs, old: &LiveSet<'_>, new: &LiveSet<'_>) -> Section {
    let mut section = Section::of_columns("side_by_side", "Side by side", &["Change", "Before", "After", "What"]);
    section.about = vec![
        "Kept: allocated by the forward pass, live when the backward pass began, freed later".to_owned(),
        format!("Temporaries: freed before {} more blocks were allocated; the sum over the log", crate::analysis::SOON),
    ];
    let live = |set: &LiveSet<'_>| set.device.live_weights().map(|(_, weight)| weight).sum::<Weight>().bytes;
    let rows = [
        ("peak", old.total(), new.total()),
        ("kept for the backward pass", pairs.kept.before, pairs.kept.after),
        ("temporaries", pairs.temporaries.before, pairs.temporaries.after),
        ("live at the end", live(old), live(new)),
    ];
    let row =
        |(label, before, after): (&str, _, _)| DiffRow { label: label.to_owned(), before, after, ..DiffRow::default() };
    let rows = rows.map(row);
    fill(&mut section, &rows.each_ref(), &[], |row| row.label.clone());
    section
}
