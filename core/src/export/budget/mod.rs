//! Size budgets: a search for the largest part of a recording that fits into `max_bytes`.
//!
//! First it leaves out allocations that were freed and were not live at the peak, the smallest first, each with its
//! free. Then it leaves out the deepest scopes. Blocks that were live at the peak or are live at the end always stay.
//! So curves lose height between the peaks, but never at the highest one.
//!
//! Sizes are measured by writing to a counter instead of the output. If the whole recording is too large, the search
//! measures a small part, extrapolates how much fits, and measures again. Files fill at least nine tenths of their
//! budget. (Computing the lengths without writing would come a few per cent closer, but would need a second form of
//! every writer.)

mod left_out;
mod selection;

use std::cell::LazyCell;
use std::io::{self, Write};

pub use self::left_out::LeftOut;
use self::selection::Choices;
pub(super) use self::selection::Selection;
use crate::error::Error;
use crate::snapshot::SnapshotData;

/// The search stops when a file fills this share of the budget. A fuller file would hardly show more, and each
/// measurement costs an export.
const FULL: f64 = 0.9;
/// The share of the budget that the next measurement aims at, so that it usually fits.
const AIM: f64 = 0.97;

/// Writes the records and marks that fit into `max_bytes`.
pub(super) fn records(
    data: &SnapshotData,
    max_bytes: Option<u64>,
    out: &mut dyn Write,
    write: impl Fn(&Selection<'_>, &mut dyn Write) -> Result<(), Error>,
) -> Result<LeftOut, Error> {
    // Lazy, because the order in which to leave out allocations is not needed if the whole recording fits.
    let choices = LazyCell::new(|| Choices::of(data));
    let write = |step, left_out: &LeftOut, out: &mut dyn Write| {
        let whole = left_out.is_nothing();
        write(&if whole { Selection::default() } else { choices.selection(step, left_out.clone()) }, out)
    };
    stepwise(max_bytes, || choices.steps(), |step| choices.left_out(step), out, write)
}

/// Writes as many of at most `rows` rows as fit into `max_bytes`; `write` sums the others in one row.
pub(super) fn rows(
    max_bytes: Option<u64>,
    rows: usize,
    out: &mut dyn Write,
    write: impl Fn(usize, &LeftOut, &mut dyn Write) -> Result<(), Error>,
) -> Result<LeftOut, Error> {
    let left_out = |step: usize| LeftOut { rows: step as u64, ..LeftOut::default() };
    stepwise(max_bytes, || rows, left_out, out, |step, left_out, out| write(rows - step, left_out, out))
}

/// Writes everything if it fits into `max_bytes`. Otherwise it leaves out as little as possible: step 1 leaves out
/// least, step `most` leaves out most, and `left_out` says what a step leaves out.
pub(super) fn stepwise(
    max_bytes: Option<u64>,
    most: impl FnOnce() -> usize,
    left_out: impl Fn(usize) -> LeftOut,
    out: &mut dyn Write,
    write: impl Fn(usize, &LeftOut, &mut dyn Write) -> Result<(), Error>,
) -> Result<LeftOut, Error> {
    let (whole, max) = (LeftOut::default(), max_bytes.unwrap_or(u64::MAX));
    if max_bytes.is_none() || takes(max, |out| write(0, &whole, out))?.is_some() {
        write(0, &whole, out)?;
        return Ok(whole);
    }
    let left_out = |step, too_large| LeftOut { max_bytes: max, too_large, ..left_out(step) };
    let (step, too_large) = fitting(max, most(), |step| takes(max, |out| write(step, &left_out(step, false), out)))?;
    let left_out = left_out(step, too_large);
    write(step, &left_out, out)?;
    Ok(left_out)
}

/// Searches for a step of 1 to `most` that fits and leaves out little more than necessary. Returns the step, and true
/// if even the last step does not fit. Each step must take fewer bytes than the one before. Interpolates between the
/// measured sizes.
fn fitting(max: u64, most: usize, takes: impl Fn(usize) -> Result<Option<u64>, Error>) -> Result<(usize, bool), Error> {
    let Some(least) = takes(most)? else { return Ok((most, true)) };
    let (mut fits, mut bytes, mut too_much) = (0, least, most);
    let mut next = most / 16;
    while (bytes as f64) < max as f64 * FULL && too_much - fits > (most / 64).max(1) {
        let kept = next.clamp(fits + 1, too_much - 1);
        if let Some(taken) = takes(most - kept)? {
            (fits, bytes) = (kept, taken);
            let bytes_each = taken.saturating_sub(least) as f64 / kept as f64;
            next = ((max as f64 * AIM - least as f64) / bytes_each) as usize;
        } else {
            too_much = kept;
            next = usize::midpoint(fits, too_much);
        }
    }
    Ok((most - fits, false))
}

/// The number of bytes written. `None` if it is more than `max`; then writing stops early.
fn takes(max: u64, write: impl FnOnce(&mut dyn Write) -> Result<(), Error>) -> Result<Option<u64>, Error> {
    let mut count = CountingWriter { taken: 0, max };
    let written = write(&mut count);
    if count.taken > max { Ok(None) } else { written.map(|()| Some(count.taken)) }
}

/// Counts bytes, and fails beyond `max`.
struct CountingWriter {
    taken: u64,
    max: u64,
}

impl Write for CountingWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.taken += bytes.len() as u64;
        if self.taken > self.max { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes.len()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::testing::two_lines_and_a_temporary;

    /// Writes one line for each record and mark.
    fn lines(data: &SnapshotData, selection: &Selection<'_>, out: &mut dyn Write) -> Result<(), Error> {
        for device in &data.devices {
            for record in device.records.iter().filter(|record| selection.shows(device.device, record)) {
                writeln!(out, "{:?} {}", record.kind, record.size)?;
            }
            for mark in device.marks.iter().filter(|mark| selection.shows_mark(mark)) {
                writeln!(out, "{}", mark.enter)?;
            }
        }
        Ok(())
    }

    fn written(max: u64) -> (String, LeftOut) {
        let data = two_lines_and_a_temporary();
        let mut out = Vec::new();
        let left_out = records(&data, Some(max), &mut out, |selection, out| lines(&data, selection, out)).unwrap();
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
    fn a_step_is_found_that_fits_and_fills_the_budget_whatever_a_step_takes() {
        let even = |kept: usize| 100 + 10 * kept as u64;
        let more_and_more = |kept: usize| (kept * kept) as u64;
        let less_and_less = |kept: usize| (10_000.0 * (kept as f64).sqrt()) as u64;
        let at_once = |kept: usize| if kept > 600 { 50_000 } else { kept as u64 };
        let all: [&dyn Fn(usize) -> u64; 4] = [&even, &more_and_more, &less_and_less, &at_once];
        for (size, most, max) in all.iter().flat_map(|size| {
            [(1, 105), (2, 115), (7, 130), (1000, 9_000), (1000, 100)].map(|(most, max)| (size, most, max))
        }) {
            let looks = std::cell::Cell::new(0);
            let takes = |step: usize| {
                looks.set(looks.get() + 1);
                Ok(Some(size(most - step)).filter(|bytes| *bytes <= max))
            };
            let (step, too_large) = fitting(max, most, takes).unwrap();
            let kept = most - step;
            assert!(too_large == (size(0) > max) && (too_large || size(kept) <= max), "{kept} of {most}");
            let is_full = size(kept) as f64 >= max as f64 * FULL || size(kept + (most / 64).max(1)) > max;
            assert!(too_large || is_full || step == 1, "{kept} of {most} take {} of {max}", size(kept));
            assert!(looks.get() <= 12, "{} looks", looks.get());
        }
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
