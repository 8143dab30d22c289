//! The blocks of a recording, from its tables, and the differences between two recordings.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::Path;

use anyhow::{Result, ensure};
use serde::Deserialize;

/// What equal blocks have in common. Their addresses, times and threads may differ.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    device: String,
    line: String,
    operator: String,
    category: String,
    size: u64,
    is_at_peak: bool,
}

type Counts = BTreeMap<Row, usize>;

/// How many blocks each row has.
pub(super) struct Rows(Counts);

#[derive(Deserialize)]
struct Block {
    device: String,
    size: Option<u64>,
    stack: Option<u64>,
    peak_bytes: Option<u64>,
    category: String,
}

#[derive(Deserialize)]
struct Stack {
    stack: u64,
    line: String,
    operator: String,
}

impl Rows {
    /// Reads a folder of tables.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let mut stacks = HashMap::new();
        for stack in csv::Reader::from_path(folder.join("stacks.csv"))?.deserialize() {
            let Stack { stack, line, operator } = stack?;
            stacks.insert(stack, (line, operator));
        }
        let mut rows = Counts::new();
        for block in csv::Reader::from_path(folder.join("blocks.csv"))?.deserialize() {
            let Block { device, size: Some(size), stack, peak_bytes, category } = block? else { continue };
            let (line, operator) = stack.and_then(|stack| stacks.get(&stack)).cloned().unwrap_or_default();
            let row = Row { device, line, operator, category, size, is_at_peak: peak_bytes.is_some() };
            *rows.entry(row).or_default() += 1;
        }
        Ok(Self(rows))
    }

    /// Fails if the recordings differ in anything that the kind of machine does not explain. Prints the explained
    /// differences by line.
    pub(super) fn compare(&self, there: &Self) -> Result<String> {
        let (mut here, mut there) = (self.without(there), there.without(self));
        let equal = self.0.values().sum::<usize>() - here.values().sum::<usize>();
        let mut explained: BTreeMap<(&str, String), usize> = BTreeMap::new();
        let mut explain = |reason, row: &Row, count| *explained.entry((reason, row.line.clone())).or_default() += count;
        for (reason, counterpart) in COUNTERPARTS {
            take_pairs(&mut here, &mut there, counterpart, |row, count| explain(reason, row, count));
        }
        for (reason, is_own) in OWN {
            for rows in [&mut here, &mut there] {
                rows.extract_if(.., |row, _| is_own(row)).for_each(|(row, count)| explain(reason, &row, count));
            }
        }
        let left: Vec<String> = [("here", here), ("there", there)].into_iter().flat_map(named).collect();
        ensure!(left.is_empty(), "{equal} blocks are equal; only\n      {}", left.join("\n      "));
        explained.iter().for_each(|((reason, line), count)| println!("      {count} differ: {reason}: {line}"));
        Ok(format!("{equal} blocks are equal, {} are the machine's", explained.values().sum::<usize>()))
    }

    fn without(&self, other: &Self) -> Counts {
        let more = |(row, count): (&Row, &usize)| {
            let more = count.saturating_sub(other.0.get(row).copied().unwrap_or(0));
            (more > 0).then(|| (row.clone(), more))
        };
        self.0.iter().filter_map(more).collect()
    }
}

fn named((machine, rows): (&str, Counts)) -> Vec<String> {
    rows.into_iter().map(|(row, count)| format!("{machine}: {count} of {row}")).collect()
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, line, operator, category, size, is_at_peak } = self;
        let at_peak = if *is_at_peak { ", at the peak" } else { "" };
        write!(f, "{size} bytes on {device}, {category}, {operator}, {line}{at_peak}")
    }
}

/// Converts a row of this machine to its counterpart on the other one.
type Counterpart = fn(&Row) -> Row;

/// These apply only to the heap, because a GPU's blocks are the same.
const COUNTERPARTS: [(&str, Counterpart); 2] = [
    // hashbrown looks at 16 slots at once with SSE2, and at 8 with NEON. The end of a table has as many additional
    // bytes.
    ("a hash table", |row| Row { size: row.size.saturating_sub(8), ..row.clone() }),
    // The allocations in between decide whether a block counts as freed soon.
    ("more buffers in between", |row| Row { category: "unknown".to_owned(), ..row.clone() }),
];

/// Whether such a row may exist on only one kind of machine.
type IsOwn = fn(&Row) -> bool;

const OWN: [(&str, IsOwn); 2] = [
    ("a buffer of a matrix kernel", |row| row.device == "cpu" && row.category == "WORKSPACE"),
    ("a buffer of C's library", |row| row.device == "cpu" && row.line == "(no names)"),
];

/// Removes pairs of counterparts from both.
fn take_pairs(here: &mut Counts, there: &mut Counts, counterpart: Counterpart, mut taken: impl FnMut(&Row, usize)) {
    for (row, count) in here.iter_mut().filter(|(row, _)| row.device == "cpu") {
        let Some(other) = there.get_mut(&counterpart(row)) else { continue };
        let pairs = (*count).min(*other);
        *count -= pairs;
        *other -= pairs;
        taken(row, pairs);
    }
    [here, there].into_iter().for_each(|rows| rows.retain(|_, count| *count > 0));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &[(&str, &str, u64, usize)]) -> Rows {
        let row = |&(device, category, size, count): &(&str, &str, u64, usize)| {
            let [line, operator] = ["main.rs:1", "add"].map(str::to_owned);
            let (device, category) = (device.to_owned(), category.to_owned());
            (Row { device, line, operator, category, size, is_at_peak: false }, count)
        };
        Rows(text.iter().map(row).collect())
    }

    #[test]
    fn only_what_the_machine_explains_may_differ() {
        let here = rows(&[("cpu", "TEMPORARY", 1616, 3), ("cuda:0", "TEMPORARY", 1616, 2)]);
        let compare =
            |there: &[(&str, &str, u64, usize)]| here.compare(&rows(there)).map_err(|error| error.to_string());
        let gpu = ("cuda:0", "TEMPORARY", 1616, 2);
        assert_eq!(compare(&[("cpu", "TEMPORARY", 1616, 3), gpu]).unwrap(), "5 blocks are equal, 0 are the machine's");
        let table = [("cpu", "TEMPORARY", 1608, 1), ("cpu", "TEMPORARY", 1616, 2), gpu];
        assert_eq!(compare(&table).unwrap(), "4 blocks are equal, 1 are the machine's");
        let buffers = [("cpu", "unknown", 1616, 3), ("cpu", "WORKSPACE", 7, 9), gpu];
        assert_eq!(compare(&buffers).unwrap(), "2 blocks are equal, 12 are the machine's");
        // One block too few, another size on a GPU, and another category.
        assert!(compare(&[("cpu", "TEMPORARY", 1608, 2), gpu]).unwrap_err().contains("here: 1 of 1616 bytes on cpu"));
        let size = [("cpu", "TEMPORARY", 1616, 3), ("cuda:0", "TEMPORARY", 1608, 2)];
        assert!(compare(&size).unwrap_err().contains("there: 2 of 1608 bytes on cuda:0, TEMPORARY, add, main.rs:1"));
        compare(&[("cpu", "PARAMETER", 1616, 3), gpu]).unwrap_err();
    }
}
