//! Whether the floors of a row rise.

use super::super::runs::trend;

pub(super) const INTERVALS: usize = 16;
/// The number of intervals in the warm-up, which are the first ones.
pub(super) const WARM_UP: usize = 4;

/// Whether a row grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowGrowth {
    /// The row's floor rises in every interval after the warm-up.
    Grows,
    /// The row may grow, for this reason.
    MayGrow(&'static str),
}

/// Whether a row with these floors grows or may grow; `None` if it does neither.
pub(super) fn judge(floors: &[u64]) -> Option<RowGrowth> {
    let after = floors.get(WARM_UP..)?;
    let all_rise = |floors: &[u64]| floors.windows(2).all(|pair| pair[0] < pair[1]);
    let rises_before_the_end = all_rise(after.split_last()?.1);
    let fell = floors.get(..=WARM_UP)?.windows(2).any(|pair| pair[0] > pair[1]);
    match () {
        () if rises_before_the_end && fell => {
            Some(RowGrowth::MayGrow("it fell in the warm-up, as a cache does that is cleared"))
        }
        () if all_rise(after) => Some(RowGrowth::Grows),
        () if rises_before_the_end => Some(RowGrowth::MayGrow(
            "it rose until the last interval: it may be a cache, or was freed as the program ended",
        )),
        () if goes_on(floors) => Some(RowGrowth::MayGrow("it rose, but not in every interval")),
        () => None,
    }
}

fn goes_on(floors: &[u64]) -> bool {
    let series: Vec<f64> = floors.iter().map(|bytes| *bytes as f64).collect();
    trend(&series, WARM_UP).goes_on()
}

/// The floors from the end of the warm-up on. The last one is left out if it is lower than the one before, because a
/// program that ends may free everything.
pub(super) fn judged(floors: &[u64]) -> &[u64] {
    let after = floors.get(WARM_UP..).unwrap_or_default();
    match after {
        [front @ .., before, last] if last < before => &after[..=front.len()],
        _ => after,
    }
}
