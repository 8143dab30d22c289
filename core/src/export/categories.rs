//! Category timeline in the two JSON forms of torch.profiler's `export_memory_timeline`, with PyTorch's numbers of
//! categories and actions. The picture is [`TimelineSvg`](super::TimelineSvg).
//!
//! Readers of PyTorch's JSON expect its eight categories, so KV_CACHE counts there as ACTIVATION and WORKSPACE as
//! TEMPORARY. The picture shows all ten.

#[cfg(test)]
mod tests;

use std::io::{BufWriter, Write};

use crate::analysis::{CategoryBytes, CategoryTimeline, category_timeline};
use crate::error::Error;
use crate::export::{Export, LeftOut};
use crate::recording::Recording;
use crate::snapshot::{Category, Device, SnapshotData};

/// PyTorch's numbers of actions; its `INCREMENT_VERSION` (3) has no counterpart here.
const PREEXISTING: u8 = 1;
const CREATE: u8 = 2;
const DESTROY: u8 = 4;
/// The number of PyTorch's categories. memtrace's other categories are merged into these.
const CATEGORIES: usize = 8;

/// The category timeline as `[times, sizes]`, torch.profiler's `.json`. Times are microseconds since 1970. For each
/// time, `sizes` has a 0 and the bytes of the eight categories in the order of [`Category::ALL`]. A row has the bytes
/// that are live after the last record of its microsecond. The first row has those live before the log's first record.
///
/// PyTorch has no KV_CACHE and no WORKSPACE, so their bytes count as ACTIVATION and TEMPORARY.
#[derive(Clone, Debug, Default)]
pub struct CategoriesJson {
    /// The device; the main one if `None`.
    pub device: Option<Device>,
}

impl Export for CategoriesJson {
    fn write(&self, data: &SnapshotData, out: &mut dyn Write) -> Result<LeftOut, Error> {
        let recording = Recording::new(data);
        let device = recording.device_or_main(self.device);
        let rows = device.map(|device| rows(data, &category_timeline(device))).unwrap_or_default();
        let mut out = BufWriter::new(out);
        out.write_all(b"[[")?;
        list(&mut out, rows.iter().map(|(time_us, _)| time_us.to_string()))?;
        out.write_all(b"], [")?;
        list(&mut out, rows.iter().map(|(_, bytes)| sizes(bytes)))?;
        out.write_all(b"]]\n")?;
        out.flush()?;
        Ok(LeftOut::default())
    }
}

/// The category timeline as `[time, action, bytes, category]` for each record, torch.profiler's `.raw.json`. Times are
/// nanoseconds since 1970. The action is 2 for an alloc and 4 for a free, whose bytes are negative. The bytes that were
/// live before the log's first record come first: one entry per category with action 1 at time -1. Categories are
/// numbers, as in [`CategoriesJson`].
#[derive(Clone, Debug, Default)]
pub struct CategoriesRaw {
    /// The device; the main one if `None`.
    pub device: Option<Device>,
}

impl Export for CategoriesRaw {
    fn write(&self, data: &SnapshotData, out: &mut dyn Write) -> Result<LeftOut, Error> {
        let mut out = BufWriter::new(out);
        out.write_all(b"[")?;
        if let Some(device) = Recording::new(data).device_or_main(self.device) {
            let timeline = category_timeline(device);
            let start = merged(&timeline.start()).into_iter().enumerate().filter(|(_, bytes)| *bytes > 0);
            let start = start.map(|(category, bytes)| format!("[-1, {PREEXISTING}, {bytes}, {category}]"));
            let began_ns = data.process.started_unix_us.saturating_mul(1000);
            let steps = timeline.steps().map(|step| {
                let action = if step.change < 0 { DESTROY } else { CREATE };
                let (time_ns, category) = (began_ns.saturating_add(step.time_ns), index(step.category));
                format!("[{time_ns}, {action}, {}, {category}]", step.change)
            });
            list(&mut out, start.chain(steps))?;
        }
        out.write_all(b"]\n")?;
        out.flush()?;
        Ok(LeftOut::default())
    }
}

/// The live bytes at the beginning and after each microsecond with a record.
fn rows(data: &SnapshotData, timeline: &CategoryTimeline<'_>) -> Vec<(u64, CategoryBytes)> {
    let us = |time_ns: u64| data.process.started_unix_us.saturating_add(time_ns / 1000);
    let mut rows = vec![(us(timeline.start_ns()), timeline.start())];
    for step in timeline.steps() {
        let row = (us(step.time_ns), step.bytes);
        match rows.get_mut(1..).and_then(<[_]>::last_mut).filter(|last| last.0 == row.0) {
            Some(last) => *last = row,
            None => rows.push(row),
        }
    }
    rows
}

fn sizes(bytes: &CategoryBytes) -> String {
    let texts = merged(bytes).map(|bytes| bytes.to_string());
    format!("[0, {}]", texts.join(", "))
}

/// The bytes by PyTorch's category number.
fn merged(bytes: &CategoryBytes) -> [u64; CATEGORIES] {
    let mut merged = [0u64; CATEGORIES];
    for category in Category::ALL {
        if let Some(sum) = merged.get_mut(index(category)) {
            *sum = sum.saturating_add(bytes.get(category));
        }
    }
    merged
}

fn index(category: Category) -> usize {
    match category {
        Category::KvCache => Category::Activation as usize,
        Category::Workspace => Category::Temporary as usize,
        category => category as usize,
    }
}

fn list(out: &mut impl Write, items: impl Iterator<Item = String>) -> Result<(), Error> {
    for (at, item) in items.enumerate() {
        write!(out, "{}{item}", if at == 0 { "" } else { ", " })?;
    }
    Ok(())
}
