//! What the macros come down to.
#![allow(missing_docs, reason = "called by the macros alone")]

use super::failure::Failure;
use super::growth::GrowthWatch;
use super::leak::LeakWatch;
use super::measure::OpenMeasure;
use super::scaling::ScalingWatch;
pub use super::{NoGrowth, NoLeak, PeakLimit, Scales};

/// Begins to measure, or says what is wrong.
#[track_caller]
pub fn begin_peak(limit: &PeakLimit) -> OpenMeasure {
    or_panic("assert_peak!", limit.begin())
}

/// Ends a measurement and holds it against the limit.
#[track_caller]
pub fn end_peak(limit: &PeakLimit, open: OpenMeasure) {
    or_panic("assert_peak!", limit.check(&open.end()));
}

#[track_caller]
pub fn begin_leak(plan: NoLeak) -> LeakWatch {
    or_panic("assert_no_leak!", plan.begin())
}

#[track_caller]
pub fn end_leak(watch: LeakWatch) {
    or_panic("assert_no_leak!", watch.finish());
}

#[track_caller]
pub fn begin_growth(plan: NoGrowth) -> GrowthWatch {
    or_panic("assert_no_growth!", plan.begin())
}

#[track_caller]
pub fn end_growth(watch: GrowthWatch) {
    or_panic("assert_no_growth!", watch.finish());
}

#[track_caller]
pub fn begin_scaling(plan: &Scales) -> ScalingWatch<'_> {
    or_panic("assert_scaling!", plan.begin())
}

#[track_caller]
pub fn next_size(watch: &mut ScalingWatch<'_>) -> Option<usize> {
    or_panic("assert_scaling!", watch.next_size())
}

#[track_caller]
pub fn end_scaling(watch: ScalingWatch<'_>) {
    or_panic("assert_scaling!", watch.finish());
}

/// Bytes that memtrace itself holds through the watched allocator; a constant once warm.
pub fn own_bytes() -> i64 {
    crate::record::untraced::own()
}

#[track_caller]
fn or_panic<T>(name: &str, result: Result<T, Failure>) -> T {
    match result {
        Ok(value) => value,
        Err(failure) => panic!("{name}: {failure}"),
    }
}
