//! If the GPU's memory is the host's, a program also needs memory for its own process there. These are the rows for it.

use super::NeedRow;
use crate::analysis::host_balance::regions;
use crate::analysis::{LiveSet, Moment, at_reading};
use crate::recording::{DeviceView, Recording};
use crate::snapshot::{Block, Device, MappingKind, MemoryKind, RecordKind};

/// The process's resident memory, without the parts that other rows count.
pub(super) const PROCESS: &str = "process's own memory";
/// Host memory that the driver allocates.
pub(super) const PINNED: &str = "pinned and managed memory";

/// Rows of the process; `None` if its resident memory was not read.
///
/// With the live GPU memory, the lower ends add up to the need at one moment: at the GPU's peak or at the reading of
/// the mappings, whichever is more. The peaks of GPU and host are not added, because they may be at different times.
pub(super) fn rows(recording: &Recording<'_>, gpu: &DeviceView<'_>) -> Option<[NeedRow; 2]> {
    let most = recording.process.memory?.resident_high;
    let pinned = pinned(recording, gpu);
    let at_peak = gpu.peak.total().saturating_add(pinned.low);
    let process = match process(recording, most) {
        Some((high, at_least)) => {
            let low = at_least.saturating_sub(at_peak).min(high);
            NeedRow::new(PROCESS, low, high, "resident, without GPU and memtrace")
        }
        None => NeedRow::new(PROCESS, 0, most, "at most the resident peak"),
    };
    Some([process, pinned])
}

fn pinned(recording: &Recording<'_>, gpu: &DeviceView<'_>) -> NeedRow {
    let devices = || recording.devices().iter().filter(|device| is_hosts(device.device));
    let at_peak = devices().filter_map(|device| Some(taken(&live_at(device, gpu.peak.time_ns)?)));
    let high = devices().map(most).fold(0, u64::saturating_add);
    let low = at_peak.fold(0, u64::saturating_add).min(high);
    NeedRow::new(PINNED, low, high, "exactly what was requested")
}

fn is_hosts(device: Device) -> bool {
    matches!(device, Device::Pinned | Device::Managed)
}

fn live_at<'r>(device: &'r DeviceView<'r>, time_ns: u64) -> Option<LiveSet<'r>> {
    device.at(&Moment::Time(time_ns)).ok()
}

/// Whether a block takes new memory. Registered blocks are the program's own memory.
fn is_taken(block: &Block) -> bool {
    block.memory != MemoryKind::Registered
}

fn taken(live: &LiveSet<'_>) -> u64 {
    live.blocks.iter().filter(|block| is_taken(block)).fold(0, |sum, block| sum.saturating_add(block.size))
}

/// The most bytes that were live at once, without registered blocks.
fn most(device: &DeviceView<'_>) -> u64 {
    let records = || device.records.iter().filter(|record| record.memory != MemoryKind::Registered);
    if device.overwritten > 0 || records().count() == device.records.len() {
        return device.peak.total();
    }
    let (mut live, mut most) = (device.not_recorded, 0);
    for record in records() {
        live = match record.kind {
            RecordKind::Alloc => live.saturating_add(record.size),
            RecordKind::Free => live.saturating_sub(record.size),
        };
        most = most.max(live);
    }
    most
}

/// Two figures, from the reading with most resident memory: the most memory of its own that the process may have had at
/// any time, and all memory that it needed at the reading. The second is without pages of files, which Linux can give
/// back. `None` if it is not known which parts are the process's own.
fn process(recording: &Recording<'_>, most: u64) -> Option<(u64, u64)> {
    let heap = recording.device(Device::Cpu)?;
    let (mappings, then) = at_reading(heap)?;
    let others = recording.devices().iter().filter(|device| device.device != Device::Cpu);
    let others: Vec<LiveSet<'_>> = others.map(|device| live_at(device, mappings.time_ns)).collect::<Option<_>>()?;
    let resident_in = |kind| mappings.of(kind).fold(0, |sum: u64, mapping| sum.saturating_add(mapping.resident));
    let blocks: Vec<Block> =
        others.iter().flat_map(|live| live.blocks.iter().filter(|block| is_taken(block)).copied()).collect();
    // The simulated GPU's memory is memory of the process. A page of a block is resident once it is touched.
    let of_blocks = regions(mappings, &blocks).map(|(mapping, live)| live.min(mapping.resident));
    let elsewhere = of_blocks.fold(resident_in(MappingKind::Own).saturating_add(mappings.own), u64::saturating_add);
    let resident = mappings.resident();
    let process = resident.saturating_sub(elsewhere);
    // The heap or the process may have had its peak at another time than this reading.
    let live = then.bytes.saturating_add(mappings.below_threshold);
    let later = most.saturating_sub(resident).saturating_add(heap.peak.total().saturating_sub(live));
    let files = resident_in(MappingKind::File).saturating_add(resident_in(MappingKind::Code));
    let beside = others.iter().filter(|live| is_needed(live.device.device)).map(taken).fold(0, u64::saturating_add);
    Some((process.saturating_add(later).min(most), process.saturating_sub(files).saturating_add(beside)))
}

/// Whether the process needs this memory. Imported memory is another process's.
fn is_needed(device: Device) -> bool {
    is_hosts(device) || matches!(device, Device::Cuda(_))
}

#[cfg(test)]
mod tests {
    use super::super::{Card, Fit, FitVerdict};
    use super::*;
    use crate::snapshot::testing::Story;
    use crate::snapshot::{HostMemory, Mapping, Mappings, SnapshotData};

    const MIB: u64 = 1 << 20;

    fn mapping(kind: MappingKind, start: u64, resident: u64) -> Mapping {
        Mapping { kind, start: start * MIB, size: 1024 * MIB, resident: resident * MIB, count: 1, ..Mapping::default() }
    }

