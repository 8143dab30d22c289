//! The report of one line, operator or address: how much it held, when, and the lifetimes of its blocks.

use std::collections::{BTreeMap, HashSet};
use std::num::NonZeroU64;

use super::rows::{BlockRow, NamedRows};
use super::section::{Cell, Section};
use super::tables::{more, of_breakdown};
use super::{Report, ReportOptions};
use crate::analysis::{Breakdown, Explained, Subject, explain, line_and_callers, line_label};
use crate::hashed::summed;
use crate::recording::{DeviceView, Recording};
use crate::snapshot::{DeviceSnapshot, Lifetime, SnapshotData, StackId, Weight};
use crate::units::{Bytes, counted, grouped};

/// The most frames of a stack that are shown, and the most allocation sites that are named.
const FRAMES: usize = 8;
/// The most stacks that are shown.
const STACKS: usize = 3;

impl Report {
    /// Everything about the blocks of one line, function, operator or address; `None` if it has no blocks.
    pub fn of_subject(data: &SnapshotData, subject: &Subject, options: &ReportOptions) -> Option<Self> {
        let recording = Recording::new(data);
        let device = recording.device_or_main(options.device)?;
        let found = explain(device, subject);
        if found.blocks.is_empty() {
            return None;
        }
        let mut sections: Vec<Section> = found.tables.iter().map(|table| by(table, &found, options)).collect();
        sections.push(stacks(device, &found));
        sections.push(lives(device, &found, options.rows));
        Some(Self {
            title: title(subject, &found, device),
            answer: answer(device, &found),
            sections,
            ..Self::default()
        })
    }
}

fn title(subject: &Subject, found: &Explained, device: &DeviceSnapshot) -> String {
    let name = match (subject, &*found.names) {
        (Subject::Address(address), _) => format!("{address:#x}"),
        (Subject::Text(_), [name]) => name.clone(),
        (Subject::Text(text), names) => format!("{text}: {} allocation sites", names.len()),
    };
    format!("memtrace: {name} on {}", device.device)
}

fn answer(device: &DeviceSnapshot, found: &Explained) -> Vec<String> {
    let sum = |weight: Weight| format!("{} in {}", Bytes(weight.bytes), counted(weight.blocks(), "block"));
    let share = 100.0 * found.at_peak.bytes as f64 / device.peak.total().max(1) as f64;
    let mut lines = vec![
        format!("At the peak: {} ({share:.1} % of {}).", sum(found.at_peak), Bytes(device.peak.total())),
        format!("Allocated in all: {}; live at the end: {}.", sum(found.allocated), sum(found.at_end)),
    ];
    lines.extend(lifetimes(device, found));
    let names = found.names.iter().take(FRAMES).filter(|_| found.names.len() > 1);
    lines.extend(names.map(|name| format!("  {name}")));
    lines
}

fn lifetimes(device: &DeviceSnapshot, found: &Explained) -> Option<String> {
    let life = |life: &Lifetime| Some(life.free(device)?.time_ns - life.alloc(device)?.time_ns);
    let mut lives: Vec<u64> = found.blocks.iter().filter_map(life).collect();
    lives.sort_unstable();
    let median = lives.get(lives.len() / 2)?;
    let longest = lives.last()?;
    Some(format!(
        "Freed blocks: {}, which lived {} (median), at most {}.",
        grouped(lives.len() as u64),
        super::device_memory::time(*median),
        super::device_memory::time(*longest)
    ))
}

