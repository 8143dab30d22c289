//! The answer at the top of a report: the peak, when and where it was reached, and its categories and largest line.

use std::collections::HashSet;

use super::sampled;
use super::summary::after;
use crate::analysis::{
    BACKWARD_PASS, BEFORE_RECORDING, Breakdown, Key, LiveSet, Moment, NO_USER_FRAME, NOT_IN_SAMPLE, Row, bytes_by_line,
    line_label, operator_of_row,
};
use crate::attribute::has_backward_pass;
use crate::recording::DeviceView;
use crate::snapshot::{Block, Category, Device, DeviceSnapshot, Lifetime, MappingKind};
use crate::units::{Bytes, grouped, seconds};

/// Shares below 1/20 of the peak are not mentioned.
const WORTH_SAYING: u64 = 20;
const CATEGORIES: usize = 4;

pub(super) fn answer(device: &DeviceView<'_>) -> Vec<String> {
    let mut lines = vec![peak(device)];
    let at_peak = device.at_peak();
    lines.extend(made_of(&at_peak));
    lines.extend(largest(&at_peak));
    lines.extend(out_of_memory(device));
    lines.extend(older_than_the_retry(device));
    lines.push(at_the_end(device));
    lines.extend(elsewhere(device));
    lines.extend(not_recorded(device));
    lines
}

/// If fewer bytes than this were not recorded, that is normal: a program's code, its stacks, and what its allocator
/// keeps.
const LEAST_NOT_RECORDED: u64 = 64 << 20;

/// Says so if the process held much more than was recorded on all devices. The GPUs count, too, because the memory of a
/// simulated GPU may be the host's.
fn not_recorded(device: &DeviceView<'_>) -> Option<String> {
    let data = device.data();
    let memory = data.process.memory.as_ref().filter(|_| device.device == Device::Cpu)?;
    let recorded: u64 = data.devices.iter().map(|device| device.peak.total()).sum();
    let rest = memory.resident_high.saturating_sub(memory.files_high).saturating_sub(recorded);
    (rest >= recorded.max(LEAST_NOT_RECORDED)).then(|| {
        let (most, files) = (Bytes(memory.resident_high), Bytes(memory.files_high));
        let largest = data.process.mappings.as_ref().and_then(|mappings| mappings.of(MappingKind::File).next());
        let largest = largest.map_or_else(String::new, |file| format!(", the largest {}", file.path));
        format!(
            "The process held more than was recorded: resident memory reached {most}, mapped files {files}{largest}."
        )
    })
}

/// Names the devices whose peak is larger than that of the reported device.
fn elsewhere(device: &DeviceView<'_>) -> Vec<String> {
    let peak = device.peak.total();
    let others =
        device.data().devices.iter().filter(|other| other.peak.total() > peak && other.device != device.device);
    let other = |other: &DeviceSnapshot| {
        format!("More is on another device: {0} held {1} (`--device {0}`).", other.device, Bytes(other.peak.total()))
    };
    others.map(other).collect()
}

/// The answer of a report on another moment than the peak.
pub(super) fn of_moment(then: &LiveSet<'_>, moment: &Moment) -> Vec<String> {
    let mut lines = vec![format!("{}: {} on {}.", moment.heading(), Bytes(then.total()), then.device.device)];
    lines.extend(made_of(then));
    lines.extend(largest(then));
    lines
}

fn peak(device: &DeviceView<'_>) -> String {
    let peak = &device.peak;
    let at = format!("Peak {} on {}{}", Bytes(peak.total()), device.device, after(device.data(), peak.time_ns));
    let last = peak.blocks.last().filter(|block| block.seq == peak.seq);
    match last.map(|block| device.data().context_path(block.context)) {
        Some(path) if !path.is_empty() => format!("{at}, in {path}."),
        Some(_) if !device.scopes.is_empty() => format!("{at}, outside of all scopes."),
        _ => format!("{at}."),
    }
}

/// The shares of categories, if any category is known.
fn made_of(live: &LiveSet<'_>) -> Option<String> {
    let found = live.by(Key::Category);
    let is_category = |label: &str| label.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    let is_told = found.rows.iter().any(|row| is_category(&row.label) && is_worth(row.bytes, found.total));
    let parts: Vec<String> = found
        .rows
        .iter()
        .filter(|row| is_worth(row.bytes, found.total))
        .take(CATEGORIES)
        .map(|row| format!("{} {}", percent(row.bytes, found.total), row.label))
        .collect();
    is_told.then(|| format!("It was {}.", parts.join(", ")))
}

