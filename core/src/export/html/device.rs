//! A device's columns: blocks, log, levels of detail and texts, reduced to a budget.

use std::cmp::Reverse;
use std::collections::HashSet;

use serde_json::{Value, json};

use super::column::Coding::{Delta, Plain};
use super::column::ColumnStore;
use super::extras::Most;
use super::history::{HistoryRow, PageHistory};
use super::keys::{BlockKey, UsedStacks, keys};
use super::levels::{self, BucketScale};
use super::sources::{FromFiles, SourceTexts, links};
use super::{extras, words};
use crate::analysis::{KeySource, below_label, label_of_rest, log_start_ns};
use crate::error::Error;
use crate::export::LeftOut;
use crate::recording::{DeviceView, Recording};
use crate::report::{Report, ReportOptions, holders, line_key};
use crate::snapshot::{Device, DeviceSnapshot, MADE_UP, SnapshotData, ThreadId};
use crate::units::grouped;

/// How many of the lines that held most are on the first screen.
const HOLDERS: usize = 5;
/// Bytes of the budget that are reserved for what the head contains besides the report and the series.
const OTHER_WORDS: usize = 4096;
/// The number of attempts to fit the budget.
const TRIES: usize = 4;

/// A device as a part of the page.
pub(super) struct DevicePart {
    pub(super) device: Device,
    pub(super) peak: u64,
    /// The data that the page reads first.
    pub(super) head: Value,
    /// Columns of the first picture.
    pub(super) curves: String,
    /// All other columns.
    pub(super) columns: String,
    pub(super) left_out: LeftOut,
}

impl DevicePart {
    /// Adds sentences about what else was left out.
    pub(super) fn left_out_too(&mut self, words: impl Iterator<Item = String>) {
        if let Some(all) = self.head["left_out"].as_array_mut() {
            all.extend(words.map(Value::from));
        }
    }

    /// The bytes that the part takes on the page.
    pub(super) fn size(&self) -> usize {
        self.curves.len() + self.columns.len() + self.head.to_string().len()
    }
}

/// The parts of a device that do not depend on which blocks are kept.
struct FixedPart {
    columns: ColumnStore,
    /// The report as text.
    report: Value,
    calls: usize,
    /// Sentences on what was left out.
    left_out: Vec<String>,
}

