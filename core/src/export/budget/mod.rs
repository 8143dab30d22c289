//! Files that keep to a size: what is shown of a log, and how much of it fits.
//!
//! The rule: allocations that were freed again and were not live at the peak are left out, alloc and
//! free together, the smallest first; then the scopes that lie deepest. What was live at the peak or is
//! live at the end always stays, so the peak is never lost, whatever the budget.

mod count;
mod left_out;
mod selection;

use std::io::Write;

pub(super) use self::count::Count;
pub use self::left_out::LeftOut;
use self::selection::Choices;
pub(super) use self::selection::Selection;
use crate::error::Error;
use crate::snapshot::SnapshotData;

/// Shows records and marks so that they take at most `max_bytes`, if they can. `count` takes what a selection takes,
/// `write` writes the one that was found.
pub(super) fn records(
    data: &SnapshotData,
    max_bytes: Option<u64>,
    count: impl Fn(&Selection<'_>, &mut Count) -> Result<(), Error>,
    write: impl FnOnce(&Selection<'_>) -> Result<(), Error>,
) -> Result<LeftOut, Error> {
    let whole = Selection::default();
    let Some(max) = max_bytes else {
        write(&whole)?;
        return Ok(LeftOut::default());
    };
    let most = takes(|out| count(&whole, out))?;
    if most <= max {
        write(&whole)?;
        return Ok(LeftOut::default());
    }
    let choices = Choices::of(data, max);
    let least = takes(|out| count(&choices.without_records(), out))?;
    let guesses = choices.guesses(most, least);
    let fits = |step| fits(max, |out| count(&choices.selection(step, false), out));
    let (step, too_large) = fitting(choices.steps(), guesses, fits)?;
    let selection = choices.selection(step, too_large);
    write(&selection)?;
    Ok(selection.left_out)
}

/// Writes tables or stacks so that they take at most `max_bytes`, if they can, by keeping fewer of at
/// most `rows` rows apart.
pub fn rows(
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

/// How much is written.
fn takes(write: impl FnOnce(&mut Count) -> Result<(), Error>) -> Result<u64, Error> {
    let mut count = Count::default();
    write(&mut count)?;
    Ok(count.taken())
}

/// Does what is written take at most `max` bytes? Writing stops as soon as that is answered.
fn fits(max: u64, write: impl FnOnce(&mut Count) -> Result<(), Error>) -> Result<bool, Error> {
    let mut count = Count::up_to(max);
    match write(&mut count) {
        Err(_) if count.is_over() => Ok(false),
        written => written.map(|()| !count.is_over()),
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
        let count = |selection: &Selection<'_>, count: &mut Count| lines(&data, selection, count);
        let left_out = records(&data, Some(max), count, |selection| lines(&data, selection, &mut out)).unwrap();
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
