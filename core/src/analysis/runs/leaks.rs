//! The leaks of repeated runs.

use super::samples::{BlockOrigin, LiveTotals, Samples};
use super::slope::{ends_higher, is_frequent, rise, trend};
use crate::attribute::Origin;
use crate::snapshot::{Frame, SnapshotData, StackId};

/// Bytes per run. Rare growth below this is no leak: a thread pool that occasionally adds a thread stays below it.
const LEAST_RISE: f64 = 4.0;

/// Functions of the standard library that add to the output that a test captures.
const KEEPS_TEXT: [&str; 2] = ["std::io::stdio::print_to_buffer_if_capture_used", "std::panicking::default_hook"];

/// The leaks of the code's own threads, without helper threads. A leak may be in a single stack, or only in the sum
/// of several stacks: those of a line, or all.
///
/// `lines` is called only if the verdict may depend on it. It returns a function that maps an origin to the one that
/// stands for its line, or to `None` if the origin does not count.
pub fn leaks_of_its_own<L: Fn(&BlockOrigin) -> Option<BlockOrigin>>(
    samples: &Samples,
    warmup: usize,
    lines: impl FnOnce() -> L,
) -> Vec<(BlockOrigin, LiveTotals)> {
    let leaking = |samples: &Samples| leaks(samples, warmup).into_iter().any(|(origin, _)| !origin.of_helper);
    if ![samples, &samples.as_one(), &samples.risen().as_one()].into_iter().any(leaking) {
        return Vec::new();
    }
    let line = lines();
    let samples = samples.under(|origin| line(origin).filter(|_| !origin.of_helper).map(|_| *origin));
    let stacks = leaks(&samples, warmup);
    if !stacks.is_empty() || !(leaking(&samples.as_one()) || leaking(&samples.under(line))) {
        return stacks;
    }
    let risen = samples.risen();
    sorted(risen.origins().into_iter().map(|origin| (origin, risen.gained(&origin, warmup))).collect())
}

/// What each stack has leaked since the warm-up.
pub fn leaks(samples: &Samples, warmup: usize) -> Vec<(BlockOrigin, LiveTotals)> {
    let half = warmup.max(samples.runs() / 2);
    let grows = |series: &[f64]| ends_higher(series) && trend(series, half).goes_on();
    let leaks = |origin: &BlockOrigin| {
        let bytes = samples.bytes(origin);
        let blocks = samples.blocks(origin);
        // Growth in every few runs matters; rarer growth matters if it is large.
        let frequent = is_frequent(&blocks, half) || is_frequent(&bytes, half);
        let matters = frequent || !origin.of_helper && rise(&bytes, half) >= LEAST_RISE;
        (grows(&blocks) || grows(&bytes)) && matters || samples.doubles(origin, warmup)
    };
    let origins = samples.origins().into_iter().filter(leaks);
    sorted(origins.map(|origin| (origin, samples.gained(&origin, warmup))).collect())
}

fn sorted(mut leaks: Vec<(BlockOrigin, LiveTotals)>) -> Vec<(BlockOrigin, LiveTotals)> {
    leaks.sort_by_key(|(origin, held)| (std::cmp::Reverse(held.bytes), origin.stack));
    leaks
}

/// Whether the stack belongs to output that the test harness keeps, including a panic's message. Blocks that the
/// printed values allocate do not belong to it.
pub fn is_the_harnesses(data: &SnapshotData, stack: StackId) -> bool {
    let is_kept = |frame: &Frame| KEEPS_TEXT.iter().any(|function| frame.function_or_empty().starts_with(function));
    let rules = &data.settings.rules;
    let inner = data.stacks.frames(stack).find(|frame| is_kept(frame) || Origin::of(rules, frame) != Origin::Std);
    inner.is_some_and(is_kept)
}
