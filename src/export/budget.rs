//! Files that keep to a size: what is shown of a log, and how much of it fits.
//!
//! The rule: allocations that were freed again and were not live at the peak are left out, alloc and
//! free together, the smallest first; then the scopes that lie deepest. What was live at the peak or is
//! live at the end always stays, so the peak is never lost, whatever the budget.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io::{self, Write};

use crate::error::Error;
use crate::snapshot::{Device, DeviceSnapshot, Mark, Record, RecordKind, SnapshotData};
use crate::units::{Bytes, grouped};

/// What an export left out to keep to its `max_bytes`. Prints as a sentence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeftOut {
    /// Allocations, with their frees.
    pub allocations: u64,
    /// The size of the largest of them.
    pub largest: u64,
    /// Scopes nested deeper than this.
    pub scopes_below: Option<usize>,
    /// Rows or stacks that stand together in one.
    pub rows: u64,
    /// Records at the log's beginning.
    pub oldest_records: u64,
    /// Blocks of at most this size, outside the row of the peak.
    pub blocks_up_to: Option<u64>,
    /// The budget.
    pub max_bytes: u64,
    /// The file is larger than the budget all the same: what may not be left out takes more.
    pub too_large: bool,
}

impl LeftOut {
    /// Everything is there.
    pub fn is_nothing(&self) -> bool {
        *self == Self { max_bytes: self.max_bytes, ..Self::default() }
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if self.allocations > 0 {
            let (count, largest) = (grouped(self.allocations), Bytes(self.largest));
            let why = "freed before the end and not live at the peak";
            parts.push(format!("{count} allocations of at most {largest}, {why}"));
        }
        if let Some(depth) = self.scopes_below {
            parts.push(format!("scopes nested deeper than {depth}"));
        }
        if self.rows > 0 {
            parts.push(format!("{} of the smallest rows, summed in one", grouped(self.rows)));
        }
        if self.oldest_records > 0 {
            parts.push(format!("the {} oldest records", grouped(self.oldest_records)));
        }
        if let Some(size) = self.blocks_up_to {
            parts.push(format!("blocks of at most {}, but for the row of the peak", Bytes(size)));
        }
        let budget = Bytes(self.max_bytes);
        match (parts.is_empty(), self.too_large) {
            (true, false) => f.write_str("nothing was left out"),
            (true, true) => write!(f, "nothing can be left out, though it takes more than {budget}"),
            (false, false) => write!(f, "left out to keep to {budget}: {}", parts.join("; ")),
            (false, true) => {
                write!(f, "left out, though the rest still takes more than {budget}: {}", parts.join("; "))
            }
        }
    }
}

/// Position in the order in which allocations are left out: by size, then device and age.
type Rank = (u64, Device, u64);

/// Which records and marks an export shows.
#[derive(Debug, Default)]
pub(super) struct Selection<'a> {
    /// Allocations that rank below are not shown, but for those that are kept.
    cut: Option<(Rank, &'a HashMap<Device, HashSet<u64>>)>,
    max_depth: Option<usize>,
    pub(super) left_out: LeftOut,
    /// Records that were shown so far.
    shown: Cell<usize>,
}

impl Selection<'_> {
    /// The records to show, oldest first.
    pub(super) fn records<'d>(&self, device: &'d DeviceSnapshot) -> impl Iterator<Item = &'d Record> {
        device.records.iter().filter(move |record| self.shows(device.device, record))
    }

    /// Is this record shown? An alloc and its free are or are not together.
    pub(super) fn shows(&self, device: Device, record: &Record) -> bool {
        let shown = self.cut.as_ref().is_none_or(|(cut, kept)| {
            (record.size, device, record.alloc_seq) >= *cut
                || kept.get(&device).is_some_and(|kept| kept.contains(&record.alloc_seq))
        });
        self.shown.set(self.shown.get() + usize::from(shown));
        shown
    }

    /// Is this mark's scope shown?
    pub(super) fn shows_mark(&self, data: &SnapshotData, mark: &Mark) -> bool {
        self.max_depth.is_none_or(|depth| data.context_ids(mark.context).len() <= depth)
    }
}

