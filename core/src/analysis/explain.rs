//! All that is known of the blocks of one line, operator or address.

use std::collections::{BTreeSet, HashMap};

use super::breakdown::{sorted, summed};
use super::labels::{Labels, function_label, line_label, operator_label};
use super::rows::{Key, Row};
use crate::recording::DeviceView;
use crate::snapshot::{Block, Lifetime, Weight};

/// Which blocks to explain.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Subject {
    /// Blocks that contain this address.
    Address(u64),
    /// Blocks whose line, function or operator contains this text: `train.rs:32`, `forward`, `matmul`.
    Text(String),
}

impl Subject {
    /// Parses `0x7f00…` as an address and anything else as a text.
    pub fn parse(text: &str) -> Self {
        let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
        let address = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        address.map_or_else(|| Self::Text(text.to_owned()), Self::Address)
    }
}

/// What is known about the blocks of a [`Subject`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explained {
    /// Names of the lines, functions and operators that the subject matches.
    pub names: Vec<String>,
    /// The blocks in the order of their allocation: those of the log, and those live at the peak or at the end.
    pub blocks: Vec<Lifetime>,
    /// Bytes live at the peak.
    pub at_peak: Weight,
    /// Bytes of all allocations in the log.
    pub allocated: Weight,
    /// Bytes live at the end.
    pub at_end: Weight,
    /// Tables by scope, operator, category and size of the blocks that were live at the peak. If no block of the
    /// subject was live then, the tables have all of its blocks.
    pub tables: Vec<(&'static str, Vec<Row>)>,
}

/// Explains the blocks of a line, function, operator or address. The result has no blocks if nothing matches.
pub fn explain(device: &DeviceView<'_>, subject: &Subject) -> Explained {
    let mut labels = [line_label, function_label, operator_label].map(|label| Labels::of_stacks(device.data(), label));
    let (mut names, mut known) = (BTreeSet::new(), HashMap::new());
    let mut is_meant = |block: &Block| match subject {
        Subject::Address(address) => {
            address.checked_sub(block.address).is_some_and(|offset| offset < block.size.max(1))
        }
        Subject::Text(text) => *known.entry(block.stack).or_insert_with(|| {
            let named = labels.iter_mut().map(|labels| labels.name(block)).find(|name| has(name, text));
            names.extend(named.map(str::to_owned));
            named.is_some()
        }),
    };
    let blocks: Vec<Lifetime> = device.lifetimes().iter().filter(|life| is_meant(&life.block)).copied().collect();
    // In a sample, the weights at the peak and at the end add up to the counted bytes. Other weights depend only on
    // the size.
    let at_peak: Vec<(&Block, Weight)> = device.peak_weights().filter(|(block, _)| is_meant(block)).collect();
    let at_end = device.live_weights().filter(|(block, _)| is_meant(block)).map(|(_, weight)| weight).sum();
    let by_size = |life: &Lifetime| device.weight(life.block.size);
    let allocated = blocks.iter().filter(|life| life.from > 0).map(by_size).sum();
    let all = || blocks.iter().map(|life| (&life.block, by_size(life))).collect();
    let shown = if at_peak.is_empty() { all() } else { at_peak.clone() };
    Explained {
        names: names.into_iter().collect(),
        tables: tables(device, &shown),
        at_peak: at_peak.iter().map(|(_, weight)| *weight).sum(),
        allocated,
        at_end,
        blocks,
    }
}

/// Tables by scope, operator, category and size, largest rows first.
fn tables(device: &DeviceView<'_>, blocks: &[(&Block, Weight)]) -> Vec<(&'static str, Vec<Row>)> {
    let by = |key: Key| {
        let mut labels = Labels::by(device, key, 0);
        (key.word(), sorted(summed(blocks.iter().copied(), &mut labels, Labels::number)))
    };
    let mut sizes = Labels::by(device, Key::Name, 0);
    let size = |labels: &mut Labels<'_>, block: &Block| labels.number_of(&crate::units::grouped(block.size));
    let by_size = ("size", sorted(summed(blocks.iter().copied(), &mut sizes, size)));
    [Key::Scope, Key::Operator, Key::Category].map(by).into_iter().chain([by_size]).collect()
}

