//! What allocators would reserve for a recording: an answer, a table of the models, and what holds the memory where it
//! runs out.

use super::{Cell, Section};
use crate::analysis::{AllocatorModel, Fit, Key, Packing, RunsOut, WhatIf, line_label};
use crate::recording::DeviceView;
use crate::snapshot::Device;
use crate::units::{Bytes, grouped, round, seconds};

/// Sentences on what a model of an allocator reserves, and whether that fits in `memory`.
pub fn what_if_answer(device: &DeviceView<'_>, found: &WhatIf, memory: Option<u64>) -> Vec<String> {
    let model = found.model;
    if let Some(out) = &found.runs_out {
        return runs_out(device, found, out, memory.unwrap_or(u64::MAX));
    }
    let (reserved, live) = (Bytes(found.reserved_peak), Bytes(found.live_peak));
    let lost = lost(found.reserved_peak, found.live_peak);
    let fits = memory.map_or(String::new(), |memory| {
        format!("Fits in {}: {} to spare. ", Bytes(memory), Bytes(memory.saturating_sub(found.reserved_peak)))
    });
    vec![
        format!("{fits}With {model} at most {reserved} would be reserved; the live peak is {live}: {lost} is lost."),
        format!(
            "When most was reserved, {} were live, {} were free in {} {}, and {} were rounding.",
            Bytes(found.live_then),
            Bytes(found.free_then),
            found.segments_then,
            if found.segments_then == 1 { "segment" } else { "segments" },
            Bytes((found.reserved_peak - found.live_then).saturating_sub(found.free_then))
        ),
    ]
}

fn runs_out(device: &DeviceView<'_>, found: &WhatIf, out: &RunsOut, memory: u64) -> Vec<String> {
    let asks = match &out.block {
        Some(block) => line_label(device.data(), block.stack.0),
        None => "memory that does not come from the allocator".to_owned(),
    };
    let when = if out.is_before_log {
        "with what was live when the log begins".to_owned()
    } else {
        format!("at {:.3} s, record {}", seconds(out.time_ns), grouped(out.records as u64 + 1))
    };
    vec![
        format!(
            "Runs out of {} with {} {when}: {} are requested by {asks}.",
            Bytes(memory),
            found.model,
            Bytes(out.size)
        ),
        format!(
            "Then {} are live and {} reserved; {} are free in segments, in pieces of at most {}.",
            Bytes(out.live),
            Bytes(out.reserved),
            Bytes(out.free),
            Bytes(out.largest_gap)
        ),
    ]
}

fn lost(reserved: u64, live: u64) -> String {
    let part = 100.0 * reserved.saturating_sub(live) as f64 / reserved.max(1) as f64;
    format!("{part:.1} %")
}

/// A row for each model, in the order given.
pub fn what_if_section(all: &[WhatIf]) -> Section {
    let columns = ["Reserved", "Lost", "Free then", "Segments", "At the end", "Allocator"];
    let mut section = Section::of_columns("allocators", "What allocators would reserve", &columns);
    section.rows = all.iter().map(row).collect();
    section
}

fn row(found: &WhatIf) -> Vec<Cell> {
    let name = match &found.runs_out {
        Some(out) => format!("{}: runs out at {:.3} s", found.model, seconds(out.time_ns)),
        None => found.model.to_string(),
    };
    let lost = found.reserved_peak.saturating_sub(found.live_peak);
    let end = if found.runs_out.is_some() { Cell::Nothing } else { Cell::Sum(found.reserved_end) };
    vec![
        Cell::Sum(found.reserved_peak),
        Cell::Share { part: lost, whole: found.reserved_peak },
        Cell::Sum(found.free_then),
        Cell::Count(found.segments_then as u64),
        end,
        Cell::Text(name),
    ]
}

/// The best of the settings of the allocator `like`: a setting that does not run out of memory, and among these the one
/// that reserves least. If several are equal, the first.
pub fn what_if_choice(all: &[WhatIf], like: AllocatorModel) -> Option<&WhatIf> {
    let settings = all.iter().filter(|found| found.model.is_like(like));
    settings.min_by_key(|found| (found.runs_out.is_some(), found.reserved_peak))
}

/// The largest lines of what is live when memory runs out.
pub fn what_if_holders(device: &DeviceView<'_>, out: &RunsOut, rows: usize) -> Section {
    let live = device.live_when(out);
    let lines = live.by(Key::Line);
    let mut section =
        Section::of_columns("holders", "Live when memory runs out, by line", &["Bytes", "Share", Key::Line.column()]);
    let row = |bytes: u64, label: String| {
        vec![Cell::Sum(bytes), Cell::Share { part: bytes, whole: lines.total }, Cell::Text(label)]
    };
    section.rows = lines.rows.iter().take(rows).map(|line| row(line.bytes, line.label.clone())).collect();
    let rest: u64 = lines.rows.iter().skip(rows).map(|line| line.bytes).sum();
    if rest > 0 {
        section.rows.push(row(rest, "others".to_owned()));
    }
    section
}