/// Writes records and marks so that they take at most `max_bytes`, if they can. `at_most` is an upper
/// bound of the size of everything.
pub(super) fn records(
    data: &SnapshotData,
    max_bytes: Option<u64>,
    at_most: u64,
    out: &mut dyn Write,
    write: impl Fn(&Selection<'_>, &mut dyn Write) -> Result<(), Error>,
) -> Result<LeftOut, Error> {
    let Some(max) = max_bytes.filter(|max| *max < at_most) else {
        write(&Selection::default(), out)?;
        return Ok(LeftOut::default());
    };
    let whole = Selection::default();
    if fits(max, |out| write(&whole, out))? {
        write(&Selection::default(), out)?;
        return Ok(LeftOut::default());
    }
    let choices = Choices::of(data, max);
    let guesses = choices.guesses(whole.shown.get());
    let fits = |step| fits(max, |out| write(&choices.selection(step, false), out));
    let step = fitting(choices.steps(), guesses, fits)?;
    let selection = choices.selection(step.0, step.1);
    write(&selection, out)?;
    Ok(selection.left_out)
}

/// Writes tables or stacks so that they take at most `max_bytes`, if they can, by keeping fewer of at
/// most `rows` rows apart.
pub(crate) fn rows(
    max_bytes: Option<u64>,
    rows: usize,
    out: &mut dyn Write,
    write: impl Fn(usize, &LeftOut, &mut dyn Write) -> Result<(), Error>,
) -> Result<LeftOut, Error> {
    let left_out = |step: usize| LeftOut { rows: step as u64, ..LeftOut::default() };
    stepwise(max_bytes, rows, left_out, out, |step, left_out, out| write(rows - step, left_out, out))
}

/// Writes everything, or as many of the `most` steps less as it takes to keep to `max_bytes`; `left_out`
/// says what a step means.
pub(super) fn stepwise(
    max_bytes: Option<u64>,
    most: usize,
    left_out: impl Fn(usize) -> LeftOut,
    out: &mut dyn Write,
    write: impl Fn(usize, &LeftOut, &mut dyn Write) -> Result<(), Error>,
) -> Result<LeftOut, Error> {
    let whole = LeftOut::default();
    let Some(max) = max_bytes else {
        write(0, &whole, out)?;
        return Ok(whole);
    };
    if fits(max, |out| write(0, &whole, out))? {
        write(0, &whole, out)?;
        return Ok(whole);
    }
    let left_out = |step, too_large| LeftOut { max_bytes: max, too_large, ..left_out(step) };
    let fits = |step: usize| fits(max, |out| write(step, &left_out(step, false), out));
    let (step, too_large) = fitting(most, [], fits)?;
    let left_out = left_out(step, too_large);
    write(step, &left_out, out)?;
    Ok(left_out)
}

/// The smallest step of 1 to `most` that fits, or nearly so, or the first of the guesses that does; true if even the
/// last step does not. Each step takes less than the one before.
fn fitting(
    most: usize,
    guesses: impl IntoIterator<Item = usize>,
    fits: impl Fn(usize) -> Result<bool, Error>,
) -> Result<(usize, bool), Error> {
    for guess in guesses.into_iter().filter(|guess| (1..most).contains(guess)) {
        if fits(guess)? {
            return Ok((guess, false));
        }
    }
    if !fits(most)? {
        return Ok((most, true));
    }
    // Halving: each look costs an export to nowhere, and a few per cent more would show nothing new.
    let (mut too_few, mut enough) = (0, most);
    while enough - too_few > (most / 64).max(1) {
        let middle = usize::midpoint(too_few, enough);
        if fits(middle)? { enough = middle } else { too_few = middle }
    }
    Ok((enough, false))
}

/// What can be left out, in order.
struct Choices {
    /// Sorted.
    candidates: Vec<Rank>,
    /// Of all devices.
    records: usize,
    /// What was live at the peak or is live at the end.
    kept: HashMap<Device, HashSet<u64>>,
    deepest: usize,
    max_bytes: u64,
}

impl Choices {
    fn of(data: &SnapshotData, max_bytes: u64) -> Self {
        let records = data.devices.iter().map(|device| device.records.len()).sum();
        let mut choices = Self { candidates: Vec::new(), records, kept: HashMap::new(), deepest: 0, max_bytes };
        for device in &data.devices {
            let blocks = device.live.iter().chain(&device.peak.blocks);
            let kept: HashSet<u64> = blocks.map(|block| block.seq).collect();
            choices.candidates.extend(candidates(device, &kept));
            choices.kept.insert(device.device, kept);
            let depth = |mark: &Mark| data.context_ids(mark.context).len();
            choices.deepest = device.marks.iter().map(depth).max().unwrap_or(0).max(choices.deepest);
        }
        choices.candidates.sort_unstable();
        choices
    }

    fn steps(&self) -> usize {
        self.candidates.len() + self.deepest
    }

    /// Steps that nearly fit, if so many records did when everything was tried: of all, about as many may stay.
    fn guesses(&self, fitting: usize) -> impl Iterator<Item = usize> {
        let records = self.records;
        // A pair is two records.
        let without = move |percent: usize| records.saturating_sub(fitting / 100 * percent).div_ceil(2);
        let most = self.candidates.len();
        [98, 94, 88].into_iter().map(without).filter(move |step| *step <= most)
    }

    /// Without the first `step` of what can be left out.
    fn selection(&self, step: usize, too_large: bool) -> Selection<'_> {
        let beyond = (u64::MAX, Device::Imported, u64::MAX);
        let cut = self.candidates.get(step).copied().unwrap_or(beyond);
        let allocations = step.min(self.candidates.len());
        let largest = allocations.checked_sub(1).and_then(|last| self.candidates.get(last)).map_or(0, |rank| rank.0);
        let levels = step - allocations;
        let max_depth = (levels > 0).then(|| self.deepest.saturating_sub(levels));
        let left_out = LeftOut {
            allocations: allocations as u64,
            largest,
            scopes_below: max_depth,
            max_bytes: self.max_bytes,
            too_large,
            ..LeftOut::default()
        };
        Selection { cut: Some((cut, &self.kept)), max_depth, left_out, shown: Cell::new(0) }
    }
}