/// Whether a name contains this text as whole words: `train.rs:3` is not part of `train.rs:32`.
fn has(name: &str, text: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let is_whole = |(at, _): (usize, &str)| {
        let before = name[..at].chars().next_back().filter(|_| text.starts_with(is_word));
        let behind = name[at + text.len()..].chars().next().filter(|_| text.ends_with(is_word));
        !before.is_some_and(is_word) && !behind.is_some_and(is_word)
    };
    !text.is_empty() && name.match_indices(text).any(is_whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::testing::{
        LINE_7, LINE_9, Story, WORKER, a_sample, frame, registry, stacks, two_lines_and_a_temporary,
    };
    use crate::snapshot::{SnapshotData, StackId};

    fn story() -> SnapshotData {
        let mut story = Story::cpu();
        story.at(900).enter("forward");
        story.at(1_000).alloc("a", 2000).on(LINE_7);
        story.at(2_000).alloc("b", 1000).on(LINE_7);
        story.at(2_500).leave("forward");
        story.at(3_000).alloc("c", 500).on(WORKER);
        story.at(4_000).free("b");
        story.at(5_000).alloc("d", 64).on(LINE_9);
        story.build()
    }

    #[test]
    fn a_lines_blocks_have_their_lives_and_sums() {
        let data = story();
        let line = explain(&DeviceView::of(&data, &data.devices[0]), &Subject::parse("model.rs:7"));
        assert_eq!(line.names, ["src/model.rs:7 (Net::forward)"]);
        let freed = |life: &Lifetime| life.free(&data.devices[0]).map(|free| free.time_ns);
        let lives: Vec<_> = line.blocks.iter().map(|life| (life.block.size, freed(life))).collect();
        assert_eq!(lives, [(2000, None), (1000, Some(4_000))]);
        assert_eq!((line.at_peak.bytes, line.allocated.bytes, line.at_end.bytes), (3000, 3000, 2000));
        assert_eq!(line.tables[0].1[0].label, "forward");
    }

    #[test]
    fn what_the_log_no_longer_has_is_not_counted_as_allocated() {
        let mut story = Story::cpu();
        story.at(1_000).alloc("a", 2000).on(LINE_7).at(2_000).alloc("b", 1000).on(LINE_7);
        let data = story.overwritten(1).build();
        let line = explain(&DeviceView::of(&data, &data.devices[0]), &Subject::parse("model.rs:7"));
        assert_eq!((line.blocks.len(), line.allocated.bytes, line.at_end.bytes), (2, 1000, 3000));
    }

    #[test]
    fn what_is_known_of_unknown_blocks_is_said_in_the_reports_words() {
        let driver = frame("malloc_async", &registry("cudarc-0.19.10/src/driver/result.rs"), 485);
        let page = frame("alloc", &registry("cubecl-cuda-0.10.0/src/compute/storage/gpu.rs"), 174);
        let mut story = Story::cuda(0);
        story.stacks(stacks(
            vec![driver, page, frame("net::main", "/home/u/net/src/main.rs", 9)],
            [&[0, 1][..], &[0, 1, 2]],
        ));
        story.alloc("page", 4000).on(StackId(2));
        let data = story.build();
        let found = explain(&DeviceView::of(&data, &data.devices[0]), &Subject::parse("main.rs:9"));
        let categories = found.tables.iter().find(|(column, _)| *column == "category").unwrap();
        let in_report = DeviceView::of(&data, &data.devices[0]).by(Key::Category).clone();
        let labels = |rows: &[Row]| rows.iter().map(|row| row.label.clone()).collect::<Vec<_>>();
        assert_eq!(labels(&categories.1), labels(&in_report.rows));
        assert!(in_report.rows[0].label.starts_with("unknown ("), "{in_report:?}");
    }

    #[test]
    fn an_address_within_a_block_is_the_blocks() {
        let data = story();
        let address = data.devices[0].records[0].address;
        let found = explain(&DeviceView::of(&data, &data.devices[0]), &Subject::parse(&format!("{:#x}", address + 7)));
        assert_eq!(found.blocks.len(), 1);
        assert_eq!(explain(&DeviceView::of(&data, &data.devices[0]), &Subject::Address(1)).blocks, []);
    }

    #[test]
    fn texts_are_whole_words() {
        let cases = [("src/train.rs:32 (f)", "train.rs:32", true), ("src/train.rs:32 (f)", "train.rs:3", false)];
        cases.iter().for_each(|(name, text, is)| assert_eq!(has(name, text), *is, "{name} {text}"));
        assert!(has("matmul", "matmul") && !has("var/randn", "rand") && !has("x", ""));
    }

    #[test]
    fn a_line_holds_as_much_as_in_the_report_also_in_a_sample() {
        for data in [two_lines_and_a_temporary(), a_sample()] {
            let device = &data.devices[0];
            let lines = DeviceView::of(&data, device).by(Key::Line).rows.clone();
            let lines: Vec<_> = lines.iter().filter(|row| row.label.starts_with("src/")).collect();
            assert!(!lines.is_empty());
            for row in lines {
                let found = explain(&DeviceView::of(&data, device), &Subject::Text(row.label.clone()));
                assert_eq!(
                    (found.at_peak.bytes, Some(found.at_peak.blocks())),
                    (row.bytes, row.count),
                    "{}",
                    row.label
                );
                assert_eq!(found.tables[0].1.iter().map(|row| row.bytes).sum::<u64>(), row.bytes);
            }
        }
    }
}
