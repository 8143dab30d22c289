//! The page: texts are data, a budget keeps the peak, curves keep every extreme.

use std::collections::BTreeMap;

use serde_json::Value;

use super::column::{Coding, ColumnStore};
use super::history::PageHistory;
use super::keys::{UsedStacks, keys};
use super::sources::{SourceTexts, links, source};
use super::{levels, *};
use crate::analysis::{Key, log};
use crate::recording::DeviceView;
use crate::snapshot::testing::{LINE_7, LINE_9, Story, WORKER, two_lines_and_a_temporary};
use crate::snapshot::{Device, DeviceSnapshot, Lifetimes, SnapshotData, Thread, ThreadId};

const HOSTILE: &str = "</script><script>alert(1)</script><img src=x onerror=alert(2)> \u{202e}; \u{2028}";

fn page(data: &SnapshotData, max_bytes: Option<u64>) -> (String, LeftOut) {
    let mut out = Vec::new();
    let left_out = HtmlPage { max_bytes, ..HtmlPage::default() }.write(data, &mut out).unwrap();
    (String::from_utf8(out).unwrap(), left_out)
}

fn head(page: &str) -> Value {
    let (_, rest) = page.split_once("id=\"head\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

/// Many growing blocks, of which one is freed at every turn.
fn busy(blocks: u64) -> SnapshotData {
    // Numbers that no compression makes smaller.
    let noise = |at: u64| at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let mut story = Story::cpu();
    for at in 0..blocks {
        story
            .at(1000 * (at + 1) + noise(at) % 300)
            .alloc(at, 64 + noise(at + 7) % 5003)
            .on([LINE_7, LINE_9, WORKER][(at % 3) as usize]);
        if at % 3 != 0 {
            story.at(1000 * (at + 1) + 400 + noise(at + 9) % 500).free(at);
        }
    }
    story.build()
}

#[test]
fn texts_of_a_recording_are_data() {
    let mut data = two_lines_and_a_temporary();
    data.process.program = HOSTILE.to_owned();
    data.health.import_notes.push(HOSTILE.to_owned());
    let (page, _) = page(&data, None);
    let elements = page.matches("<script").count();
    assert_eq!(elements, page.matches("</script>").count());
    assert!(!page.contains("<img") && !page.contains("alert(1)</script>"), "a text is no markup");
    let head = head(&page);
    assert_eq!(head["recordings"][0]["program"], HOSTILE);
    assert!(head["recordings"][0]["devices"][0]["report"]["notes"].to_string().contains("onerror"));
}

#[test]
fn the_viewer_forbids_everything_from_outside() {
    assert!(PAGE.contains("default-src 'none'") && PAGE.contains("script-src 'sha256-"), "run `node page/build.mjs`");
    assert!(MARKS.iter().all(|mark| PAGE.matches(mark).count() == 1));
    assert!(!PAGE.contains("unsafe-") && !PAGE.contains("http://") && !PAGE.contains("https://"));
}

fn history_of(device: &DeviceSnapshot) -> PageHistory {
    PageHistory::of(device, &Lifetimes::of(device))
}

#[test]
fn a_history_ends_in_what_is_live_and_knows_the_peak() {
    for data in [two_lines_and_a_temporary(), busy(200)] {
        let device = &data.devices[0];
        let history = history_of(device);
        assert_eq!(history.steps.len(), device.records.len());
        let live: Vec<_> = history.rows.iter().filter(|row| row.freed_ns.is_none()).map(|row| row.block).collect();
        assert_eq!(live, device.live);
        let peak: u64 = history.peak.iter().map(|(_, weight)| weight).sum();
        assert_eq!(peak + device.peak.not_recorded, device.peak.bytes);
        let steps = history.peak_step.unwrap();
        assert_eq!(history.steps[steps - 1].total, device.peak.bytes);
    }
}

#[test]
fn a_log_that_lost_its_beginning_still_shows_the_peaks_blocks() {
    let mut story = Story::cpu();
    story.at(1).alloc("kept", 100).on(LINE_7);
    story.at(2).alloc("large", 5000).on(LINE_9);
    story.at(3).free("large");
    story.at(4).alloc("last", 50).on(LINE_7);
    story.at(5).free("kept");
    let data = story.overwritten(3).build();
    let history = history_of(&data.devices[0]);
    assert_eq!((history.early, history.peak_step), (2, None));
    let sizes: Vec<u64> = history.peak.iter().map(|(row, _)| history.rows[*row as usize].block.size).collect();
    assert_eq!(sizes, [100, 5000]);
    assert!(history.rows[0].is_gone && !history.rows[1].is_gone);
}

#[test]
fn levels_keep_every_extreme_and_a_mix_adds_up() {
    let data = busy(9000);
    let device = &data.devices[0];
    let (history, totals) = (history_of(device), || log::entries(device).map(|entry| entry.allocated));
    let stacks = UsedStacks::of(&history);
    let scales = levels::scales(&history, 0, data.process.duration_ns);
    assert_eq!(scales.len(), 1, "no level is finer than the log");
    let curve = levels::live(&history, scales[0]);
    assert_eq!(curve.highest.iter().max().copied(), totals().max());
    assert_eq!(curve.last.last().copied(), totals().last());
    assert!(curve.lowest.iter().zip(&curve.highest).all(|(lowest, highest)| lowest <= highest));
    for key in keys(&DeviceView::of(&data, device), &history, &stacks) {
        let mix = levels::mix(&history, &key, &stacks, scales[0]);
        for (at, highest) in curve.highest.iter().enumerate() {
            let sum: u64 = mix.bytes.iter().map(|series| series[at]).sum();
            assert_eq!(sum, *highest, "{} has fewer labels than series", key.name);
        }
    }
}

#[test]
fn every_key_sums_the_peak_as_its_table_does() {
    let mut story = Story::cpu();
    for (at, size) in (0u64..).zip([100, 200, 300, 400, 500]) {
        story.at(at + 1).alloc(at, size).on([LINE_7, LINE_9, WORKER][at as usize % 3]);
    }
    let mut data = story.build();
    let thread = |number| Thread { number: ThreadId(number), os_id: number, name: format!("worker {number}") };
    data.process.threads = [0, 1].map(thread).to_vec();
    for (at, block) in data.devices[0].peak.blocks.iter_mut().enumerate() {
        (block.thread, block.stream) = (ThreadId(at as u32 % 2), at as u32 % 3);
    }
    for (at, record) in data.devices[0].records.iter_mut().enumerate() {
        (record.thread, record.stream) = (ThreadId(at as u32 % 2), at as u32 % 3);
    }
    let device = &data.devices[0];
    let history = history_of(device);
    let stacks = UsedStacks::of(&history);
    let found = keys(&DeviceView::of(&data, device), &history, &stacks);
    let of = |name: &str| {
        let key = found.iter().find(|key| key.name == name).unwrap_or_else(|| panic!("no key {name}"));
        let mut sums = BTreeMap::new();
        for (row, weight) in &history.peak {
            let label = &key.labels[key.of_row(&stacks, *row, &history.rows[*row as usize])];
            *sums.entry(label.clone()).or_default() += weight;
        }
        sums
    };
    let told = |table: &crate::analysis::Breakdown| {
        table.rows.iter().map(|row| (row.label.clone(), row.bytes)).collect::<BTreeMap<_, u64>>()
    };
    assert_eq!(of("thread"), told(DeviceView::of(&data, device).by(Key::Thread)));
    assert_eq!(of("stream"), told(DeviceView::of(&data, device).by(Key::Stream)));
    assert_eq!(of("line"), told(DeviceView::of(&data, device).by(Key::Line)));
    assert!(found.iter().all(|key| key.name != "parameter"), "no block is a parameter");
}

#[test]
fn a_budget_leaves_out_small_blocks_and_never_the_peaks() {
    let data = busy(3000);
    let (whole, left_out) = page(&data, None);
    assert!(left_out.is_nothing());
    let (smallest, least) = page(&data, Some(1));
    assert!(least.too_large, "what must stay is written whatever the budget");
    let max = (4 * whole.len() + smallest.len()) as u64 / 5;
    let (reduced, left_out) = page(&data, Some(max));
    assert!(left_out.allocations > 0 && !left_out.too_large && reduced.len() as u64 <= max, "{left_out}");
    let (whole, reduced) = (head(&whole), head(&reduced));
    let device = |head: &Value| head["recordings"][0]["devices"][0].clone();
    assert!(device(&reduced)["rows"].as_u64() < device(&whole)["rows"].as_u64());
    assert_eq!(device(&reduced)["peak"]["total"], device(&whole)["peak"]["total"]);
    assert_eq!(device(&reduced)["report"]["sections"], device(&whole)["report"]["sections"]);
    assert!(device(&reduced)["left_out"][0].as_str().unwrap().contains("freed before the end"));
}

#[test]
fn a_page_says_which_keys_its_pictures_have_and_whose_code_a_frame_is() {
    let data = busy(30);
    let page = head(&page(&data, None).0);
    let keys = page["recordings"][0]["devices"][0]["keys"].as_array().unwrap();
    let line = keys.iter().find(|key| key["name"] == "line").unwrap();
    assert_eq!(line["series"].as_array().unwrap().len(), 3, "{line}");
    let history = history_of(&data.devices[0]);
    let frames = extras::stacks(&data, &UsedStacks::of(&history), &mut ColumnStore::default());
    let mut origins: Vec<_> = frames.as_array().unwrap().iter().filter_map(|frame| frame[2].as_u64()).collect();
    origins.sort_unstable();
    origins.dedup();
    assert_eq!(origins, [0, 2, 3], "{frames}");
}

#[test]
fn a_block_that_is_freed_at_once_differs_from_one_that_is_never_freed() {
    let mut story = Story::cpu();
    story.at(5).alloc("brief", 100).free("brief").at(6).alloc("kept", 100).alloc("long", 100).at(16).free("long");
    let (page, _) = page(&story.build(), None);
    let prefix = head(&page)["recordings"][0]["devices"][0]["prefix"].as_str().unwrap().to_owned();
    let mut expected = ColumnStore::named(prefix);
    expected.numbers("block.life", Coding::Plain, [1, 0, 11].into_iter());
    assert!(page.contains(&expected.html), "{}", expected.html);
}

#[test]
fn a_device_with_few_records_has_room() {
    let mut data = busy(3000);
    let mut few = data.devices[0].clone();
    few.device = Device::Cuda(0);
    few.records.truncate(3);
    few.live.clear();
    few.peak.blocks.clear();
    data.devices.push(few);
    let (whole, _) = page(&data, None);
    let (_, left_out) = page(&data, Some(8 * whole.len() as u64));
    assert!(left_out.is_nothing(), "{left_out}");
}

#[test]
fn source_text_is_embedded_on_request_only() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("src/main.rs");
    std::fs::create_dir(folder.path().join("src")).unwrap();
    let text = (1..=12).map(|line| format!("line {line} </script><img onerror=x>{}\n", "x".repeat(300)));
    std::fs::write(&file, text.collect::<String>()).unwrap();
    let mut data = two_lines_and_a_temporary();
    data.process.started_unix_us = 0;
    data.process.working_dir = folder.path().to_string_lossy().into_owned();
    let there = |path: String| path.replace("/home/u/net", &data.process.working_dir);
    data.stacks.frames.iter_mut().for_each(|frame| frame.file = frame.file.take().map(there));
    let device = &data.devices[0];
    let stacks = UsedStacks::of(&history_of(device));
    let found = SourceTexts::of(&data, &stacks);
    let [first, lines] = &found.by_place["src/main.rs:9"].as_array().unwrap()[..] else { panic!("{found:?}") };
    assert_eq!((first.as_u64(), lines.as_array().unwrap().len()), (Some(6), 7));
    assert_eq!(lines[3].as_str().map(|line| (line.starts_with("line 9 "), line.len())), Some((true, 200)));
    let mut newer = data.clone();
    newer.process.started_unix_us = 1;
    assert_eq!(SourceTexts::of(&newer, &stacks).by_place.len(), 0, "the file is newer than the recording");

    let texts = |sources| {
        let mut out = Vec::new();
        HtmlPage { sources, ..HtmlPage::default() }.write(&data, &mut out).unwrap();
        out.len()
    };
    assert!(texts(true) > texts(false));

    // Links lead to the same lines, even in files newer than the recording, as long as the files exist.
    let form = LinkForm::named("vscode").unwrap();
    let linked = links(&newer, &stacks, &form);
    assert_eq!(linked["src/main.rs:9"].as_str(), Some(format!("vscode://file{}:9", file.display()).as_str()));
    assert!(linked.keys().eq(found.by_place.keys()), "{linked:?}");
    std::fs::remove_file(&file).unwrap();
    assert!(links(&newer, &stacks, &form).is_empty());
}

#[test]
fn no_file_but_sources_is_read_because_a_recording_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut data = two_lines_and_a_temporary();
    data.process.started_unix_us = 0;
    data.process.working_dir = folder.path().to_string_lossy().into_owned();
    let is_read = |name: &str| {
        std::fs::write(folder.path().join(name), "secret").unwrap();
        source(&data, name).is_some()
    };
    assert!(is_read("main.rs"));
    assert_eq!(["id_rsa", ".env", "secret.pem", "main.rs.bak"].map(is_read), [false; 4]);
}