impl FixedPart {
    fn of(
        data: &Recording<'_>,
        device: &DeviceView<'_>,
        (stacks, keys, end_ns): (&UsedStacks, &[BlockKey], u64),
        (prefix, wanted): (&str, FromFiles<'_>),
        most: Most,
    ) -> Result<Self, Error> {
        let options = ReportOptions { device: Some(device.device), rows: most.rows, ..ReportOptions::default() };
        let report = words::report(&Report::of_recording(data, &options)?);
        let mut columns = ColumnStore::named(prefix);
        let frames = extras::stacks(data, stacks, &mut columns);
        let (call_texts, calls, calls_left_out) = extras::calls(device, most.calls, &mut columns);
        let spans_left_out = extras::spans(data, device, end_ns, most.spans, &mut columns);
        let segments_left_out = extras::segments(device, most.segments, &mut columns);
        let labels: serde_json::Map<String, Value> =
            keys.iter().map(|key| (key.name.to_owned(), json!(key.labels))).collect();
        let sources = if wanted.sources { SourceTexts::of(data, stacks) } else { SourceTexts::default() };
        let links = wanted.links.map(|form| links(data, stacks, form));
        let texts = json!({ "labels": labels, "frames": frames, "calls": call_texts, "sources": sources.by_place, "links": links });
        columns.json("texts", &texts);
        let many = |count: usize, words: &str| (count > 0).then(|| format!("{} {words}", grouped(count as u64)));
        let without_text = (sources.left_out > 0).then(|| {
            let files = grouped(sources.left_out as u64);
            format!("Source files without text here, because they are missing or newer than the recording: {files}.")
        });
        let left_out = [
            many(calls_left_out, "operator calls that changed little are not listed."),
            many(spans_left_out, "inner or short scopes are not on the time axis."),
            many(segments_left_out, "small segments are not shown."),
            without_text,
        ];
        Ok(Self { columns, report, calls, left_out: left_out.into_iter().flatten().collect() })
    }

    fn size(&self) -> usize {
        self.columns.html.len() + self.report.to_string().len() + OTHER_WORDS
    }
}

/// Packs a device into at most `max_bytes`, unless its peak, its end and its curves alone need more.
pub(super) fn part(
    data: &Recording<'_>,
    device: &DeviceView<'_>,
    prefix: &str,
    max_bytes: u64,
    wanted: FromFiles<'_>,
) -> Result<DevicePart, Error> {
    let history = PageHistory::of(device, device.lifetimes());
    let stacks = UsedStacks::of(&history);
    let keys = keys(device, &history, &stacks);
    let start_ns = log_start_ns(device);
    let last_ns = history.steps.last().map_or(0, |step| step.time_ns);
    let end_ns = data.process.duration_ns.max(last_ns).max(start_ns + 1);
    let scales = levels::scales(&history, start_ns, end_ns);

    let (mut first, mut others) = (ColumnStore::named(prefix), ColumnStore::named(prefix));
    levels(device, &history, &scales, &mut first, &mut others);
    let series = json!(series(&history, &stacks, &keys, &scales, &mut first, &mut others));
    let room = max_bytes.saturating_sub((first.html.len() + others.html.len() + series.to_string().len()) as u64);
    let fixed = |most| FixedPart::of(data, device, (&stacks, &keys, end_ns), (prefix, wanted), most);
    let mut fixed_part = fixed(Most::USUAL)?;
    if fixed_part.size() as u64 > room {
        fixed_part = fixed(Most::LEAST)?;
    }
    let room = room.saturating_sub(fixed_part.size() as u64);
    let (blocks, left_out) = fitting(&history, room, |shown| pack(&history, &stacks, &keys, device, prefix, shown));
    let holders = holders(device, HOLDERS);
    let peak = &device.peak;
    let (rest_label, rest) = (label_of_rest(device, &peak.blocks), peak.not_recorded);
    let early: u64 = history.rows.iter().take(history.early).filter(|row| !row.is_gone).map(|row| row.weight).sum();
    let allocations = (left_out.allocations > 0).then(|| format!("{left_out}. The curves hold all blocks."));
    let head = json!({
        "name": device.device.to_string(),
        "prefix": prefix,
        "report": fixed_part.report,
        "holder_key": line_key(device).word(),
        "holders": holders,
        "start_ns": start_ns,
        "end_ns": end_ns,
        "records": device.records.len(),
        "calls": fixed_part.calls,
        "overwritten": device.overwritten,
        "is_sample": device.is_sample(),
        "at_start": history.at_start,
        "unexplained_at_start": i128::from(history.at_start) as i64 - early as i64,
        "early": blocks.early,
        "gone": blocks.gone,
        "rows": blocks.rows,
        "capacity": device.capacity(),
        "peak": {
            "total": peak.total(),
            "bytes": peak.bytes,
            "time_ns": peak.time_ns,
            "step": blocks.peak_step,
            "rest": rest,
            "rest_label": rest_label,
            "below": peak.below_threshold,
            "below_label": below_label(data),
        },
        "keys": series,
        "levels": scales.iter().map(|scale| json!([scale.each_ns, scale.buckets])).collect::<Vec<_>>(),
        "is_reduced": left_out.allocations > 0,
        "left_out": allocations.into_iter().chain(fixed_part.left_out).collect::<Vec<_>>(),
        "threads": threads(data, &history),
    });
    let columns = others.html + &fixed_part.columns.html + &blocks.columns.html;
    Ok(DevicePart { device: device.device, peak: peak.total(), head, curves: first.html, columns, left_out })
}

/// The threads of a device's blocks. Only these are listed, because a recording may have as many threads as blocks, and
/// many devices.
fn threads(data: &SnapshotData, history: &PageHistory) -> Vec<Value> {
    let used: HashSet<ThreadId> = history.rows.iter().map(|row| row.block.thread).collect();
    let threads = data.process.threads.iter().filter(|thread| used.contains(&thread.number));
    threads.map(|thread| json!([thread.number.number(), thread.name])).collect()
}

/// Writes the curves at all levels of detail. The coarsest level goes to `first`, the columns of the first picture.
fn levels(
    device: &DeviceSnapshot,
    history: &PageHistory,
    scales: &[BucketScale],
    first: &mut ColumnStore,
    others: &mut ColumnStore,
) {
    for (level, scale) in scales.iter().enumerate() {
        let columns = if level == 0 { &mut *first } else { &mut *others };
        let curve = levels::live(history, *scale);
        columns.numbers(&format!("live.{level}.lowest"), Delta, curve.lowest.into_iter());
        columns.numbers(&format!("live.{level}.highest"), Delta, curve.highest.into_iter());
        columns.numbers(&format!("live.{level}.last"), Delta, curve.last.into_iter());
        if let Some(curve) = levels::reserved(device, *scale) {
            columns.numbers(&format!("reserved.{level}.highest"), Delta, curve.highest.into_iter());
        }
    }
}

/// Writes the series that each key has in the timeline. Returns the keys with the labels of their series. The series of
/// the first key go to `first`, the columns of the first picture.
fn series(
    history: &PageHistory,
    stacks: &UsedStacks,
    keys: &[BlockKey],
    scales: &[BucketScale],
    first: &mut ColumnStore,
    others: &mut ColumnStore,
) -> Vec<Value> {
    let key = |(at, key): (usize, &BlockKey)| {
        let mix = scales.first().map(|scale| levels::mix(history, key, stacks, *scale)).unwrap_or_default();
        let label = |number: &u32| key.labels.get(*number as usize).cloned().unwrap_or_default();
        let series: Vec<Value> = mix.labels.iter().map(|number| json!([number, label(number)])).collect();
        let columns = if at == 0 { &mut *first } else { &mut *others };
        columns.numbers(&format!("mix.{}", key.name), Delta, mix.bytes.into_iter().flatten());
        json!({ "name": key.name, "source": key.source.word(), "series": series })
    };
    keys.iter().enumerate().map(key).collect()
}

/// The columns of the blocks (rows) that a page keeps.
struct PackedBlocks {
    columns: ColumnStore,
    rows: usize,
    early: usize,
    gone: usize,
    peak_step: Option<usize>,
}

/// Packs all rows if they fit, otherwise as many of the largest as fit. Rows of blocks that are live at the peak or at
/// the end stay.
fn fitting(history: &PageHistory, max_bytes: u64, pack: impl Fn(&[bool]) -> PackedBlocks) -> (PackedBlocks, LeftOut) {
    let mut packed = pack(&vec![true; history.rows.len()]);
    let mut left_out = LeftOut::default();
    if packed.columns.html.len() as u64 <= max_bytes {
        return (packed, left_out);
    }
    let (must, ranked) = ranked(history);
    let mut kept = ranked.len();
    for _ in 0..TRIES {
        let (taken, rows) = (packed.columns.html.len() as u64, packed.rows as u64);
        let target = (u128::from(rows) * u128::from(max_bytes) * 95 / 100 / u128::from(taken.max(1))) as usize;
        kept = target.saturating_sub(history.rows.len() - ranked.len()).min(kept.saturating_sub(1));
        let mut shown = must.clone();
        ranked.iter().take(kept).for_each(|row| shown[*row as usize] = true);
        packed = pack(&shown);
        if packed.columns.html.len() as u64 <= max_bytes || kept == 0 {
            break;
        }
    }
    left_out.max_bytes = max_bytes;
    left_out.allocations = (ranked.len() - kept) as u64;
    left_out.largest = ranked.get(kept).and_then(|row| history.rows.get(*row as usize)).map_or(0, |row| row.block.size);
    left_out.too_large = packed.columns.html.len() as u64 > max_bytes;
    (packed, left_out)
}

/// Which rows must stay, and the other rows, the largest first.
fn ranked(history: &PageHistory) -> (Vec<bool>, Vec<u32>) {
    let mut must: Vec<bool> = history.rows.iter().map(|row| row.freed_ns.is_none()).collect();
    history.peak.iter().for_each(|(row, _)| must[*row as usize] = true);
    let mut others: Vec<u32> = (0..history.rows.len() as u32).filter(|row| !must[*row as usize]).collect();
    others.sort_by_key(|row| (Reverse(history.rows[*row as usize].block.size), *row));
    (must, others)
}

fn pack(
    history: &PageHistory,
    stacks: &UsedStacks,
    keys: &[BlockKey],
    device: &DeviceSnapshot,
    prefix: &str,
    shown: &[bool],
) -> PackedBlocks {
    let mut columns = ColumnStore::named(prefix);
    let is_shown = |row: usize| shown.get(row).copied().unwrap_or(false);
    let numbers: Vec<u32> =
        shown.iter().scan(0, |next, shown| Some(std::mem::replace(next, *next + u32::from(*shown)))).collect();
    let rows = || history.rows.iter().enumerate().filter(|(at, _)| is_shown(*at)).map(|(_, row)| row);
    let life = |row: &HistoryRow| row.freed_ns.map_or(0, |freed| freed.saturating_sub(row.block.time_ns) + 1);
    columns.numbers("block.from", Delta, rows().map(|row| row.block.time_ns));
    columns.numbers("block.life", Plain, rows().map(life));
    columns.numbers("block.size", Plain, rows().map(|row| row.block.size));
    if device.is_sample() {
        columns.numbers("block.weight", Plain, rows().map(|row| row.weight));
    }
    columns.numbers(
        "block.address",
        Delta,
        rows().map(|row| if row.block.address < MADE_UP { row.block.address } else { 0 }),
    );
    columns.numbers("block.stack", Plain, rows().map(|row| stacks.number(row.block.stack).into()));
    columns.numbers("block.freed_at", Plain, rows().map(|row| stacks.number(row.freed_at).into()));
    columns.numbers("block.context", Plain, rows().map(|row| row.block.context.0.into()));
    columns.numbers("block.thread", Plain, rows().map(|row| row.block.thread.number().into()));
    for key in keys {
        let numbers = || key.numbers.iter().enumerate();
        let shown = numbers().filter(|(at, _)| key.source != KeySource::Block || is_shown(*at));
        columns.numbers(&format!("key.{}", key.name), Plain, shown.map(|(_, number)| (*number).into()));
    }
    let number = |row: u32| u64::from(numbers.get(row as usize).copied().unwrap_or(0));
    let step = |step: &super::history::HistoryStep| 2 * number(step.row) + u64::from(step.is_free);
    let steps = history.steps.iter().filter(|step| is_shown(step.row as usize));
    columns.numbers("steps", Delta, steps.map(step));
    columns.numbers("peak.row", Delta, history.peak.iter().map(|(row, _)| number(*row)));
    columns.numbers("peak.weight", Plain, history.peak.iter().map(|(_, weight)| *weight));
    let early = || rows().take_while(|row| row.is_gone);
    PackedBlocks {
        rows: rows().count(),
        early: (0..history.early).filter(|at| is_shown(*at)).count(),
        gone: early().count(),
        peak_step: history
            .peak_step
            .map(|steps| history.steps[..steps].iter().filter(|step| is_shown(step.row as usize)).count()),
        columns,
    }
}
