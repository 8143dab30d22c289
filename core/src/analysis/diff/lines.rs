//! Matches the source lines of two sides. An edit moves the lines below it, so lines are matched within their
//! function, in order, by the operators that allocate there.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use super::MatchedRow;
use super::side::{DiffSide, Place, SideRow};
use crate::analysis::labels::{Labels, line_label, operator_label};
use crate::analysis::live::LiveSet;
use crate::attribute::{AllocationSite, Attribution, allocation_site};
use crate::snapshot::{Block, SymbolName};

/// A source line of one side.
#[derive(Debug)]
struct Line<'a> {
    number: u32,
    /// The operator that allocated most of its bytes.
    operator: &'a str,
    label: &'a str,
    row: &'a SideRow,
}

/// The lines of each function, by number. A row without a source line is entered as a function of its own.
type Lines<'a> = BTreeMap<Function, Vec<Line<'a>>>;

/// File and name of a function.
type Function = (String, String);

pub(super) fn matched(before: &DiffSide, after: &DiffSide) -> Vec<MatchedRow> {
    let (mut old, mut new) = (lines(before), lines(after));
    let mut rows = Vec::new();
    for (was, is) in same_functions(&old, &new) {
        rows.extend(of_function(old.remove(&was).unwrap_or_default(), new.remove(&is).unwrap_or_default()));
    }
    rows.extend(old.into_values().flatten().map(|line| row(Some(line), None)));
    rows.extend(new.into_values().flatten().map(|line| row(None, Some(line))));
    rows
}

/// The most folders of a path that are compared, from its end.
const MOST_FOLDERS: usize = 32;

/// The functions that both recordings have. Those of the same file are paired first, then those whose paths share the
/// longest end, as in two checkouts of a project. A function that could match several others is not paired.
fn same_functions(old: &Lines<'_>, new: &Lines<'_>) -> Vec<(Function, Function)> {
    let is_known = |key: &&Function| new.contains_key(key);
    let mut pairs: Vec<(Function, Function)> =
        old.keys().filter(is_known).map(|key| (key.clone(), key.clone())).collect();
    let mut rest: [BTreeSet<&Function>; 2] = [
        old.keys().filter(|key| !new.contains_key(key)).collect(),
        new.keys().filter(|key| !old.contains_key(key)).collect(),
    ];
    for folders in (0..MOST_FOLDERS).rev() {
        let mut by_end: BTreeMap<(String, &str), [Vec<&Function>; 2]> = BTreeMap::new();
        for (side, rest) in rest.iter().enumerate() {
            for key in rest {
                if let Some(end) = end_of_path(&key.0, folders) {
                    by_end.entry((end, &key.1)).or_default()[side].push(key);
                }
            }
        }
        for found in by_end.values() {
            if let [[was], [is]] = [&*found[0], &*found[1]] {
                rest[0].remove(was);
                rest[1].remove(is);
                pairs.push(((*was).clone(), (*is).clone()));
            }
        }
    }
    pairs
}

/// The file name with this many folders above it.
fn end_of_path(path: &str, folders: usize) -> Option<String> {
    let plain = path.replace('\\', "/");
    let mut separators = plain.rmatch_indices('/').map(|(at, _)| at + 1).chain([0]);
    separators.nth(folders).and_then(|at| plain.get(at..)).filter(|end| !end.is_empty()).map(str::to_owned)
}

fn lines(side: &DiffSide) -> Lines<'_> {
    // Among lines with the same number, the one with more bytes comes first, as in a table.
    let mut rows: Vec<(&String, &SideRow)> = side.rows.iter().collect();
    rows.sort_by_key(|(label, row)| (Reverse(row.bytes), *label));
    let mut lines = Lines::new();
    for (label, row) in rows {
        // A row without a function is matched by its label.
        let place = row.place.as_ref().filter(|place| !place.function.1.is_empty());
        let function = place.map_or_else(|| (String::new(), label.clone()), |place| place.function.clone());
        let operator = row.place.iter().flat_map(|place| &place.operators).max_by_key(|(_, bytes)| **bytes);
        let number = row.place.as_ref().map_or(0, |place| place.number);
        let operator = operator.map_or("", |(name, _)| name);
        lines.entry(function).or_default().push(Line { number, operator, label, row });
    }
    lines.values_mut().for_each(|lines| lines.sort_by_key(|line| line.number));
    lines
}

/// Adds to each row of a side the place of the row's line, taken from the side's live set.
pub(super) fn add_places(side: &mut DiffSide, live: &LiveSet<'_>) {
    let data = live.device.data();
    let mut operators = Labels::of_stacks(data, operator_label);
    let mut labels = Labels::of_stacks(data, line_label);
    for (block, weight) in live.weights() {
        let Some(row) = side.rows.get_mut(labels.name(block)) else { continue };
        let place = row.place.get_or_insert_with(|| place(data, block));
        *place.operators.entry(operators.name(block).to_owned()).or_default() += weight.bytes;
    }
}

