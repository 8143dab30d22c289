//! Growth as JSON.

use super::text::text_of;
use crate::analysis::{GrowingRow, Growth, RowGrowth};
use crate::error::Error;
use crate::figures::figures;
use crate::report::growth_answer;

/// Increases when a key is removed or changes its meaning.
const VERSION: u32 = 1;

figures! {
    struct GrowthDocument<'a>(recordings: Vec<GrowthFigures<'a>>) {
        version: u32 = VERSION,
        recordings: Vec<GrowthFigures<'a>> = recordings,
    }

    /// All figures are bytes or nanoseconds.
    struct GrowthFigures<'a>(name: &'a str, growth: &'a Growth)
        let grows = growth.grows();
    {
        /// The rank or the file of the recording; null if there is only one recording.
        name: Option<&'a str> = (!name.is_empty()).then_some(name),
        device: String = growth.device.to_string(),
        by: &'static str = growth.key.word(),
        answer: Vec<String> = growth_answer(growth),
        /// Whether anything grows; null if that is undecided.
        grows: Option<bool> = grows,
        /// Why it is undecided whether anything grows, if one reason applies to all rows.
        undecided: Option<&'static str> = growth.undecided.filter(|_| grows.is_none()),
        is_estimate: bool = growth.is_estimate,
        bytes_per_minute: u64 = growth.per_minute(),
        interval_ns: u64 = growth.interval_ns,
        intervals_before_log: usize = growth.older,
        live_at_end_bytes: u64 = growth.at_end,
        below_threshold_bytes: u64 = growth.below_threshold,
        capacity_bytes: Option<u64> = growth.capacity,
        full_in_ns: Option<u64> = growth.full_in_ns(),
        rows: Vec<RowFigures<'a>> = growth.rows.iter().map(RowFigures::of).collect(),
    }

    struct RowFigures<'a>(row: &'a GrowingRow) {
        label: &'a str = &row.label,
        grows: bool = row.growth == RowGrowth::Grows,
        /// Why it is only possible that the row grows; null if it grows.
        unsure: Option<&'static str> = match row.growth {
            RowGrowth::Grows => None,
            RowGrowth::MayGrow(why) => Some(why),
        },
        bytes_per_minute: u64 = row.per_minute,
        least_bytes_per_minute: u64 = row.least_per_minute,
        most_bytes_per_minute: u64 = row.most_per_minute,
        risen_bytes: u64 = row.risen,
        at_end_bytes: u64 = row.at_end,
        since_ns: u64 = row.since_ns,
    }
}

/// The growth in recordings, as JSON. Each recording has its name, which is empty if there is only one.
///
/// # Errors
/// Never, because text can always be written.
pub fn growth_json<'a>(all: impl IntoIterator<Item = (&'a str, &'a Growth)>) -> Result<String, Error> {
    let recordings = all.into_iter().map(|(name, growth)| GrowthFigures::of(name, growth)).collect();
    text_of(&GrowthDocument::of(recordings))
}
