//! Pairing of operators: compares a recording of PyTorch with one of candle. Operators that do the same work share a
//! row, according to a table (`operators.txt`). An operator that the table lacks, or whose partner the other program
//! never called, is not paired.

mod side;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use self::side::{PairKey, PairSide, WorkKind};
use super::diff::{Diff, DiffRow};
use super::label_of_rest;
use super::live::LiveSet;
use crate::snapshot::Weight;

use crate::hashed::summed;

/// The most operators of a program that a label lists.
const LISTED: usize = 3;

/// A recording of PyTorch compared with one of candle, by operator. Before is the first recording, after the second.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OperatorPairs {
    /// Memory of paired operators at the peak.
    pub at_peak: Diff,
    /// Memory at the peak without a partner.
    pub unpaired: Diff,
    /// Memory kept for the backward pass: allocated by an operator of the forward pass, live when the backward pass
    /// began, freed later. Among several backward passes, the one with most such memory.
    pub kept: Diff,
    /// Temporaries: blocks that were freed soon after they were allocated.
    pub temporaries: Diff,
}

impl OperatorPairs {
    /// Compares two live sets. `None` unless exactly one of them is PyTorch's.
    pub fn of(before: &LiveSet<'_>, after: &LiveSet<'_>) -> Option<Self> {
        if before.device.data().is_python() == after.device.data().is_python() {
            return None;
        }
        let sides = [PairSide::of(before), PairSide::of(after)];
        let mut pairs = Self::default();
        let [mut paired, mut unpaired, mut kept, mut temporaries]: [Vec<DiffRow>; 4] = Default::default();
        for row in rows(&sides) {
            let is_paired = row.kinds.iter().all(|kinds| !kinds.is_empty());
            let label = row.label(is_paired);
            let add = |rows: &mut Vec<DiffRow>, of: fn(&WorkKind) -> Weight| rows.extend(row.sums(&label, of));
            add(if is_paired { &mut paired } else { &mut unpaired }, |kind| kind.at_peak);
            add(&mut kept, |kind| kind.kept);
            add(&mut temporaries, |kind| kind.temporary);
        }
        unpaired.extend(not_recorded(before, true));
        unpaired.extend(not_recorded(after, false));
        pairs.at_peak = Diff::of_rows(paired);
        pairs.unpaired = Diff::of_rows(unpaired);
        pairs.kept = Diff::of_rows(kept);
        pairs.temporaries = Diff::of_rows(temporaries);
        Some(pairs)
    }
}

/// The kinds of work of both programs that share a row.
#[derive(Default)]
struct PairRow<'s> {
    key: Option<PairKey>,
    kinds: [Vec<&'s WorkKind>; 2],
}

/// Groups operators into rows. An operator goes into the row of its first key that the other program also has. If
/// there is no such key, it has a row of its own.
fn rows(sides: &[PairSide; 2]) -> Vec<PairRow<'_>> {
    let keys = [sides[0].keys(), sides[1].keys()];
    let (mut paired, mut alone): (BTreeMap<PairKey, PairRow<'_>>, Vec<PairRow<'_>>) = Default::default();
    for (side, other) in [(0, 1), (1, 0)] {
        for kind in &sides[side].kinds {
            let Some(key) = kind.keys.iter().find(|key| keys[other].contains(key)).copied() else {
                let mut row = PairRow::default();
                row.kinds[side].push(kind);
                alone.push(row);
                continue;
            };
            let row = paired.entry(key).or_default();
            row.key = Some(key);
            row.kinds[side].push(kind);
        }
    }
    paired.into_values().chain(alone).collect()
}

impl PairRow<'_> {
    /// The row's label: `matmul: linear/addmm ↔ matmul`, or the operator alone.
    fn label(&self, is_paired: bool) -> String {
        let Some(key) = self.key.filter(|_| is_paired) else {
            let kind = self.kinds.iter().flatten().next();
            return kind.map_or_else(String::new, |kind| kind.label.clone());
        };
        let title = key.title();
        let [before, after] = self.kinds.each_ref().map(|kinds| listed(kinds));
        if before == after && title.ends_with(&before) { title } else { format!("{title}: {before} ↔ {after}") }
    }

    /// The row with these bytes; `None` if there are none.
    fn sums(&self, label: &str, of: fn(&WorkKind) -> Weight) -> Option<DiffRow> {
        let [before, after] = self.kinds.each_ref().map(|kinds| kinds.iter().map(|kind| of(kind)).sum::<Weight>());
        let row = DiffRow {
            label: label.to_owned(),
            before: before.bytes,
            after: after.bytes,
            blocks_before: Some(before.blocks()),
            blocks_after: Some(after.blocks()),
        };
        Some(row).filter(|row| row.before + row.after > 0)
    }
}

/// The operators of one program. Those with most memory at the peak come first.
fn listed(kinds: &[&WorkKind]) -> String {
    let sums = summed(kinds.iter().map(|kind| (&*kind.operator, kind.at_peak.bytes)));
    let mut names = Vec::from_iter(BTreeMap::from_iter(sums));
    names.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let shown: Vec<&str> = names.iter().take(LISTED).map(|(name, _)| *name).collect();
    let more = if names.len() > LISTED { ", …" } else { "" };
    format!("{}{more}", shown.join(", "))
}

/// Rows for memory from before the recording, and for blocks below the threshold.
fn not_recorded(live: &LiveSet<'_>, is_before: bool) -> Vec<DiffRow> {
    let rest = (label_of_rest(live.device, &live.blocks), live.not_recorded);
    let small = ("(blocks below the threshold)", live.below_threshold);
    let row = |(label, bytes): (&str, u64)| {
        let (before, after) = if is_before { (bytes, 0) } else { (0, bytes) };
        DiffRow { label: label.to_owned(), before, after, ..DiffRow::default() }
    };
    [rest, small].into_iter().filter(|(_, bytes)| *bytes > 0).map(row).collect()
}