/// The key whose lines a user can act on. A backward pass allocates everything at one line, so the report uses the
/// lines of the forward calls if they are known.
pub(crate) fn line_key(device: &DeviceView<'_>) -> Key {
    if device.pairings().is_empty() { Key::Line } else { Key::ForwardLine }
}

fn largest(live: &LiveSet<'_>) -> Option<String> {
    let key = line_key(live.device);
    let Breakdown { rows, total } = &*live.by(key);
    let total = *total;
    let is_told = |row: &&Row| row.label != NOT_IN_SAMPLE && !row.label.starts_with("(blocks ");
    let most = rows.iter().find(is_told)?;
    let line = rows.iter().filter(is_told).find(|row| row.label != BEFORE_RECORDING)?;
    // Prefers a line that the reader can act on.
    let is_own = |row: &&Row| !row.label.starts_with('(') && !row.label.ends_with(NO_USER_FRAME);
    let is_close = |row: &&Row| line.label.starts_with('(') || row.bytes.saturating_mul(2) >= line.bytes;
    let row = rows.iter().find(is_own).filter(is_close).unwrap_or(line);
    let about = sampled::about(live.device.sample_interval());
    let name = |row: &Row| workspace(live, row).unwrap_or_else(|| row.label.clone());
    let beside = match most.label == row.label {
        true => String::new(),
        false => format!(
            " More is in {}, without a line of yours: {about}{} ({}).",
            name(most),
            Bytes(most.bytes),
            percent(most.bytes, total)
        ),
    };
    let (bytes, share) = (Bytes(row.bytes), percent(row.bytes, total));
    let operator = operator_of_row(live, key, row);
    let is_backward = |name: &&str| *name == BACKWARD_PASS || name.starts_with("backward of ");
    let hint = operator.as_deref().filter(is_backward).filter(|_| lacks_order(live.device)).map_or("", |_| HINT);
    let operator = operator.map_or(String::new(), |name| format!(", most of it by {name}"));
    let line = if key == Key::ForwardLine { "line of the forward pass" } else { "line" };
    Some(format!("The {line} that held most: {}, {about}{bytes} ({share}){operator}.{hint}{beside}", name(row)))
}

const HINT: &str = " With `memtrace::candle::backward` or `backward_step` in place of candle's, the report can attribute most of it to lines of the model.";

/// Would the report say more if the program reported the order of its backward passes?
fn lacks_order(device: &DeviceView<'_>) -> bool {
    let has_order = device.data().devices.iter().any(|device| !device.graph_nodes.is_empty());
    !has_order && !device.is_sample() && has_backward_pass(device.data())
}

/// A name for a row that has no line of the program, if all of its blocks are buffers of a library's matrix kernels.
fn workspace(live: &LiveSet<'_>, row: &Row) -> Option<String> {
    let categories = live.device.categories();
    let of_row = |block: &&Block| line_label(live.device.data(), block.stack.0) == row.label;
    let blocks: Vec<&Block> = live.blocks.iter().filter(of_row).collect();
    let is_workspace = |block: &&Block| categories.get(block.seq) == Category::Workspace;
    let threads = blocks.iter().map(|block| block.thread).collect::<HashSet<_>>().len();
    let is_all = row.label.ends_with(NO_USER_FRAME) && blocks.iter().all(is_workspace);
    is_all.then(|| format!("matrix kernels' buffers, {threads} {}", if threads == 1 { "thread" } else { "threads" }))
}

/// The lines that held most of the peak, the largest first, each with a sentence.
pub(crate) fn holders(device: &DeviceView<'_>, most: usize) -> Vec<(String, String)> {
    let key = line_key(device);
    let (Breakdown { rows, total }, at_peak) = (device.by(key), device.at_peak());
    let about = sampled::about(device.sample_interval());
    let holder = |row: &Row| {
        let operator =
            operator_of_row(&at_peak, key, row).map_or(String::new(), |name| format!(", most of it by {name}"));
        let blocks = match row.count {
            Some(1) => " in 1 block".to_owned(),
            Some(count) => format!(" in {about}{} blocks", grouped(count)),
            None => String::new(),
        };
        let share = percent(row.bytes, *total);
        (row.label.clone(), format!("{about}{} ({share}){blocks}{operator}", Bytes(row.bytes)))
    };
    rows.iter().take(most).map(holder).collect()
}

