//! Notes: what a recording missed, and how to avoid it.

use super::coverage;
use crate::analysis;
use crate::analysis::Key;
use crate::recording::{DeviceView, Recording};
use crate::snapshot::{DeviceSnapshot, Health, Process};
use crate::units::{grouped, seconds};

pub(super) fn notes(data: &Recording<'_>) -> Vec<String> {
    let health = &data.health;
    let mut notes: Vec<String> = rank_note(&data.process).into_iter().collect();
    notes.extend(health.import_notes.iter().cloned());
    notes.extend(health.notes());
    let lost_names: u64 = data.devices.iter().map(|device| device.lost_names).sum();
    if lost_names > 0 {
        notes.push(format!("{} blocks were not named: the table of names is full", grouped(lost_names)));
    }
    notes.extend(symbol_notes(health));
    notes.extend(file_notes(health));
    notes.extend(data.devices.iter().filter_map(gap_note));
    notes.extend(coverage::notes(data));
    if let Some((cause, advice)) = analysis::spanless_note(data) {
        notes.push(format!("{cause}; {advice}"));
    }
    notes
}

/// Says that a rank is only a part of its job.
fn rank_note(process: &Process) -> Option<String> {
    let (rank, ranks) = process.rank.zip(process.launcher.world_size.filter(|ranks| *ranks > 1))?;
    Some(format!("this is rank {rank} of {}: each of the others has its own recording", grouped(ranks.into())))
}

/// Why the lines that held most have no names, if that is so.
pub(super) fn missing_names(device: &DeviceView<'_>) -> Vec<String> {
    let largest = device.by(Key::Line).rows.first();
    let is_nameless = largest.is_some_and(|row| row.label == analysis::NO_NAMES);
    if is_nameless || device.data().health.no_line_numbers { symbol_notes(&device.data().health) } else { Vec::new() }
}

fn symbol_notes(health: &Health) -> Vec<String> {
    let mut notes = Vec::new();
    if health.no_line_numbers {
        notes.push(
            "functions have no line numbers: they were built without debug information; in Rust, `debug = \"line-tables-only\"` \
             in [profile.release] adds it, in C and C++ `-g`"
                .to_owned(),
        );
    }
    if health.unknown_addresses > 0 {
        let addresses = grouped(health.unknown_addresses);
        notes.push(format!(
            "{addresses} code addresses have no name: their program or library was probably stripped; a program in Rust keeps them with \
             `strip = \"none\"` and `debug = \"line-tables-only\"` in [profile.release]"
        ));
    }
    notes.extend(health.unreadable_objects.iter().map(|module| format!("no names for the code of {module}")));
    notes
}

fn file_notes(health: &Health) -> Vec<String> {
    let mut notes = Vec::new();
    if health.cut_off {
        notes.push(
            "the capture ends without its end mark: the program was killed, or is still writing it; \
             this is its state at the last flush"
                .to_owned(),
        );
    }
    if health.unread_bytes > 0 {
        let bytes = grouped(health.unread_bytes);
        notes.push(format!("{bytes} bytes at the end of the capture are incomplete or damaged and were not read"));
    }
    notes
}

fn gap_note(device: &DeviceSnapshot) -> Option<String> {
    let (first, last) = (device.gaps.first()?, device.gaps.last()?);
    let missing: u64 = device.gaps.iter().map(|gap| gap.records).sum();
    let all = missing + device.records.len() as u64;
    let (records, share) = (grouped(missing), 100.0 * missing as f64 / all as f64);
    let (gaps, times) = (device.gaps.len(), if device.gaps.len() == 1 { "gap" } else { "gaps" });
    let (from, to) = (seconds(first.from_ns), seconds(last.to_ns));
    let device = device.device;
    Some(format!(
        "{records} records of {device} ({share:.1} %) are missing in {gaps} {times} between {from:.3} s and {to:.3} s: the \
         program made them faster than they could be written; \
         the peak, its blocks and the counters are exact; curves are too low within a gap"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::testing::two_lines_and_a_temporary;

    #[test]
    fn a_rank_says_that_others_are_not_in_its_recording() {
        let noted = |rank, world_size| {
            let mut data = two_lines_and_a_temporary();
            data.process.rank = rank;
            data.process.launcher.world_size = world_size;
            notes(&Recording::new(&data)).into_iter().find(|note| note.contains("rank"))
        };
        let note = "this is rank 1 of 2,000: each of the others has its own recording";
        assert_eq!(noted(Some(1), Some(2000)).as_deref(), Some(note));
        for (rank, world_size) in [(None, None), (Some(0), Some(1)), (Some(3), None), (None, Some(2))] {
            assert_eq!(noted(rank, world_size), None);
        }
    }
}
