//! Offline page: one HTML file with the report in words, the columns of the recording, and a viewer without network access.
//!
//! The viewer is built from the folder `page` (`cargo xtask page` builds it again and compares). Columns are numbers as
//! little-endian byte planes ([`column`]), deflated and in base64, in script elements that no browser runs; texts are JSON.

mod column;
mod device;
mod extras;
mod history;
mod keys;
mod levels;
mod sources;
#[cfg(test)]
mod tests;
mod words;

use std::io::Write;

use serde_json::{Value, json};

use self::device::DevicePart;
use super::{Export, LeftOut};
use crate::analysis::device_or_main;
use crate::error::Error;
use crate::report::{DiffOptions, Report, ReportOptions};
use crate::snapshot::{DeviceSnapshot, SnapshotData};
use crate::visible;

/// The viewer, with marks where the data goes: before its script what the first picture needs, behind it all else.
const PAGE: &str = include_str!("page.html");
const MARKS: [&str; 2] = ["<!--first-->", "<!--data-->"];
/// Changes of fewer bytes are folded.
const CHANGED: u64 = 1;
/// The share of the room that even a device with few records gets, as a divisor.
const LEAST_SHARE: u64 = 16;

/// The recording as one HTML file for a browser, without network access: the report in words, memory over time, what held it
/// at any moment, blocks, segments and operator calls.
#[derive(Clone, Debug)]
pub struct HtmlPage<'a> {
    /// The size to keep to: beyond it, the smallest blocks that are neither live at the peak nor at the end are left out, and
    /// the page says so. No limit if `None`.
    pub max_bytes: Option<u64>,
    /// An earlier recording to compare with.
    pub before: Option<&'a SnapshotData>,
    /// Embeds the source text around the program's own lines, from the files of this machine: files that are newer than the
    /// recording are left out. Whoever gets the page can read that text.
    pub sources: bool,
}

impl Default for HtmlPage<'_> {
    fn default() -> Self {
        Self { max_bytes: Some(32 << 20), before: None, sources: false }
    }
}

impl Export for HtmlPage<'_> {
    fn write(&self, data: &SnapshotData, out: &mut dyn Write) -> Result<LeftOut, Error> {
        let (begin, rest) = PAGE.split_once(MARKS[0]).unwrap_or((PAGE, ""));
        let (script, end) = rest.split_once(MARKS[1]).unwrap_or((rest, ""));
        let mut curves = String::new();
        let mut columns = String::new();
        let mut left_out = LeftOut::default();
        let mut recordings = Vec::new();
        let all: Vec<&SnapshotData> = [data].into_iter().chain(self.before).collect();
        let mut room = self.max_bytes.unwrap_or(u64::MAX).saturating_sub(PAGE.len() as u64);
        for (number, data) in all.iter().enumerate() {
            let used = used(data);
            let share = room / (all.len() - number) as u64;
            let parts = self.parts(data, &used, number, share)?;
            let mut devices = Vec::new();
            for part in parts {
                room = room.saturating_sub(part.size() as u64);
                devices.push(part.head);
                curves.push_str(&part.curves);
                columns.push_str(&part.columns);
                left_out.allocations += part.left_out.allocations;
                left_out.largest = left_out.largest.max(part.left_out.largest);
                left_out.too_large |= part.left_out.too_large;
            }
            recordings.push(recording(data, &used, devices));
        }
        left_out.max_bytes = self.max_bytes.unwrap_or(0);
        let head = json!({ "version": 1, "recordings": recordings, "changes": self.changes(data)? });
        writeln!(out, "{begin}<script type=\"application/json\" id=\"head\">{}</script>", harmless(&head))?;
        write!(out, "{curves}{script}{columns}{end}")?;
        Ok(left_out)
    }
}

impl HtmlPage<'_> {
    /// The devices as parts of at most `room` bytes together. Devices with few records come first, and the largest one has what
    /// they leave.
    fn parts(
        &self,
        data: &SnapshotData,
        used: &[&DeviceSnapshot],
        number: usize,
        mut room: u64,
    ) -> Result<Vec<DevicePart>, Error> {
        let mut order: Vec<(usize, &DeviceSnapshot)> = used.iter().copied().enumerate().collect();
        order.sort_by_key(|(_, device)| device.records.len());
        let mut records: u64 = used.iter().map(|device| weight(device)).sum();
        let mut parts = Vec::new();
        for (at, device) in order {
            let share = (u128::from(room) * u128::from(weight(device)) / u128::from(records.max(1))) as u64;
            let least = share.max(room / LEAST_SHARE);
            let part = device::part(data, device, &format!("{number}.{at}."), least, self.sources)?;
            room = room.saturating_sub(part.size() as u64);
            records = records.saturating_sub(weight(device));
            parts.push((at, part));
        }
        parts.sort_by_key(|(at, _)| *at);
        Ok(parts.into_iter().map(|(_, part)| part).collect())
    }

    fn changes(&self, data: &SnapshotData) -> Result<Option<Value>, Error> {
        let Some(before) = self.before else { return Ok(None) };
        let options = DiffOptions { rows: 200, threshold: CHANGED, ..DiffOptions::default() };
        Ok(Some(words::report(&Report::of_diff(before, data, &options)?)))
    }
}

fn used(data: &SnapshotData) -> Vec<&DeviceSnapshot> {
    data.devices.iter().filter(|device| device.peak.total() > 0 || !device.records.is_empty()).collect()
}

/// What a device needs of the budget.
fn weight(device: &DeviceSnapshot) -> u64 {
    1 + device.records.len() as u64
}

fn recording(data: &SnapshotData, used: &[&DeviceSnapshot], devices: Vec<Value>) -> Value {
    let main = device_or_main(data, None).map(|main| main.device);
    let context = |at: usize| {
        data.contexts.get(at).map_or(json!(["", 0, false]), |node| json!([node.name, node.parent.0, node.module]))
    };
    json!({
        "program": data.process.program,
        "host": data.process.host,
        "started_unix_us": data.process.started_unix_us,
        "duration_ns": data.process.duration_ns,
        "min_size": data.settings.min_size,
        "empty": if used.is_empty() { empty(data) } else { Value::Null },
        "main": used.iter().position(|device| Some(device.device) == main).unwrap_or(0),
        "contexts": (0..data.contexts.len()).map(context).collect::<Vec<_>>(),
        "devices": devices,
    })
}

/// The words of a recording without memory.
fn empty(data: &SnapshotData) -> Value {
    Report::of(data, &ReportOptions::default()).map_or(Value::Null, |report| words::report(&report))
}

/// JSON that ends no script element, and is safe to print, whatever its texts are.
fn harmless(value: &Value) -> String {
    visible::json(value.to_string()).replace('<', "\\u003c")
}