/// True if the device's memory is the host's. The driver then counts the page cache as used.
pub(super) fn is_integrated(device: &DeviceSnapshot) -> bool {
    device.memory.is_some_and(|memory| memory.unified.is_some())
}

fn out_of_memory(device: &DeviceSnapshot) -> Option<String> {
    let oom = device.ooms.last()?;
    let (size, after) = (Bytes(oom.size), seconds(oom.time_ns));
    let beside = if is_integrated(device) { " beside the page cache" } else { "" };
    let free = oom.device_free.map_or(String::new(), |free| format!(", with {} free{beside}", Bytes(free)));
    let times = match device.stats.num_ooms {
        1 => "once: a request".to_owned(),
        times => format!("{times} times: the last request,"),
    };
    let what = if device.device == Device::Cpu { "heap" } else { "device" };
    Some(format!("The {what} ran out of memory {times} of {size} after {after:.3} s{free}."))
}

/// A sentence on the blocks that were live at the last of several refused allocations and are older than the first. If
/// the program tries again with less, such as a smaller batch, this does not free them.
fn older_than_the_retry(device: &DeviceView<'_>) -> Option<String> {
    let (first, last) =
        device.ooms.first().zip(device.ooms.last()).filter(|(first, last)| first.time_ns < last.time_ns)?;
    let is_live = |life: &&Lifetime| {
        let begun = device.span_ns(life).start < first.time_ns;
        begun && life.free(device).is_none_or(|free| free.time_ns > last.time_ns)
    };
    let live = device.lifetimes().iter().filter(is_live).map(|life| (life.block.stack, life.block.size));
    let by_line = bytes_by_line(device.data(), live);
    let older: u64 = by_line.values().sum();
    let (line, most) = by_line.into_iter().rev().max_by_key(|(_, bytes)| *bytes)?;
    is_worth(older, device.peak.total()).then(|| {
        format!(
            "At the last refusal, {} were older than the first one, most of it from {line}: {}.",
            Bytes(older),
            Bytes(most)
        )
    })
}

fn at_the_end(device: &DeviceSnapshot) -> String {
    let live = device.stats.allocated_bytes.current + device.below_threshold;
    let of = if device.device == Device::Cpu { "" } else { " on the device" };
    let peak = device.peak.total();
    let beside = if live > peak {
        ", more than at the peak, because blocks below the threshold count only when a larger one is allocated"
            .to_owned()
    } else {
        format!(" ({} of the peak)", percent(live, peak))
    };
    format!("Still live at the end{of}: {}{beside}.", Bytes(live))
}

fn is_worth(bytes: u64, total: u64) -> bool {
    bytes.saturating_mul(WORTH_SAYING) >= total && bytes > 0
}

