//! What repeated runs leak.

use super::samples::{BlockOrigin, LiveTotals, Samples};
use super::slope::{ends_higher, is_frequent, rise, trend};
use crate::attribute::Origin;
use crate::snapshot::{Frame, SnapshotData, StackId};

/// Bytes per run below which rare growth is no leak: a thread pool that occasionally adds a thread stays below.
const LEAST_RISE: f64 = 4.0;

/// Functions of the standard library that add to the text of a test.
const KEEPS_TEXT: [&str; 2] = ["std::io::stdio::print_to_buffer_if_capture_used", "std::panicking::default_hook"];

/// What the code's own threads leak: in stacks, or in a line or the whole that many stacks share.
///
/// `lines` is asked only if the verdict may depend on it. What it makes says which origin stands for all of a line, and
/// `None` for what does not count.
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

/// The largest first.
fn sorted(mut leaks: Vec<(BlockOrigin, LiveTotals)>) -> Vec<(BlockOrigin, LiveTotals)> {
    leaks.sort_by_key(|(origin, held)| (std::cmp::Reverse(held.bytes), origin.stack));
    leaks
}

/// Text that the test harness keeps of what is printed, also of a panic's message. What the printed values allocate is theirs.
pub fn is_the_harnesses(data: &SnapshotData, stack: StackId) -> bool {
    let is_kept = |frame: &Frame| KEEPS_TEXT.iter().any(|function| frame.function_or_empty().starts_with(function));
    let rules = &data.settings.rules;
    let inner = data.stacks.frames(stack).find(|frame| is_kept(frame) || Origin::of(rules, frame) != Origin::Std);
    inner.is_some_and(is_kept)
}
