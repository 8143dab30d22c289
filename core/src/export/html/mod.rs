//! Offline page: one HTML file with the report as text, the columns of the recording, and a viewer that needs no
//! network access.
//!
//! The viewer is built from the folder `page`; `cargo xtask page` builds it again and compares. Columns are numbers as
//! little-endian byte planes ([`column`]), deflated and base64-encoded, in script elements that browsers do not run.
//! Texts are JSON.

mod column;
mod device;
mod extras;
mod history;
mod keys;
mod levels;
#[cfg(all(test, feature = "gzip"))]
mod size_tests;
mod sources;
#[cfg(test)]
mod tests;
mod words;

use std::cmp::Reverse;
use std::collections::HashSet;
use std::io::Write;

use serde_json::{Value, json};

use self::device::DevicePart;
use self::sources::FromFiles;
use super::{Export, LeftOut, LinkForm};
use crate::analysis::{device_or_main, main_device};
use crate::error::Error;
use crate::recording::{DeviceView, Recording};
use crate::report::{DiffOptions, Report, ReportOptions};
use crate::snapshot::{ContextNode, Device, DeviceSnapshot, SnapshotData};
use crate::units::grouped;
use crate::visible;

/// The viewer, with marks for the data: what the first picture needs goes before its script, everything else after it.
const PAGE: &str = include_str!("page.html");
const MARKS: [&str; 2] = ["<!--first-->", "<!--data-->"];
/// Rows that changed by fewer bytes are folded.
const CHANGED: u64 = 1;
/// Even a device with few records gets the room divided by this number.
const LEAST_SHARE: u64 = 16;
/// Bytes that a scope takes without its name.
const CONTEXT: u64 = 20;
/// Replaces a scope's name that was left out.
const LEFT_OUT: &str = "…";

/// The recording as one HTML file for a browser, without network access. It shows the report, memory over time, what
/// held it at any moment, blocks, segments and operator calls.
#[derive(Clone, Debug)]
pub struct HtmlPage<'a> {
    /// The size limit. Beyond it, the smallest blocks that are live neither at the peak nor at the end are left out,
    /// and the page says so. No limit if `None`.
    pub max_bytes: Option<u64>,
    /// An earlier recording to compare with.
    pub before: Option<&'a SnapshotData>,
    /// Embeds the source text around the program's own lines, from the files of this machine. Files that were changed
    /// after the recording began are left out. Whoever gets the page can read that text.
    pub sources: bool,
    /// Makes the program's own lines links that open in an editor. Whoever gets the page can read where the files are.
    pub links: Option<LinkForm>,
}

impl Default for HtmlPage<'_> {
    fn default() -> Self {
        Self { max_bytes: Some(32 << 20), before: None, sources: false, links: None }
    }
}

impl Export for HtmlPage<'_> {
    fn write(&self, data: &SnapshotData, out: &mut dyn Write) -> Result<LeftOut, Error> {
        let (begin, rest) = PAGE.split_once(MARKS[0]).unwrap_or((PAGE, ""));
        let (script, end) = rest.split_once(MARKS[1]).unwrap_or((rest, ""));
        let max_bytes = self.max_bytes.unwrap_or(u64::MAX);
        let (mut filled, mut over) = (self.filled(data, max_bytes)?, 0);
        // The size of commas, sentences and escapes is known only once they are written. Until the page fits, it gets
        // less room.
        for _ in 0..TRIES {
            match filled.size().saturating_sub(max_bytes) {
                0 => break,
                more => over += more,
            }
            filled = self.filled(data, max_bytes.saturating_sub(over))?;
        }
        let too_large = filled.size() > max_bytes;
        let Filled { head, curves, columns, left_out } = filled;
        writeln!(out, "{begin}{HEAD}{head}</script>")?;
        write!(out, "{curves}{script}{columns}{end}")?;
        Ok(LeftOut { too_large, ..left_out })
    }
}

/// The element that contains the head.
const HEAD: &str = "<script type=\"application/json\" id=\"head\">";
/// How often a page that is too large is made again.
const TRIES: usize = 3;

/// The data that goes between the parts of the viewer.
struct Filled {
    head: String,
    curves: String,
    columns: String,
    left_out: LeftOut,
}

impl Filled {
    fn size(&self) -> u64 {
        let marks: usize = MARKS.iter().map(|mark| mark.len()).sum();
        let around = PAGE.len() - marks + HEAD.len() + "</script>\n".len();
        (around + self.head.len() + self.curves.len() + self.columns.len()) as u64
    }
}

