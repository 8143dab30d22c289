//! Operator series as files: JSON that memtrace can read again, pictures, and a text table.

mod read;
mod svg;
#[cfg(test)]
mod tests;
mod text;

use std::collections::HashSet;
use std::io::Write;

use serde_json::{Value, json};

pub use read::{parse_operators, read_operators};
pub use svg::OperatorsSvg;

use super::{Export, LeftOut, budget};
use crate::analysis::{self, Marker, OperatorCall, OperatorSeries};
use crate::error::Error;
use crate::recording::Recording;
use crate::snapshot::{Device, SnapshotData};
use crate::visible;

/// A format for series of operator calls. Its [`Export`] writes the series of a recording's main device.
pub trait ExportOperators {
    /// Writes the series, and returns what it left out to fit a size limit.
    ///
    /// # Errors
    /// If `out` fails, or if there is nothing to draw.
    fn write_operators(&self, series: &OperatorSeries, out: &mut dyn Write) -> Result<LeftOut, Error>;
}

impl<F: ExportOperators> Export for F {
    fn write(&self, data: &SnapshotData, out: &mut dyn Write) -> Result<LeftOut, Error> {
        self.write_operators(&operators_of(data, None), out)
    }
}

/// The operator calls on a device (the main one if `None`); empty if the device was not used.
pub fn operators_of(data: &SnapshotData, device: Option<Device>) -> OperatorSeries {
    Recording::new(data).device_or_main(device).map(analysis::operators).unwrap_or_default()
}

/// The values of the fields `format` and `version`.
const FORMAT: &str = "memtrace operators";
const VERSION: u64 = 1;

/// The series of operator calls as JSON, one call per line. Bytes are integers, times are nanoseconds.
/// [`parse_operators`] reads it.
#[derive(Clone, Debug)]
pub struct OperatorsJson {
    /// The size limit. Beyond it the calls that added or freed the fewest bytes are left out, except the call with the
    /// largest peak. 256 MiB by default.
    pub max_bytes: Option<u64>,
}

impl Default for OperatorsJson {
    fn default() -> Self {
        Self { max_bytes: Some(256 << 20) }
    }
}

impl ExportOperators for OperatorsJson {
    fn write_operators(&self, series: &OperatorSeries, out: &mut dyn Write) -> Result<LeftOut, Error> {
        let ranked = ranked(series);
        budget::rows(self.max_bytes, series.calls.len(), out, |count, _, out| {
            if count == series.calls.len() {
                return write_whole(series, out);
            }
            let kept: HashSet<usize> = ranked.iter().take(count).copied().collect();
            write_whole(&part(series, &kept), out)
        })
    }
}

/// The indices of the calls: first the call with the largest peak, then those that added or freed most bytes.
fn ranked(series: &OperatorSeries) -> Vec<usize> {
    let peak = series.calls.iter().map(|call| call.peak).max();
    let mut ranked: Vec<usize> = (0..series.calls.len()).collect();
    let weight = |call: &OperatorCall| (Some(call.peak) == peak, call.added.unsigned_abs());
    ranked.sort_by_key(|at| std::cmp::Reverse(series.calls.get(*at).map(weight)));
    ranked
}

/// The series with only these calls. The bytes that the other calls added count as added elsewhere.
fn part(series: &OperatorSeries, kept: &HashSet<usize>) -> OperatorSeries {
    let mut part = OperatorSeries { calls: Vec::new(), ..series.clone() };
    let mut before = Vec::with_capacity(series.calls.len() + 1);
    for (at, call) in series.calls.iter().enumerate() {
        before.push(part.calls.len());
        if kept.contains(&at) {
            part.calls.push(call.clone());
        } else {
            part.left_out += 1;
            part.added_elsewhere = part.added_elsewhere.saturating_add(call.added);
        }
    }
    let all = part.calls.len();
    part.markers.iter_mut().for_each(|marker| marker.call = before.get(marker.call).copied().unwrap_or(all));
    part
}

fn write_whole(series: &OperatorSeries, out: &mut dyn Write) -> Result<(), Error> {
    let mut head = json!({
        "format": FORMAT,
        "version": VERSION,
        "recorded_by": concat!("memtrace ", env!("CARGO_PKG_VERSION")),
        "program": series.program,
        "device": series.device,
        "peak": series.peak,
        "added_elsewhere": series.added_elsewhere,
        "overwritten": series.overwritten,
        "num_alloc_retries": series.num_alloc_retries,
        "num_ooms": series.num_ooms,
        "left_out": series.left_out,
        "markers": series.markers.iter().map(marker).collect::<Vec<_>>(),
    });
    if let Some(interval) = series.sample_interval {
        head["sample_interval"] = interval.into();
    }
    let head = visible::json(head.to_string());
    write!(out, "{},\n\"calls\":[", head.trim_end_matches('}'))?;
    for (at, call) in series.calls.iter().enumerate() {
        write!(out, "{}\n{}", if at == 0 { "" } else { "," }, visible::json(self::call(call).to_string()))?;
    }
    Ok(out.write_all(b"\n]}\n")?)
}

fn marker(marker: &Marker) -> Value {
    json!({ "name": &*marker.name, "kind": marker.kind.word(), "call": marker.call, "time_ns": marker.time_ns })
}

fn call(call: &OperatorCall) -> Value {
    json!({
        "operator": &*call.operator,
        "number": call.number,
        "backward": call.is_backward,
        "scope": &*call.scope,
        "line": &*call.line,
        "thread": call.thread,
        "begin_ns": call.begin_ns,
        "end_ns": call.end_ns,
        "allocations": call.allocations,
        "added": call.added,
        "before": call.before,
        "peak": call.peak,
        "allocated": call.allocated,
        "active": call.active,
        "reserved": call.reserved,
    })
}
