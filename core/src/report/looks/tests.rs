//! Live views as text: compared with a golden file, and checked in windows of any size.

use super::*;
use crate::analysis::{Key, Look, LookOrder, Looks};
use crate::export::{Text, golden_tests};
use crate::recording::Recording;
use crate::snapshot::testing::{LINE_7, LINE_9, Story, WORKER, a_sample};
use crate::snapshot::{Device, DeviceMemory, DeviceSnapshot, SnapshotData};

const KEYS: &[Key] = &[Key::Line];

fn look(data: &SnapshotData, file: &str) -> Look {
    Look::of(&Recording::new(data), file, None, KEYS)
}

/// A rank with a GPU of 1 MiB and the heap, after this many of three moments.
fn rank(number: u32, moments: usize) -> SnapshotData {
    let (mut gpu, mut heap) = (Story::cuda(0), Story::cpu());
    let memory = DeviceMemory { total: 1 << 20, free: 500_000, ..DeviceMemory::default() };
    gpu.memory_of_device(memory).segment_alloc(0x1000_0000, 2 << 20);
    heap.below_threshold(700);
    gpu.at(1_000).alloc("weights", 300_000).on(LINE_7).alloc("cache", 20_000 * u64::from(number)).on(LINE_9);
    heap.at(1_000).alloc("batch", 5_000).on(WORKER);
    gpu.lasting(1_000_000_000);
    if moments > 1 {
        gpu.at(1_100_000_000).alloc("cache 2", 50_000).on(LINE_9).alloc("activation", 70_000).on(WORKER);
        gpu.lasting(2_000_000_000);
    }
    if moments > 2 {
        gpu.at(2_100_000_000).free("activation").alloc("cache 3", 50_000).on(LINE_9).lasting(3_000_000_000);
    }
    let mut data = gpu.build();
    data.devices.push(DeviceSnapshot { device: Device::Cpu, ..heap.device() });
    data.process.rank = Some(number);
    data.process.pid = 40 + number;
    data
}

/// A rank that was read this many times.
fn watched(number: u32, moments: usize) -> WatchedFile {
    let file = format!("rank{number}.memtrace");
    let mut looks = Looks::begin(look(&rank(number, 1), &file));
    (2..=moments).for_each(|moment| looks.add(look(&rank(number, moment), &file)));
    WatchedFile { file, looks: Some(looks), ..WatchedFile::default() }
}

fn options(width: usize) -> LookOptions {
    LookOptions { ranks: 8, rows: 20, width, ..LookOptions::default() }
}

fn picture(files: &[WatchedFile], options: &LookOptions) -> String {
    Text { width: options.width, ..Text::default() }.show(&Report::of_looks(files, options))
}

fn several() -> Vec<WatchedFile> {
    let killed = |file: &mut WatchedFile| {
        let mut data = rank(2, 2);
        data.health.cut_off = true;
        file.looks.as_mut().unwrap().add(look(&data, &file.file));
        file.has_ended = true;
    };
    let mut files = vec![watched(0, 3), watched(1, 3), watched(2, 1)];
    killed(&mut files[2]);
    let problem = Some("it ends before its first commit".to_owned());
    files.push(WatchedFile { file: "rank3.memtrace".to_owned(), problem, ..WatchedFile::default() });
    files
}

#[test]
fn golden_pictures() {
    let (one, all) = ([watched(1, 3)], several());
    let grown = LookOptions { order: LookOrder::Growth, ..options(80) };
    let filter = LookOptions { filter: "MAIN.rs".to_owned(), ..options(80) };
    let folded = LookOptions { rows: 1, ..options(80) };
    let chosen = |chosen| LookOptions { chosen, ..options(80) };
    let sample = Looks::begin(look(&a_sample(), "a"));
    let sample = WatchedFile { looks: Some(sample), has_ended: true, ..WatchedFile::default() };
    let pictures = [
        ("the first look, 80 columns", picture(&[watched(1, 1)], &options(80))),
        ("the third look, 80 columns", picture(&one, &options(80))),
        ("the third look, 60 columns", picture(&one, &options(60))),
        ("the third look, 40 columns", picture(&one, &options(40))),
        ("sorted by growth, 80 columns", picture(&one, &grown)),
        ("sorted by growth, 40 columns", picture(&one, &LookOptions { width: 40, ..grown })),
        ("with a filter", picture(&one, &filter)),
        ("with one row", picture(&one, &folded)),
        ("several ranks, 80 columns", picture(&all, &chosen(1))),
        ("several ranks, 40 columns", picture(&all, &LookOptions { width: 40, ..chosen(0) })),
        ("the rank that was killed", picture(&all, &chosen(2))),
        ("the rank that cannot be read, of two that are shown", picture(&all, &LookOptions { ranks: 2, ..chosen(3) })),
        ("another key than that of the look", picture(&one, &LookOptions { by: Key::Scope, ..options(80) })),
        ("a sample", picture(&[sample], &options(80))),
    ];
    let text: Vec<String> = pictures.iter().map(|(name, picture)| format!("=== {name}\n{picture}")).collect();
    golden_tests::check("top.txt", text.join("\n").as_bytes());
}

/// The bytes and growth of a table add up to those of the device, whatever is folded or filtered.
#[test]
fn rows_that_are_not_shown_are_summed() {
    let file = watched(3, 3);
    let looks = file.looks.as_ref().unwrap();
    for (rows, filter) in [(20, ""), (1, ""), (1, "main"), (0, "model"), (5, "no such text")] {
        let options = LookOptions { rows, filter: filter.to_owned(), ..options(80) };
        for (at, device) in looks.last().devices.iter().enumerate() {
            let report = Report::of_looks(std::slice::from_ref(&file), &options);
            let column = |column: usize| {
                report.sections[at].rows.iter().map(move |row| match row[column] {
                    crate::report::Cell::Sum(bytes) => bytes as i64,
                    crate::report::Cell::Change(change) => change,
                    ref cell => panic!("{cell:?}"),
                })
            };
            assert_eq!(column(0).sum::<i64>(), device.live as i64, "{rows} {filter}");
            let grown = if device.peak.device == Device::Cpu { 0 } else { 100_000 };
            assert_eq!(column(2).sum::<i64>(), grown, "{rows} {filter}");
        }
    }
}