impl HtmlPage<'_> {
    /// The page's content. Together with the viewer it takes about `max_bytes`.
    fn filled(&self, data: &SnapshotData, max_bytes: u64) -> Result<Filled, Error> {
        let mut curves = String::new();
        let mut columns = String::new();
        let mut left_out = LeftOut { max_bytes: self.max_bytes.unwrap_or(0), ..LeftOut::default() };
        let mut recordings = Vec::new();
        let all: Vec<&SnapshotData> = [data].into_iter().chain(self.before).collect();
        let changes = self.changes(data)?.unwrap_or_default();
        let mut room = max_bytes.saturating_sub(size(&changes) + PAGE.len() as u64);
        for (number, data) in all.iter().enumerate() {
            let views = Recording::new(data);
            let mut share = room / (all.len() - number) as u64;
            let (contexts, unnamed) = contexts(data, share / 2);
            let used = used(&views);
            share = share.saturating_sub(size(&contexts));
            let parts = self.kept(data, self.parts(&views, &used, number, share)?, share);
            let beyond = LeftOut { devices: (used.len() - parts.len()) as u64, ..left_out.clone() };
            left_out.devices += beyond.devices;
            room = room.saturating_sub(size(&contexts));
            let kept: Vec<Device> = parts.iter().map(|part| part.device).collect();
            let mut devices = Vec::new();
            for mut part in parts {
                room = room.saturating_sub(part.size() as u64);
                let words = [(beyond.devices > 0).then(|| format!("{beyond}.")), unnamed.clone()];
                part.left_out_too(words.into_iter().flatten());
                devices.push(part.head);
                curves.push_str(&part.curves);
                columns.push_str(&part.columns);
                left_out.allocations += part.left_out.allocations;
                left_out.largest = left_out.largest.max(part.left_out.largest);
            }
            recordings.push(recording(data, &kept, contexts, devices));
        }
        let head = harmless(&json!({ "version": 1, "recordings": recordings, "changes": changes }));
        Ok(Filled { head, curves, columns, left_out })
    }

    /// The devices as parts of at most `room` bytes together. Devices with few records are packed first, and the one
    /// with the most records gets the room that they leave.
    fn parts(
        &self,
        recording: &Recording<'_>,
        used: &[&DeviceView<'_>],
        number: usize,
        mut room: u64,
    ) -> Result<Vec<DevicePart>, Error> {
        let mut order: Vec<(usize, &DeviceView<'_>)> = used.iter().copied().enumerate().collect();
        order.sort_by_key(|(_, device)| device.records.len());
        let mut records: u64 = used.iter().map(|device| weight(device)).sum();
        let wanted = FromFiles { sources: self.sources, links: self.links.as_ref() };
        let mut parts = Vec::new();
        for (at, device) in order {
            let share = (u128::from(room) * u128::from(weight(device)) / u128::from(records.max(1))) as u64;
            let least = share.max(room / LEAST_SHARE);
            let part = device::part(recording, device, &format!("{number}.{at}."), least, wanted)?;
            room = room.saturating_sub(part.size() as u64);
            records = records.saturating_sub(weight(device));
            parts.push((at, part));
        }
        parts.sort_by_key(|(at, _)| *at);
        Ok(parts.into_iter().map(|(_, part)| part).collect())
    }

    /// The parts that fit: that of the main device in any case, then those with the largest peaks.
    fn kept(&self, data: &SnapshotData, parts: Vec<DevicePart>, room: u64) -> Vec<DevicePart> {
        let main = main_device(data);
        let mut order: Vec<usize> = (0..parts.len()).collect();
        order.sort_by_key(|at| (Some(parts[*at].device) != main, Reverse(parts[*at].peak), *at));
        let mut taken = 0;
        let fits = |at: &usize| {
            taken += parts[*at].size() as u64;
            taken <= room || Some(parts[*at].device) == main
        };
        let kept: HashSet<usize> = order.into_iter().take_while(fits).collect();
        parts.into_iter().enumerate().filter(|(at, _)| kept.contains(at)).map(|(_, part)| part).collect()
    }

    fn changes(&self, data: &SnapshotData) -> Result<Option<Value>, Error> {
        let Some(before) = self.before else { return Ok(None) };
        let options = DiffOptions { rows: 200, threshold: CHANGED, ..DiffOptions::default() };
        Ok(Some(words::report(&Report::of_diff(before, data, &options)?)))
    }
}

fn used<'r>(recording: &'r Recording<'_>) -> Vec<&'r DeviceView<'r>> {
    recording.devices().iter().filter(|device| device.peak.total() > 0 || !device.records.is_empty()).collect()
}

/// The weight by which a device gets its share of the budget.
fn weight(device: &DeviceSnapshot) -> u64 {
    1 + device.records.len() as u64
}

/// The scopes with their parents. Beyond `max_bytes` names are left out; the returned sentence says so.
fn contexts(data: &SnapshotData, max_bytes: u64) -> (Value, Option<String>) {
    let (mut taken, mut unnamed) = (0, 0u64);
    let mut context = |node: &ContextNode| {
        taken += node.name.len() as u64 + CONTEXT;
        let is_named = taken <= max_bytes;
        unnamed += u64::from(!is_named);
        json!([if is_named { node.name.as_str() } else { LEFT_OUT }, node.parent.0, node.module])
    };
    let all: Vec<Value> = data.contexts.iter().map(&mut context).collect();
    let sentence = || format!("The names of {} scopes are left out where blocks are listed.", grouped(unnamed));
    (all.into(), (unnamed > 0).then(sentence))
}

fn recording(data: &SnapshotData, kept: &[Device], contexts: Value, devices: Vec<Value>) -> Value {
    let main = device_or_main(data, None).map(|main| main.device);
    json!({
        "program": data.process.program,
        "host": data.process.host,
        "started_unix_us": data.process.started_unix_us,
        "duration_ns": data.process.duration_ns,
        "min_size": data.settings.min_size,
        "empty": if kept.is_empty() { empty(data) } else { Value::Null },
        "main": kept.iter().position(|device| Some(*device) == main).unwrap_or(0),
        "contexts": contexts,
        "devices": devices,
    })
}

/// Bytes of a value on the page.
fn size(value: &Value) -> u64 {
    value.to_string().len() as u64
}

/// The texts of a recording without memory.
fn empty(data: &SnapshotData) -> Value {
    Report::of(data, &ReportOptions::default()).map_or(Value::Null, |report| words::report(&report))
}

/// JSON that is safe to print and cannot end a script element, whatever texts it has.
fn harmless(value: &Value) -> String {
    visible::json(value.to_string()).replace('<', "\\u003c")
}
