//! The part of the document about the recording as a whole.

use std::collections::BTreeMap;

use crate::analysis;
use crate::attribute::Attribution;
use crate::figures::figures;
use crate::snapshot::{Device, HostMemory, LoadedObject, MappingKind, StackId};

figures! {
    /// The process and how it was recorded.
    pub(super) struct Recording(data: &crate::Recording<'_>)
        let (process, settings) = (&data.process, &data.settings);
    {
        /// Name of the program. A report of ranks, a difference, and the output of `explain` have no keys about the
        /// process.
        program: String = process.program.clone(),
        /// Name of the machine.
        host: String = process.host.clone(),
        /// Process id.
        pid: u32 = process.pid,
        /// Rank of the process in a distributed job; null if it has none.
        rank: Option<u32> = process.rank,
        /// Start of the recording, in microseconds since 1970.
        started_unix_us: u64 = process.started_unix_us,
        /// Duration of the recording, in nanoseconds.
        duration_ns: u64 = process.duration_ns,
        /// The threshold in bytes. Smaller heap blocks are counted, not recorded.
        min_size: u64 = settings.min_size,
        /// Capacity of the log, in records.
        max_entries: usize = settings.max_entries,
        /// The sampling interval: the average number of allocated bytes per sample point. Absent if blocks are not
        /// sampled.
        #[serde(skip_serializing_if = "Option::is_none")]
        sample_interval: Option<u64> = settings.sample_interval.map(Into::into),
        #[serde(skip_serializing_if = "Option::is_none")]
        host_memory: Option<HostMemoryFigures> = process.memory.map(|memory| HostMemoryFigures::of(data, memory)),
        health: Health = Health::of(data),
    }

    /// Physical memory of the whole process, as the kernel counts it: heap, mapped files, code, thread stacks, memory
    /// of C libraries, and memtrace's own. Absent if it was not read.
    struct HostMemoryFigures(data: &crate::Recording<'_>, memory: HostMemory)
        let reading = data.device(Device::Cpu).and_then(analysis::at_reading);
        let rows = reading.iter().flat_map(|(mappings, then)| analysis::mapped(mappings, &then.blocks));
    {
        #[serde(flatten)]
        memory: HostMemory = memory,
        /// When `mapped` was read, in nanoseconds since the recording began: when most memory was resident. Null if the
        /// mappings, or the heap's blocks at that time, are not known.
        mapped_time_ns: Option<u64> = reading.as_ref().map(|(mappings, _)| mappings.time_ns),
        /// Memory that the program mapped, by file and line, the most physical memory first. It consists of data files,
        /// such as safetensors, and of memory without a file in which no heap block lies.
        mapped: Vec<Mapped> = rows.map(|row| Mapped::of(data, &row)).collect(),
    }

    /// Memory that one line of the program mapped, from one file or without a file.
    struct Mapped(data: &Attribution<'_>, row: &analysis::MappedRow<'_>) {
        /// Path of the file, as the kernel names it; null for memory without a file.
        path: Option<String> = (row.kind == MappingKind::File).then(|| row.path.to_owned()),
        /// Source line that mapped the memory; null if that was not recorded.
        line: Option<String> = (row.stack != StackId::NONE).then(|| analysis::line_label(data, row.stack.0)),
        /// Bytes of address space.
        bytes: u64 = row.size,
        /// The part of `bytes` in physical memory. Other processes may share it.
        resident_bytes: u64 = row.resident,
        /// Number of mappings.
        count: u64 = row.count,
    }

    /// Data that the recording lost or could not see. All counters are 0 in a complete recording.
    struct Health(data: &Attribution<'_>)
        let health = &data.health;
    {
        /// Number of block names that were dropped because the name table was full.
        lost_names: u64 = data.devices.iter().map(|device| device.lost_names).sum(),
        /// True if the program was built without line numbers.
        no_line_numbers: bool = health.no_line_numbers,
        /// Programs and libraries whose symbols could not be read, with the reasons.
        unreadable_modules: Vec<String> = health.unreadable_objects.clone(),
        /// True if memtrace's allocator was not installed. The heap was then not recorded.
        no_allocator: bool = health.no_allocator,
        /// True if the capture has no end mark: the program was killed or is still running, or the file was copied
        /// while it was written.
        cut_off: bool = health.cut_off,
        cuda: CudaHooks = CudaHooks::of(&health.cuda),
        spanless: SpanlessBlocks = SpanlessBlocks::of(data),
        #[serde(flatten)]
        counters: BTreeMap<&'static str, u64> = health.counters().collect(),
    }

    /// memtrace's hooks of CUDA driver functions.
    struct CudaHooks(hooks: &crate::snapshot::CudaHooks) {
        /// State of the hooks, such as `active` or `not_loaded`.
        hooks: &'static str = hooks.state.word(),
        /// Number of imports of driver functions that were patched in loaded programs and libraries.
        imports: u64 = hooks.imports,
        /// Number of imports that could not be patched. Calls through them are not seen.
        refused_imports: u64 = hooks.refused_imports,
        /// Number of look-ups of driver functions by name that were answered with a hook.
        looked_up: u64 = hooks.looked_up,
        /// Number of calls whose memory is not recorded, by driver function.
        unseen_calls: BTreeMap<String, u64> =
            hooks.unseen_calls.iter().map(|unseen| (unseen.function.clone(), unseen.calls)).collect(),
    }

    /// Blocks of models whose `tracing` spans did not become scopes. The figures are lower bounds.
    struct SpanlessBlocks(data: &Attribution<'_>)
        let found = analysis::spanless(data);
    {
        /// Number of blocks.
        blocks: u64 = found.blocks,
        /// Bytes of these blocks.
        bytes: u64 = found.bytes,
        /// The cause and the remedy, in words; null if there are no such blocks.
        note: Option<String> = analysis::spanless_note(data).map(|(cause, advice)| format!("{cause}; {advice}")),
    }

    /// A loaded program or library.
    pub(super) struct Module(object: &LoadedObject) {
        /// Path of the file; empty if the system reports none.
        path: String = object.path.clone().unwrap_or_default(),
        /// GNU build-id in hexadecimal; empty if the file has none.
        build_id: String = object.build_id.iter().map(|byte| format!("{byte:02x}")).collect(),
        /// Load bias: the address in memory minus the address in the file.
        base: u64 = object.base,
    }
}
