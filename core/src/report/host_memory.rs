//! Sections on the physical memory of the process: its balance, and what it mapped.

use super::device_memory::balance_table;
use super::summary::{after, relative};
use super::{Cell, Section};
use crate::analysis::{BalanceItem, BalanceRow, LiveSet, MappedRow, at_reading, host_balance, line_label, mapped};
use crate::attribute::Attribution;
use crate::recording::DeviceView;
use crate::snapshot::{MappingKind, Mappings, StackId};
use crate::units::{Bytes, seconds};

/// The most mappings that are shown.
const ROWS: usize = 8;

pub(super) const KEYS: [&str; 1] = ["mapped"];

/// The sections on the process's memory, which belong to the heap's device.
pub(super) fn sections(device: &DeviceView<'_>) -> Vec<Section> {
    let reading = at_reading(device);
    let Some((mappings, then)) = reading else { return Vec::new() };
    let of_mappings = mapped_section(device.data(), mappings, &then);
    [balance_section(device, mappings, &then)].into_iter().chain(of_mappings).collect()
}

fn balance_section(device: &DeviceView<'_>, mappings: &Mappings, then: &LiveSet<'_>) -> Section {
    let balance = host_balance(mappings, then);
    let (used, when) = (Bytes(balance.used), after(device.data(), mappings.time_ns));
    let mut section =
        balance_table(&balance, format!("Where the process's memory is: {used} resident{when}"), sentence);
    let live = then.bytes.saturating_add(mappings.below_threshold);
    section.about.push(distance(mappings.time_ns, device.peak.time_ns, live, device.peak.total()));
    section
}

/// How far the reading is from the peak of the heap.
fn distance(time_ns: u64, peak_ns: u64, live: u64, peak: u64) -> String {
    let apart = seconds(time_ns.abs_diff(peak_ns));
    let side = if time_ns < peak_ns { "before" } else { "after" };
    match peak.saturating_sub(live) {
        0 => format!("Read {apart:.3} s {side} the peak, when as much was live."),
        less => format!("Read {apart:.3} s {side} the peak, when {} less were live.", Bytes(less)),
    }
}

fn sentence(row: &BalanceRow) -> Option<&'static str> {
    Some(match row.item {
        BalanceItem::Before => "from before the recording; `cargo memtrace run` records from the start.",
        BalanceItem::Untouched => "not written to yet, or swapped out.",
        BalanceItem::Kept => {
            "freed memory that the allocator keeps for later, what it writes around each block, and in programs with memtrace in \
             them the blocks of C libraries. malloc_trim(0) gives back what is free; MALLOC_ARENA_MAX=2 keeps fewer arenas."
        }
        BalanceItem::Unexplained if row.bytes < 0 => "blocks were freed, or mappings came, while the memory was read.",
        BalanceItem::Unexplained => {
            "memory without a file in which no recorded block lies and whose mapping was not seen."
        }
        _ => return None,
    })
}

fn mapped_section(data: &Attribution<'_>, mappings: &Mappings, then: &LiveSet<'_>) -> Option<Section> {
    let rows: Vec<MappedRow<'_>> = mapped(mappings, &then.blocks).collect();
    let (size, resident) = rows.iter().fold((0u64, 0u64), |(size, resident), row| {
        (size.saturating_add(row.size), resident.saturating_add(row.resident))
    });
    let heading = format!(
        "What was mapped: {} of {} in physical memory{}",
        Bytes(resident),
        Bytes(size),
        after(data, mappings.time_ns)
    );
    let mut section = Section::of_columns("mapped", heading, &["Mem", "Size", "Maps", "What"]);
    section.rows = rows.iter().take(ROWS).map(|row| cells(data, row)).collect();
    if rows.len() > ROWS {
        section.notes.push(format!("{} more rows are left out.", rows.len() - ROWS));
    }
    (!rows.is_empty()).then_some(section)
}

fn cells(data: &Attribution<'_>, row: &MappedRow<'_>) -> Vec<Cell> {
    let what = if row.kind == MappingKind::Anonymous {
        "memory without a file"
    } else {
        relative(row.path, &data.process.working_dir)
    };
    let line = (row.stack != StackId::NONE).then(|| line_label(data, row.stack.0));
    let what = line.map_or_else(|| what.to_owned(), |line| format!("{what}, at {line}"));
    vec![Cell::Sum(row.resident), Cell::Sum(row.size), Cell::Count(row.count), Cell::Text(what)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Mapping;
    use crate::snapshot::testing::{LINE_7, LINE_9, Story};

    const MIB: u64 = 1 << 20;

    fn mapping(kind: MappingKind, path: &str, stack: StackId, resident: u64) -> Mapping {
        Mapping { kind, start: 1 << 40, size: 4 * MIB, resident, count: 2, path: path.into(), stack }
    }

    #[test]
    fn the_process_and_what_it_mapped_are_tables_of_the_heap() {
        let mut story = Story::cpu();
        story.at(2_000_000).alloc("block", 8 * MIB).on(LINE_7).at(9_000_000).free("block");
        let mut data = story.build();
        assert_eq!(sections(&DeviceView::of(&data, &data.devices[0])), []);
        let rows = vec![
            mapping(MappingKind::File, "/home/u/net/w.safetensors", LINE_9, 3 * MIB),
            mapping(MappingKind::Anonymous, "", LINE_7, MIB),
            mapping(MappingKind::Code, "", StackId::NONE, 2 * MIB),
        ];
        data.process.mappings = Some(Mappings { time_ns: 3_000_000, rows, ..Mappings::default() });
        data.process.working_dir = "/home/u/net".into();
        let [balance, mapped] = sections(&DeviceView::of(&data, &data.devices[0])).try_into().unwrap();
        assert_eq!(balance.title, "Where the process's memory is: 6.000 MiB resident after 0.003 s");
        assert_eq!(balance.about, ["Read 0.001 s after the peak, when as much was live."]);
        assert_eq!(mapped.title, "What was mapped: 4.000 MiB of 8.000 MiB in physical memory after 0.003 s");
        let texts: Vec<&Cell> = mapped.rows.iter().filter_map(|row| row.last()).collect();
        let expected =
            ["w.safetensors, at src/main.rs:9 (net::pad)", "memory without a file, at src/model.rs:7 (Net::forward)"];
        assert_eq!(texts, expected.map(|text| Cell::Text(text.into())).iter().collect::<Vec<_>>());
    }
}