fn place(data: &Attribution<'_>, block: &Block) -> Place {
    let (function, number) = match allocation_site(data, block.stack) {
        AllocationSite::User(frame) | AllocationSite::Framework(frame) => (
            (frame.file_or_empty().to_owned(), function(frame.function_or_empty())),
            frame.line.map_or(0, NonZeroU32::get),
        ),
        AllocationSite::Unknown => Default::default(),
    };
    Place { function, number, operators: BTreeMap::new() }
}

fn function(name: &str) -> String {
    SymbolName(&without_numbers(name)).short()
}

/// A function's name without the numbers of its closures. They change if a closure is added above, in the same
/// function.
pub(crate) fn without_numbers(name: &str) -> String {
    let mut plain = String::new();
    let mut rest = name;
    while let Some((front, behind)) = rest.split_once("{closure#") {
        plain.push_str(front);
        plain.push_str("{closure");
        rest = behind.trim_start_matches(|c: char| c.is_ascii_digit());
    }
    plain.push_str(rest);
    plain
}

/// The most pairs of lines that are compared for one function. A longer function, which nobody writes by hand, is
/// matched by line numbers.
const MOST_PAIRS: usize = 1 << 22;

/// Matches the lines of one function: a longest common subsequence by operator, so that lines keep their order.
fn of_function(old: Vec<Line<'_>>, new: Vec<Line<'_>>) -> Vec<MatchedRow> {
    if old.len().saturating_mul(new.len()) > MOST_PAIRS {
        return of_one_number(old, new);
    }
    // `lengths[i][j]` is the highest sum of scores for `old[i..]` and `new[j..]`. Lines that have not moved score
    // higher.
    let mut lengths = vec![vec![0_u32; new.len() + 1]; old.len() + 1];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            let paired = score(&old[i], &new[j]).map_or(0, |score| score + lengths[i + 1][j + 1]);
            lengths[i][j] = paired.max(lengths[i + 1][j]).max(lengths[i][j + 1]);
        }
    }
    let mut rows = Vec::new();
    let (mut i, mut j) = (0, 0);
    let (mut old, mut new): (Vec<_>, Vec<_>) =
        (old.into_iter().map(Some).collect(), new.into_iter().map(Some).collect());
    while i < old.len() || j < new.len() {
        let pair = old.get(i).and_then(Option::as_ref).zip(new.get(j).and_then(Option::as_ref));
        let paired = pair.and_then(|(old, new)| score(old, new)).map(|score| score + lengths[i + 1][j + 1]);
        if paired == Some(lengths[i][j]) {
            rows.push(row(old[i].take(), new[j].take()));
            (i, j) = (i + 1, j + 1);
        } else if j == new.len() || i < old.len() && lengths[i + 1][j] == lengths[i][j] {
            rows.push(row(old[i].take(), None));
            i += 1;
        } else {
            rows.push(row(None, new[j].take()));
            j += 1;
        }
    }
    rows
}

/// Matches lines by line number. Both vectors are sorted by line number.
fn of_one_number(old: Vec<Line<'_>>, new: Vec<Line<'_>>) -> Vec<MatchedRow> {
    let (mut old, mut new, mut rows) = (old.into_iter().peekable(), new.into_iter().peekable(), Vec::new());
    loop {
        let (was, is) = (old.peek().map(|line| line.number), new.peek().map(|line| line.number));
        match (was, is) {
            (None, None) => return rows,
            (Some(was), Some(is)) if was == is => rows.push(row(old.next(), new.next())),
            (Some(was), is) if is.is_none_or(|is| was < is) => rows.push(row(old.next(), None)),
            _ => rows.push(row(None, new.next())),
        }
    }
}

/// How well two lines of one function match; `None` if they cannot be the same line.
fn score(old: &Line<'_>, new: &Line<'_>) -> Option<u32> {
    match (old.number == new.number, old.operator == new.operator) {
        (true, true) => Some(4),
        (false, true) => Some(3),
        (true, false) => Some(2),
        (false, false) => None,
    }
}

fn row(old: Option<Line<'_>>, new: Option<Line<'_>>) -> MatchedRow {
    let label = match (&old, &new) {
        (Some(old), Some(new)) if old.number != new.number => format!("{}, before :{}", new.label, old.number),
        (_, Some(line)) | (Some(line), None) => line.label.to_owned(),
        (None, None) => String::new(),
    };
    let of = |line: Option<Line<'_>>| line.map(|line| (line.label.to_owned(), line.row.clone()));
    MatchedRow { label, before: of(old), after: of(new) }
}
