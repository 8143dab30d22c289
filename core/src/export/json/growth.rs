//! Growth as JSON.

use serde::Serialize;

use crate::analysis::{GrowingRow, Growth, RowGrowth};
use crate::error::Error;
use crate::report::growth_answer;
use crate::visible;

/// Higher if a key is gone or has another meaning.
const VERSION: u32 = 1;

#[derive(Serialize)]
struct GrowthDocument<'a> {
    version: u32,
    recordings: Vec<GrowthFigures<'a>>,
}

/// All figures are bytes or nanoseconds.
#[derive(Serialize)]
struct GrowthFigures<'a> {
    /// Its rank or file; null for a single recording.
    name: Option<&'a str>,
    device: String,
    by: &'static str,
    answer: Vec<String>,
    /// Null if that is undecided.
    grows: Option<bool>,
    /// Why, if that is so for all rows.
    undecided: Option<&'static str>,
    is_estimate: bool,
    bytes_per_minute: u64,
    interval_ns: u64,
    intervals_before_log: usize,
    live_at_end_bytes: u64,
    below_threshold_bytes: u64,
    capacity_bytes: Option<u64>,
    full_in_ns: Option<u64>,
    rows: Vec<RowFigures<'a>>,
}

#[derive(Serialize)]
struct RowFigures<'a> {
    label: &'a str,
    grows: bool,
    /// Why it may grow only.
    unsure: Option<&'static str>,
    bytes_per_minute: u64,
    least_bytes_per_minute: u64,
    most_bytes_per_minute: u64,
    risen_bytes: u64,
    at_end_bytes: u64,
    since_ns: u64,
}

impl<'a> GrowthFigures<'a> {
    fn of(name: &'a str, growth: &'a Growth) -> Self {
        let grows = growth.grows();
        Self {
            name: (!name.is_empty()).then_some(name),
            device: growth.device.to_string(),
            by: growth.key.word(),
            answer: growth_answer(growth),
            grows,
            undecided: growth.undecided.filter(|_| grows.is_none()),
            is_estimate: growth.is_estimate,
            bytes_per_minute: growth.per_minute(),
            interval_ns: growth.interval_ns,
            intervals_before_log: growth.older,
            live_at_end_bytes: growth.at_end,
            below_threshold_bytes: growth.below_threshold,
            capacity_bytes: growth.capacity,
            full_in_ns: growth.full_in_ns(),
            rows: growth.rows.iter().map(RowFigures::of).collect(),
        }
    }
}

impl<'a> RowFigures<'a> {
    fn of(row: &'a GrowingRow) -> Self {
        Self {
            label: &row.label,
            grows: row.growth == RowGrowth::Grows,
            unsure: match row.growth {
                RowGrowth::Grows => None,
                RowGrowth::MayGrow(why) => Some(why),
            },
            bytes_per_minute: row.per_minute,
            least_bytes_per_minute: row.least_per_minute,
            most_bytes_per_minute: row.most_per_minute,
            risen_bytes: row.risen,
            at_end_bytes: row.at_end,
            since_ns: row.since_ns,
        }
    }
}

/// What grows in recordings, as JSON. Each has its name, which is empty for a single one.
///
/// # Errors
/// Never: text can always be written.
pub fn growth_json<'a>(all: impl IntoIterator<Item = (&'a str, &'a Growth)>) -> Result<String, Error> {
    let recordings = all.into_iter().map(|(name, growth)| GrowthFigures::of(name, growth)).collect();
    let text = serde_json::to_string_pretty(&GrowthDocument { version: VERSION, recordings });
    Ok(visible::json(text.map_err(std::io::Error::from)? + "\n"))
}
