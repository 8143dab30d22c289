//! A program that is refused memory, under the preloaded library.

use anyhow::Result;

use super::gpu::{Call, Ended};
use super::preloaded::{End, Preloaded};
use super::text;

/// The post-mortem is the first of two reports; the program's error is its own.
pub(super) fn out_of_memory(lane: &mut Preloaded<'_>, name: &str, call: &Call<'_>, source: &str) -> Result<Ended> {
    let call = call.clone().variable("MEMTRACE_DUMP_ON_OOM", 1);
    let ended = lane.both(name, &call, End::WellOrBadly)?;
    let begins = "memtrace: cuda:0 is out of memory";
    let what = format!("that begins with {begins:?}");
    text::line(&mut lane.checks, name, &ended.errors, &what, |line| line.starts_with(begins));
    lane.recorded(&format!("{name}, when it ended"), Some(source), "report-2.json");
    lane.recorded(&format!("{name}, when it happened"), Some(source), "report.json");
    Ok(ended)
}