fn by(
    (column, rows): &(&'static str, Vec<crate::analysis::Row>),
    found: &Explained,
    options: &ReportOptions,
) -> Section {
    let when = if found.at_peak.bytes > 0 { "At the peak" } else { "In all" };
    let breakdown = Breakdown { rows: rows.clone(), total: rows.iter().map(|row| row.bytes).sum() };
    let (key, heading) = match *column {
        "scope" => ("by_scope", "Scope"),
        "operator" => ("by_operator", "Operator"),
        "category" => ("by_category", "Category"),
        _ => ("by_size", "Bytes each"),
    };
    of_breakdown(key, &format!("{when}, by {column}"), heading, &breakdown, options)
}

/// The stacks that allocated most.
fn stacks(device: &DeviceView<'_>, found: &Explained) -> Section {
    let by_stack = summed(found.blocks.iter().map(|life| (life.block.stack, device.weight(life.block.size))));
    // Stacks that differ only in frames that are not shown become one.
    let shown = |(stack, weight)| (line_and_callers(device.data(), stack, FRAMES), weight);
    let mut sums = Vec::from_iter(BTreeMap::from_iter(summed(by_stack.into_iter().map(shown))));
    sums.sort_by_key(|(_, weight)| std::cmp::Reverse(weight.bytes));
    let mut lines = Vec::new();
    for (frames, weight) in sums.iter().take(STACKS) {
        lines.push(format!("{} in {}:", Bytes(weight.bytes), counted(weight.blocks(), "block")));
        lines.extend(frames.iter().map(|frame| format!("  {frame}")));
    }
    if sums.len() > STACKS {
        lines.push(format!("and {} more stacks", sums.len() - STACKS));
    }
    Section::of_lines("stacks", "Stacks, innermost frame first", lines)
}

fn lives(device: &DeviceView<'_>, found: &Explained, rows: usize) -> Section {
    let mut section =
        Section::of_columns("blocks", "Blocks, the largest first", &["Size", "From", "To", "Peak", "Block"]);
    let (data, categories) = (device.data(), device.categories());
    let at_peak: HashSet<Option<NonZeroU64>> = device.peak.blocks.iter().map(|block| block.seq).collect();
    let mut blocks: Vec<&Lifetime> = found.blocks.iter().collect();
    blocks.sort_by_key(|life| (std::cmp::Reverse(life.block.size), life.seq));
    let named = |life: &&Lifetime| {
        let (block, free) = (&life.block, life.free(device));
        let freed_at = free.map(|free| free.stack).filter(|stack| *stack != StackId::NONE);
        BlockRow {
            address: format!("{:#x}", block.address),
            bytes: block.size,
            from_ns: life.alloc(device).map(|alloc| alloc.time_ns),
            to_ns: free.map(|free| free.time_ns),
            at_peak: at_peak.contains(&block.seq),
            name: device.name(block.seq).map(str::to_owned),
            category: categories.label(block.seq).to_owned(),
            scope: Some(data.context_path(block.context)).filter(|path| !path.is_empty()),
            freed_at: freed_at.map(|stack| line_label(data, stack.0)),
        }
    };
    let named: Vec<BlockRow> = blocks.iter().take(rows).map(named).collect();
    section.rows = named.iter().map(cells).collect();
    if blocks.len() > rows {
        section.partial_row(Vec::new(), more(blocks.len() - rows));
    }
    Section { named: Some(NamedRows::Blocks(named)), ..section }
}

fn cells(row: &BlockRow) -> Vec<Cell> {
    let freed = row.freed_at.as_ref().map(|line| format!("freed at {line}"));
    let what = [Some(&row.address), row.name.as_ref(), Some(&row.category), row.scope.as_ref(), freed.as_ref()];
    vec![
        Cell::Bytes(row.bytes),
        row.from_ns.map_or(Cell::Unknown, Cell::Time),
        row.to_ns.map_or(Cell::Text("live".to_owned()), Cell::Time),
        Cell::Text(if row.at_peak { "yes" } else { "" }.to_owned()),
        Cell::Text(what.into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join(", ")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::Text;
    use crate::snapshot::testing::{Story, frame, registry, stacks, two_lines_and_a_temporary};

    #[test]
    fn a_line_is_explained_in_words_tables_and_blocks() {
        let data = two_lines_and_a_temporary();
        let subject = Subject::parse("model.rs:7");
        let report = Report::of_subject(&data, &subject, &ReportOptions::default()).unwrap();
        let text = Text::default().show(&report);
        for part in [
            "memtrace: src/model.rs:7 (Net::forward) on cpu",
            "At the peak: 2.930 KiB in 2 blocks (64.5 % of 4.543 KiB).",
            "weights f32[250]",
            "forward",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(Report::of_subject(&data, &Subject::parse("nothing"), &ReportOptions::default()), None);
    }

    #[test]
    fn stacks_that_differ_in_hidden_frames_only_are_one() {
        let operator = |name| frame(name, &registry("candle-core-0.11.1/src/tensor.rs"), 700);
        let model = frame("net::Net::forward", "/home/u/net/src/model.rs", 7);
        let mut story = Story::cpu();
        story.stacks(stacks(vec![operator("relu"), operator("exp"), model], [[0, 2], [1, 2]]));
        story.at(1_000).alloc("relu", 1024).on(StackId(1));
        story.at(2_000).alloc("exp", 2048).on(StackId(2));
        let report = Report::of_subject(&story.build(), &Subject::parse("model.rs:7"), &ReportOptions::default());
        let sections = report.unwrap().sections;
        let stacks = sections.iter().find(|section| section.key == "stacks").unwrap();
        assert_eq!(stacks.about, ["3.000 KiB in 2 blocks:", "  src/model.rs:7 (Net::forward)"]);
    }
}