/// The allocations of a log that need not be kept, and the frees whose allocs it no longer holds.
fn candidates<'a>(device: &'a DeviceSnapshot, kept: &'a HashSet<u64>) -> impl Iterator<Item = Rank> + 'a {
    let allocs = device.records.iter().filter(|record| record.kind == RecordKind::Alloc);
    let first = allocs.map(|record| record.alloc_seq).min().unwrap_or(u64::MAX);
    let once = move |record: &&Record| record.kind == RecordKind::Alloc || record.alloc_seq < first;
    let free = move |record: &&Record| !kept.contains(&record.alloc_seq);
    device.records.iter().filter(once).filter(free).map(|record| (record.size, device.device, record.alloc_seq))
}

/// Does what is written take at most `max` bytes? Writing stops as soon as that is answered.
fn fits(max: u64, write: impl FnOnce(&mut dyn Write) -> Result<(), Error>) -> Result<bool, Error> {
    let mut count = Count { left: max, over: false };
    match write(&mut count) {
        Err(_) if count.over => Ok(false),
        written => written.map(|()| true),
    }
}

/// Takes so many bytes and fails at one more.
struct Count {
    left: u64,
    over: bool,
}

impl Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.left.checked_sub(bytes.len() as u64) {
            Some(left) => {
                self.left = left;
                Ok(bytes.len())
            }
            None => {
                self.over = true;
                Err(io::ErrorKind::FileTooLarge.into())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::testing::two_lines_and_a_temporary;

    /// One line a record and mark.
    fn lines(data: &SnapshotData, selection: &Selection<'_>, out: &mut dyn Write) -> Result<(), Error> {
        for device in &data.devices {
            for record in selection.records(device) {
                writeln!(out, "{:?} {}", record.kind, record.size)?;
            }
            for mark in device.marks.iter().filter(|mark| selection.shows_mark(data, mark)) {
                writeln!(out, "{}", mark.enter)?;
            }
        }
        Ok(())
    }

    fn written(max: u64) -> (String, LeftOut) {
        let data = two_lines_and_a_temporary();
        let mut out = Vec::new();
        let left_out = records(&data, Some(max), u64::MAX, &mut out, |s, out| lines(&data, s, out)).unwrap();
        (String::from_utf8(out).unwrap(), left_out)
    }

    #[test]
    fn pairs_go_first_then_scopes_and_never_the_peak() {
        let whole = "Alloc 2000\nAlloc 1000\nAlloc 500\nFree 1000\nAlloc 64\nFree 64\ntrue\nfalse\n";
        let without_temporary = "Alloc 2000\nAlloc 1000\nAlloc 500\nFree 1000\ntrue\nfalse\n";
        let peak = "Alloc 2000\nAlloc 1000\nAlloc 500\nFree 1000\n";
        for (max, text) in [(1000, whole), (60, without_temporary), (45, peak), (3, peak)] {
            assert_eq!(written(max).0, text, "{max}");
        }
        assert!(written(1000).1.is_nothing());
        let sentence =
            "left out to keep to 60 B: 1 allocations of at most 64 B, freed before the end and not live at the peak";
        assert_eq!(written(60).1.to_string(), sentence);
        let (_, all) = written(3);
        assert!(all.too_large && all.scopes_below == Some(0), "{all}");
    }

    #[test]
    fn the_first_step_that_fits_is_found() {
        for (most, max) in [(1, 10), (7, 4), (50, 33), (60, 0)] {
            let fits = |step: usize| Ok(most - step <= max);
            assert_eq!(fitting(most, [], fits).unwrap(), (most.saturating_sub(max).max(1), false));
        }
        assert_eq!(fitting(9, [0, 3, 5, 7, 9], |step| Ok(step > 4)).unwrap(), (5, false), "the first guess that fits");
        assert_eq!(fitting(5, [3], |_| Ok(false)).unwrap(), (5, true));
    }

    #[test]
    fn rows_are_written_whole_if_they_fit() {
        let write = |rows: usize, left: &LeftOut, out: &mut dyn Write| {
            (0..rows).try_for_each(|_| out.write_all(b"0123456789"))?;
            if !left.is_nothing() {
                out.write_all(b"!")?;
            }
            Ok(())
        };
        for (max, length) in [(None, 80), (Some(80), 80), (Some(79), 71), (Some(35), 31), (Some(0), 1)] {
            let mut out = Vec::new();
            let left_out = rows(max, 8, &mut out, write).unwrap();
            assert_eq!(out.len(), length, "{max:?}");
            assert_eq!(left_out.rows as usize, 8 - length / 10);
        }
    }
}
