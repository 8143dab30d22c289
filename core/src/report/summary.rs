//! The totals section of a device.

use super::{coverage, sampled};
use crate::attribute::Attribution;
use crate::recording::DeviceView;
use crate::snapshot::{Device, DeviceSnapshot, HostMemory};
use crate::units::{Bytes, grouped, round, seconds};

/// Label and figure of each total. An empty label continues the previous line.
pub(super) fn totals(device: &DeviceView<'_>) -> Vec<(&'static str, String)> {
    let data = device.data();
    let (peak, stats) = (&device.peak, &device.stats);
    let about = sampled::about(device.sample_interval());
    let total = peak.total();
    let mut lines = vec![("Peak", format!("{} ({} bytes){}", Bytes(total), grouped(total), after(data, peak.time_ns)))];
    lines.extend(sampled::lines(device));
    if data.settings.min_size > 1 && device.device == Device::Cpu {
        let threshold = round(data.settings.min_size);
        lines.push(("", format!("{} in blocks of {threshold} or more", Bytes(peak.bytes))));
        lines.push(("", format!("{} in smaller ones at that moment", Bytes(peak.below_threshold))));
    }
    lines.push((
        "Total allocated",
        format!(
            "{about}{} in {about}{} allocations; {about}{} of them freed",
            Bytes(stats.allocated_bytes.allocated),
            grouped(stats.allocations.allocated),
            grouped(stats.allocations.freed)
        ),
    ));
    lines.extend(coverage::pool_lines(device));
    lines.extend(out_of_memory(device));
    lines.extend(other_devices(device.data(), device));
    lines.extend(process_memory(data));
    lines.push(("Recorded", format!("{:.3} s, {}", seconds(data.process.duration_ns), log(device))));
    lines
}

fn log(device: &DeviceView<'_>) -> String {
    let records = format!("{} records", grouped(device.records.len() as u64));
    match device.overwritten {
        0 => records,
        older if device.data().is_python() => format!("{records}, {} blocks older than the log", grouped(older)),
        older => format!("{records}, {} older ones not kept", grouped(older)),
    }
}

fn out_of_memory(device: &DeviceSnapshot) -> Vec<(&'static str, String)> {
    let (stats, Some(oom)) = (&device.stats, device.ooms.last()) else { return Vec::new() };
    let (times, size, after) = (grouped(stats.num_ooms), Bytes(oom.size), seconds(oom.time_ns));
    let mut lines = vec![("Out of memory", format!("{times} times, the last for {size} after {after:.3} s"))];
    if stats.num_alloc_retries > 0 {
        lines.push(("", format!("{} refused requests were repeated at once", grouped(stats.num_alloc_retries))));
    }
    lines
}

fn other_devices(data: &Attribution<'_>, shown: &DeviceSnapshot) -> Vec<(&'static str, String)> {
    let others = data.devices.iter().filter(|other| other.device != shown.device && other.peak.total() > 0);
    let line = |(number, device): (usize, &DeviceSnapshot)| {
        let (head, peak) = (if number == 0 { "Other memory" } else { "" }, device.peak.total());
        (head, format!("{}: peak {} ({} bytes)", device.device, Bytes(peak), grouped(peak)))
    };
    others.enumerate().map(line).collect()
}

/// Resident memory of the whole process, in addition to what was recorded.
pub(super) fn process_memory(data: &Attribution<'_>) -> Vec<(&'static str, String)> {
    data.process.memory.iter().flat_map(host_memory).collect()
}

pub(super) fn relative<'a>(path: &'a str, folder: &str) -> &'a str {
    let below = path.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/'));
    below.filter(|_| !folder.is_empty()).unwrap_or(path)
}

fn host_memory(memory: &HostMemory) -> [(&'static str, String); 2] {
    let HostMemory { time_ns, resident, resident_high, files, files_high, .. } = *memory;
    let (resident, most, after) = (Bytes(resident), Bytes(resident_high), seconds(time_ns));
    let (files, most_files) = (Bytes(files), Bytes(files_high));
    [
        ("Resident memory", format!("{resident} of the whole process after {after:.3} s, highest {most}")),
        ("", format!("{files} of it mapped files and code, highest {most_files}")),
    ]
}

/// ` after 0.952 s`; nothing in a recording without times.
pub(super) fn after(data: &Attribution<'_>, time_ns: u64) -> String {
    if data.process.duration_ns == 0 { String::new() } else { format!(" after {:.3} s", seconds(time_ns)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Moment;
    use crate::report::{Report, ReportOptions};
    use crate::snapshot::SnapshotData;
    use crate::snapshot::testing::two_lines_and_a_temporary;

    #[test]
    fn resident_memory_stands_beside_the_heap_if_it_was_read() {
        let mut data = two_lines_and_a_temporary();
        let text = |data: &SnapshotData| format!("{:?}", totals(&DeviceView::of(data, &data.devices[0])));
        assert!(!text(&data).contains("Resident"));
        let memory = HostMemory {
            time_ns: 2_000_000,
            resident: 3 << 20,
            resident_high: 5 << 20,
            files: 1 << 20,
            ..Default::default()
        };
        data.process.memory = Some(HostMemory { files_high: 2 << 20, ..memory });
        let text = text(&data);
        assert!(text.contains("3.000 MiB of the whole process after 0.002 s, highest 5.000 MiB"), "{text}");
        assert!(text.contains("1.000 MiB of it mapped files and code, highest 2.000 MiB"), "{text}");
        let options = ReportOptions { moment: Moment::End, ..ReportOptions::default() };
        let at_end = Report::of(&data, &options).unwrap();
        assert_eq!(at_end.totals.first().map(|(name, _)| *name), Some("Resident memory"));
    }
}