    /// A block of 300 MiB on a GPU, of which the simulator has touched 200; 100 MiB more after the reading at 100 ns.
    /// Pinned: 40 MiB, then 10 more. Of the heap, 500 MiB are registered. On the heap: 600 MiB, and 50 more after the
    /// reading.
    fn story() -> SnapshotData {
        let mut heap = Story::cpu();
        heap.at(1).alloc("batch", 600 * MIB).address(4096 * MIB).at(200).alloc("more", 50 * MIB).address(5000 * MIB);
        let mut gpu = Story::cuda(0);
        gpu.at(2).alloc("weights", 300 * MIB).address(8192 * MIB).memory(MemoryKind::Classic);
        gpu.at(300).alloc("later", 100 * MIB).address(8600 * MIB).memory(MemoryKind::Classic);
        let mut pinned = Story::cpu();
        pinned.at(3).alloc("staging", 40 * MIB).address(16_384 * MIB).memory(MemoryKind::Pinned);
        pinned.at(4).alloc("registered", 500 * MIB).address(4096 * MIB).memory(MemoryKind::Registered);
        pinned.at(400).alloc("again", 10 * MIB).address(16_500 * MIB).memory(MemoryKind::Pinned);
        let mut data = heap.lasting(1000).build();
        data.devices.push(gpu.device());
        data.devices.push(pinned.device());
        data.devices[2].device = Device::Pinned;
        let rows = vec![
            mapping(MappingKind::Region, 4096, 580),
            mapping(MappingKind::Region, 8192, 200),
            mapping(MappingKind::Region, 16_384, 30),
            mapping(MappingKind::File, 0, 70),
            mapping(MappingKind::Code, 0, 20),
            mapping(MappingKind::Stack, 0, 5),
            mapping(MappingKind::Own, 0, 60),
        ];
        data.process.mappings = Some(Mappings { time_ns: 100, below_threshold: 0, own: 15 * MIB, rows });
        // 965 MiB were resident at the reading.
        data.process.memory = Some(HostMemory { resident_high: 975 * MIB, ..HostMemory::default() });
        data
    }

    fn of(data: &SnapshotData) -> Vec<(&'static str, u64, u64)> {
        let recording = Recording::new(data);
        let gpu = recording.device(Device::Cuda(0)).unwrap();
        let rows = rows(&recording, gpu);
        rows.into_iter().flatten().map(|row| (row.what, row.low / MIB, row.high / MIB)).collect()
    }

    #[test]
    fn the_process_has_what_neither_the_gpu_nor_memtrace_nor_pinned_memory_has() {
        // Resident 965, minus 200 of the GPU, 30 pinned, 60 + 15 of memtrace: 660. The process's peak adds 10, the heap
        // 50. The reading needed at least 660 - 90 of files + 300 + 40 = 910; the GPU's peak needed 400 + 40.
        assert_eq!(of(&story()), [(PROCESS, 910 - 440, 720), (PINNED, 40, 50)]);
    }

    #[test]
    fn no_more_than_the_resident_peak_is_the_processs() {
        let mut data = story();
        data.process.memory = Some(HostMemory { resident_high: 700 * MIB, ..HostMemory::default() });
        assert_eq!(of(&data)[0], (PROCESS, 910 - 440, 700));
    }

    #[test]
    fn where_the_parts_are_not_known_the_range_goes_from_nothing_to_the_resident_peak() {
        let mut unread = story();
        unread.process.mappings = None;
        // The GPU's memory at the reading is not known either.
        let mut overwritten = story();
        overwritten.devices[1].records.remove(0);
        overwritten.devices[1].overwritten = 1;
        for data in [unread, overwritten] {
            assert_eq!(of(&data)[0], (PROCESS, 0, 975));
        }
    }

    #[test]
    fn a_host_needs_the_rows_beside_those_of_a_card() {
        let data = story();
        let recording = Recording::new(&data);
        let gpu = recording.device(Device::Cuda(0)).unwrap();
        let memory = 16 << 30;
        let on_card = Fit::of(gpu, Card::of_memory("a card", memory));
        let on_host = Fit::on_host(&recording, gpu, Card::of_host("a host", memory));
        let more = (on_host.needed().0 - on_card.needed().0, on_host.needed().1 - on_card.needed().1);
        assert_eq!((more.0 / MIB, more.1 / MIB), (510, 770));
        assert!(on_host.doubt.is_none() && matches!(on_host.verdict(), FitVerdict::Fits(..)));
        let (low, high) = on_host.needed();
        let verdict = |memory| Fit::on_host(&recording, gpu, Card::of_host("a host", memory)).verdict();
        assert!(
            matches!(verdict(high), FitVerdict::Fits(0, _)) && matches!(verdict(high - 1), FitVerdict::Undecided(..))
        );
        assert!(matches!(verdict(low - 1), FitVerdict::DoesNotFit(1, _)));
    }

    #[test]
    fn without_readings_of_the_host_and_with_several_gpus_nothing_fits_for_sure() {
        let doubt = |data: &SnapshotData| {
            let recording = Recording::new(data);
            let fit =
                Fit::on_host(&recording, recording.device(Device::Cuda(0)).unwrap(), Card::of_host("a host", 1 << 40));
            assert!(matches!(fit.verdict(), FitVerdict::Undecided(..)));
            fit.doubt.unwrap()
        };
        let mut unread = story();
        unread.process.memory = None;
        assert!(of(&unread).is_empty() && doubt(&unread).contains("was not read"));
        let mut two = story();
        let second = two.devices[1].clone();
        two.devices.push(second);
        two.devices[3].device = Device::Cuda(1);
        assert!(doubt(&two).contains("several GPUs"));
    }
}