pub(super) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "nothing".to_owned() } else { format!("{:.0} %", 100.0 * part as f64 / whole as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::testing::{LINE_7, Story, frame, registry, stacks};
    use crate::snapshot::{SnapshotData, StackId};

    fn held_most(trace: &Story) -> String {
        let data = trace.build();
        largest(&DeviceView::of(&data, &data.devices[0]).at_peak()).unwrap()
    }

    #[test]
    fn what_held_more_than_the_device_is_said() {
        let mut trace = Story::cpu();
        trace.alloc("block", 1000).on(LINE_7);
        let mut data = trace.build();
        assert_eq!(elsewhere(&DeviceView::of(&data, &data.devices[0])), [""; 0]);
        let other = DeviceSnapshot { device: Device::Pinned, ..data.devices[0].clone() };
        data.devices.push(other);
        data.devices[1].peak.bytes += 1;
        assert_eq!(
            elsewhere(&DeviceView::of(&data, &data.devices[0])),
            ["More is on another device: pinned held 1001 B (`--device pinned`)."]
        );
        assert_eq!(elsewhere(&DeviceView::of(&data, &data.devices[1])), [""; 0]);
    }

    #[test]
    fn memory_beyond_the_recording_is_said_if_it_is_more() {
        let mut data = Story::cpu().alloc("block", 100 << 20).on(LINE_7).build();
        let said = |data: &SnapshotData| not_recorded(&DeviceView::of(data, &data.devices[0]));
        assert_eq!(said(&data), None);
        let (resident_high, files_high) = (230 << 20, 30 << 20);
        data.process.memory = Some(crate::snapshot::HostMemory { resident_high, files_high, ..Default::default() });
        let expected =
            "The process held more than was recorded: resident memory reached 230.0 MiB, mapped files 30.00 MiB.";
        assert_eq!(said(&data).as_deref(), Some(expected));
        data.devices[0].peak.bytes += 1;
        assert_eq!(said(&data), None);
    }

    #[test]
    fn more_at_the_end_than_at_the_peak_is_explained() {
        let mut data = Story::cpu().alloc("block", 1000).on(LINE_7).build();
        assert_eq!(at_the_end(&data.devices[0]), "Still live at the end: 1000 B (100 % of the peak).");
        data.devices[0].below_threshold = 1;
        let said = at_the_end(&data.devices[0]);
        assert!(
            said.starts_with("Still live at the end: 1001 B, more than at the peak, because blocks below"),
            "{said}"
        );
    }

    #[test]
    fn what_a_retry_does_not_free_is_named() {
        let mut trace = Story::cpu();
        trace.at(1).alloc("first try", 900).on(LINE_7).alloc("freed", 50).on(LINE_7).at(2).refused(500, Some(1));
        let once = trace.build();
        assert_eq!(older_than_the_retry(&DeviceView::of(&once, &once.devices[0])), None);
        trace
            .free("freed")
            .at(3)
            .alloc("second try", 60)
            .on(LINE_7)
            .at(4)
            .refused(400, Some(1))
            .at(5)
            .free("first try");
        let data = trace.build();
        let expected = "At the last refusal, 900 B were older than the first one, most of it from src/model.rs:7 (Net::forward): 900 B.";
        assert_eq!(older_than_the_retry(&DeviceView::of(&data, &data.devices[0])).unwrap(), expected);
    }

    #[test]
    fn the_line_is_one_that_the_reader_can_act_on() {
        let mut trace = Story::cpu();
        trace.alloc("older", 3000).on(StackId::NONE).alloc("own", 1000).on(LINE_7);
        let expected = "The line that held most: src/model.rs:7 (Net::forward), 1000 B (25 %), most of it by relu. More is in (no stack), without a line of yours: 2.930 KiB (75 %).";
        assert_eq!(held_most(&trace), expected);
        trace.before(5000);
        let expected = "src/model.rs:7 (Net::forward), 1000 B (11 %), most of it by relu. More is in (allocated before recording), without a line of yours: 4.883 KiB (56 %).";
        assert!(held_most(&trace).ends_with(expected), "{}", held_most(&trace));
        let beside_a_pool = |own| {
            let pool = frame("alloc", &registry("dyn-stack-0.13.2/src/alloc.rs"), 441);
            let mut trace = Story::cpu();
            trace.stacks(stacks(vec![pool, frame("net::main", "/home/u/net/src/main.rs", 9)], [&[0][..], &[1]]));
            trace.alloc("buffer", 3000).on(StackId(1)).alloc("own", own).on(StackId(2));
            held_most(&trace)
        };
        assert!(beside_a_pool(2000).starts_with("The line that held most: src/main.rs:9 "), "{}", beside_a_pool(2000));
        let expected = "The line that held most: matrix kernels' buffers, 1 thread, 2.930 KiB (75 %).";
        assert_eq!(beside_a_pool(1000), expected);
        assert!(
            beside_a_pool(2000)
                .ends_with(" More is in matrix kernels' buffers, 1 thread, without a line of yours: 2.930 KiB (60 %).")
        );
    }

    #[test]
    fn where_the_backward_pass_holds_most_it_is_said_how_to_know_its_lines() {
        let of_candle = |function: &str, file: &str, line| {
            frame(&format!("candle_core::{function}"), &registry(&format!("candle-core-0.11.1/src/{file}")), line)
        };
        let add = of_candle("tensor::Tensor::add", "tensor.rs", 5);
        let pass = of_candle("tensor::Tensor::backward", "backprop.rs", 465);
        let train = frame("net::train", "/home/u/net/src/main.rs", 20);
        let mut trace = Story::cpu();
        trace.stacks(stacks(vec![add, pass, train], [&[0, 1, 2][..], &[2]])).alloc("sum", 3000).on(StackId(1));
        assert!(
            held_most(&trace).ends_with(&format!("most of it by backward of matmul: add.{HINT}")),
            "{}",
            held_most(&trace)
        );
        trace.alloc("own", 8000).on(StackId(2));
        assert!(!held_most(&trace).contains(HINT), "{}", held_most(&trace));
    }
}