/// What the figures do not say.
pub fn what_if_notes(device: &DeviceView<'_>, all: &[WhatIf]) -> Vec<String> {
    let mut notes = vec![
        "The allocators are models: none has been compared with a GPU (docs/replay.md says with what).".to_owned(),
    ];
    notes.extend(compared_line(device));
    notes.extend(
        Fit::doubt_of_peak(device).map(|why| format!("The program may need more than the recording says: {why}.")),
    );
    let start = device.overwritten > 0 && all.iter().any(|found| found.live_peak < device.peak.bytes);
    if start {
        let peak = Bytes(device.peak.bytes);
        notes.push(format!("The peak of {peak} is older than the log and was not replayed."));
    }
    if device.overwritten > 0 {
        notes.push(
            "What was live when the log begins enters in the order of its allocation; where it lay is not known."
                .to_owned(),
        );
    }
    if device.device == Device::Cpu && device.data().settings.min_size > 1 {
        let threshold = round(device.data().settings.min_size);
        notes.push(format!("Blocks smaller than {threshold} are not included: they have no records."));
    }
    if !device.gaps.is_empty() {
        notes.push("The log has gaps: what happened in them was not replayed.".to_owned());
    }
    let releases = device.segment_records.iter().any(|segment| segment.kind == crate::snapshot::RecordKind::Free);
    let has_pool =
        all.iter().any(|found| matches!(found.model, AllocatorModel::DriverPool { threshold } if threshold < u64::MAX));
    if has_pool && !releases {
        notes.push("No synchronization is known at which the driver's pool released memory, so its threshold makes no difference here.".to_owned());
    }
    notes
}

/// How tightly the blocks could be packed; `None` if there are no blocks.
pub fn packing_line(found: &Packing) -> Option<String> {
    let (bytes, live) = (Bytes(found.bytes), Bytes(found.live_peak));
    let asked = format!("Packed by an allocator that knows the future, the blocks lie in {bytes}");
    let line = match (found.bytes > found.live_peak, found.gave_up) {
        (false, _) => format!("{asked}, which is their live peak: none is tighter."),
        (true, false) => format!("{asked}; their live peak is {live}, and a tighter packing may exist."),
        (true, true) => format!(
            "{asked}; their live peak is {live}, and tighter packings were not all tried: they are too many blocks."
        ),
    };
    (found.bytes > 0).then_some(line)
}

/// How closely the model of PyTorch's allocator agrees with the file, if the file is PyTorch's.
fn compared_line(device: &DeviceView<'_>) -> Option<String> {
    let found = match device.compared_with_file()? {
        Ok(found) => found,
        Err(why) => return Some(format!("PyTorch's model was not compared with the file: {why}.")),
    };
    let differs = match found.largest_difference {
        0 => "reserved bytes are the file's after each".to_owned(),
        most => format!(
            "reserved bytes are the file's after {} and differ by at most {}",
            grouped(found.same_reserved as u64),
            Bytes(most)
        ),
    };
    Some(format!(
        "PyTorch's model from the file's first state on, over {} allocs and frees: {} of {} allocs are at the file's address, {differs}; at the end {} in {} segments, in the file {} in {}.",
        grouped(found.events as u64),
        grouped(found.same_address as u64),
        grouped(found.allocs as u64),
        Bytes(found.in_model.0),
        found.in_model.1,
        Bytes(found.in_file.0),
        found.in_file.1
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::testing::{LINE_7, LINE_9, Story};

    const MIB: u64 = 1 << 20;

    fn story() -> Story {
        let mut story = Story::cuda(0);
        story.at(1_000).alloc("weights", 30 * MIB).on(LINE_7);
        story.at(2_000).alloc("input", 4 * MIB).on(LINE_9);
        story.at(3_000).free("input");
        story
    }

    #[test]
    fn what_is_reserved_beyond_the_live_peak_is_lost() {
        let data = story().build();
        let device = DeviceView::of(&data, &data.devices[0]);
        let found = device.what_if("driver-pool".parse().unwrap(), Some(65 * MIB), 0).unwrap();
        let answer = what_if_answer(&device, &found, Some(65 * MIB));
        assert_eq!(
            answer,
            [
                "Fits in 65.00 MiB: 1.000 MiB to spare. With driver-pool at most 64.00 MiB would be reserved; the live peak is 34.00 MiB: 46.9 % is lost.",
                "When most was reserved, 34.00 MiB were live, 30.00 MiB were free in 2 segments, and 0 B were rounding.",
            ]
        );
    }

    #[test]
    fn where_memory_runs_out_it_is_said_who_asks_and_who_holds_it() {
        let data = story().build();
        let device = DeviceView::of(&data, &data.devices[0]);
        let found = device.what_if("driver-pool".parse().unwrap(), Some(33 * MIB), 0).unwrap();
        let answer = what_if_answer(&device, &found, Some(33 * MIB));
        let asks = "Runs out of 33.00 MiB with driver-pool at 0.000 s, record 2: 4.000 MiB are requested by src/main.rs:9 (net::pad).";
        assert!(answer[0].starts_with(asks), "{answer:?}");
        let holders = what_if_holders(&device, found.runs_out.as_ref().unwrap(), 5);
        let share = Cell::Share { part: 30 * MIB, whole: 30 * MIB };
        let text = Cell::Text("src/model.rs:7 (Net::forward)".to_owned());
        assert_eq!(holders.rows, [vec![Cell::Sum(30 * MIB), share, text]]);
    }

    #[test]
    fn the_setting_to_choose_does_not_run_out_and_the_first_of_equal_ones_counts() {
        let data = story().build();
        let device = DeviceView::of(&data, &data.devices[0]);
        let all = |memory| {
            let models = AllocatorModel::all().into_iter();
            models.map(|model| device.what_if(model, memory, 0).unwrap()).collect::<Vec<_>>()
        };
        let pytorch: AllocatorModel = "pytorch".parse().unwrap();
        let choice = |memory| what_if_choice(&all(memory), pytorch).unwrap().model.to_string();
        assert_eq!(choice(None), "pytorch,expandable");
        let pool: AllocatorModel = "driver-pool".parse().unwrap();
        assert_eq!(what_if_choice(&all(None), pool).unwrap().model, pool);
    }
}
