//! The ranges that the program mapped, each with its stack.

use std::ops::Range;
use std::sync::Mutex;

use memtrace_core::snapshot::StackId;

use super::ProgramsRange;
use crate::record::fork;
use crate::record::lock::lock;
use crate::record::memory::{OwnVec, System, try_push};

/// Sorted by address, without overlaps. Locked only while forks are prevented. A signal handler may call `mmap`,
/// unlike `malloc`, so the wait is short: if preventing forks takes long, the range is not stored, and has no line
/// in the recording.
static PROGRAMS: Mutex<OwnVec<ProgramsRange>> = Mutex::new(OwnVec::new_in(System));
/// Limit on the number of ranges. Further ranges have no line in the recording.
const MOST: usize = 1 << 16;

pub(crate) fn programs() -> Vec<ProgramsRange> {
    with(|ranges| ranges.to_vec())
}

/// Called when the program has mapped a range, perhaps over an earlier one.
pub(crate) fn add(at: Range<usize>, stack: StackId) {
    with(|ranges| {
        cut(ranges, &at);
        if ranges.len() < MOST {
            put(ranges, ProgramsRange { at, stack });
        }
    });
}

/// Called when a range is not mapped any more. Returns the stack of the call that mapped the range's first byte.
pub(crate) fn remove(at: &Range<usize>) -> Option<StackId> {
    with(|ranges| {
        let first = ranges.iter().find(|range| range.at.contains(&at.start)).map(|range| range.stack);
        cut(ranges, at);
        first
    })
}

/// Forgets the ranges of an earlier recording.
pub(crate) fn forget() {
    with(OwnVec::clear);
}

fn with<T: Default>(act: impl FnOnce(&mut OwnVec<ProgramsRange>) -> T) -> T {
    let Some(_no_fork) = fork::no_fork_soon() else { return T::default() };
    act(&mut lock(&PROGRAMS))
}

/// Removes the parts of ranges that lie within `gone`.
fn cut(ranges: &mut OwnVec<ProgramsRange>, gone: &Range<usize>) {
    let first = ranges.partition_point(|range| range.at.end <= gone.start);
    let Some(range) = ranges.get_mut(first) else { return };
    if range.at.start < gone.start {
        let behind = ProgramsRange { at: gone.end..range.at.end, stack: range.stack };
        range.at.end = gone.start;
        if !behind.at.is_empty() {
            return put(ranges, behind);
        }
    }
    ranges.retain(|range| !(gone.start <= range.at.start && range.at.end <= gone.end));
    let next = ranges.partition_point(|range| range.at.end <= gone.start);
    if let Some(range) = ranges.get_mut(next) {
        range.at.start = range.at.start.max(gone.end);
    }
}

fn put(ranges: &mut OwnVec<ProgramsRange>, new: ProgramsRange) {
    let place = ranges.partition_point(|range| range.at.start < new.at.start);
    if try_push(ranges, new) {
        ranges.get_mut(place..).into_iter().for_each(|rest| rest.rotate_right(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares page by page.
    #[test]
    fn ranges_are_those_of_an_oracle_of_pages() {
        let mut ranges = OwnVec::new_in(System);
        let mut pages = [0u32; 64];
        let mut random = 7u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        for step in 1..20_000 {
            let start = next(64) as usize;
            let at = start..start + 1 + next(64 - start as u64) as usize;
            let number = if next(2) == 0 { step } else { 0 };
            cut(&mut ranges, &at);
            if number > 0 {
                put(&mut ranges, ProgramsRange { at: at.clone(), stack: StackId(number) });
            }
            pages[at].fill(number);
            let mut found = [0u32; 64];
            ranges.iter().for_each(|range| found[range.at.clone()].fill(range.stack.0));
            assert_eq!(found, pages, "step {step}");
            assert!(ranges.iter().all(|range| !range.at.is_empty()));
            assert!(ranges.windows(2).all(|two| two[0].at.end <= two[1].at.start), "{ranges:?}");
        }
    }
}
