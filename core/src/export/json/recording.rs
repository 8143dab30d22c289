//! What the document says of the recording as a whole.

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
        /// The program's name.
        program: String = process.program.clone(),
        /// The machine's name.
        host: String = process.host.clone(),
        /// The process.
        pid: u32 = process.pid,
        /// The rank in a group of processes.
        rank: Option<u32> = process.rank,
        /// Start of the recording, in microseconds since 1970.
        started_unix_us: u64 = process.started_unix_us,
        /// Duration of the recording.
        duration_ns: u64 = process.duration_ns,
        /// Smaller heap blocks are counted, not recorded.
        min_size: u64 = settings.min_size,
        /// Capacity of the log, in records.
        max_entries: usize = settings.max_entries,
        /// The sampling interval, if the recording is a sample: one sample point every so many bytes on average.
        #[serde(skip_serializing_if = "Option::is_none")]
        sample_interval: Option<u64> = settings.sample_interval.map(Into::into),
        #[serde(skip_serializing_if = "Option::is_none")]
        host_memory: Option<HostMemoryFigures> = process.memory.map(|memory| HostMemoryFigures::of(data, memory)),
        health: Health = Health::of(data),
    }

    /// Physical memory of the whole process, as the kernel counts it: heap, mapped files, code, thread stacks, memory of C libraries
    /// and memtrace's own. Absent if it was not read.
    struct HostMemoryFigures(data: &crate::Recording<'_>, memory: HostMemory)
        let reading = data.device(Device::Cpu).and_then(analysis::at_reading);
        let rows = reading.iter().flat_map(|(mappings, then)| analysis::mapped(mappings, &then.blocks));
    {
        #[serde(flatten)]
        memory: HostMemory = memory,
        /// When `mapped` was read: at the reading when most was resident. Null if it is not known.
        mapped_time_ns: Option<u64> = reading.as_ref().map(|(mappings, _)| mappings.time_ns),
        /// What the program mapped, by file and line, most physical memory first: files of data, such as safetensors, and memory
        /// without a file in which no block lies.
        mapped: Vec<Mapped> = rows.map(|row| Mapped::of(data, &row)).collect(),
    }

    /// What a line of the program mapped.
    struct Mapped(data: &Attribution<'_>, row: &analysis::MappedRow<'_>) {
        /// The file, as the kernel names it; null for memory without one.
        path: Option<String> = (row.kind == MappingKind::File).then(|| row.path.to_owned()),
        /// The line that mapped it; null if that was not seen.
        line: Option<String> = (row.stack != StackId::NONE).then(|| analysis::line_label(data, row.stack.0)),
        /// Bytes of the address space.
        bytes: u64 = row.size,
        /// The part of it in physical memory; other processes may share it.
        resident_bytes: u64 = row.resident,
        /// How many mappings.
        count: u64 = row.count,
    }

    /// What the recording missed; all counters are 0 if it missed nothing.
    struct Health(data: &Attribution<'_>)
        let health = &data.health;
    {
        /// Names dropped because the name table was full.
        lost_names: u64 = data.devices.iter().map(|device| device.lost_names).sum(),
        /// The program was built without line numbers.
        no_line_numbers: bool = health.no_line_numbers,
        /// Files whose symbols could not be read.
        unreadable_modules: Vec<String> = health.unreadable_objects.clone(),
        /// memtrace's allocator was not installed, so the heap was not recorded.
        no_allocator: bool = health.no_allocator,
        /// The capture has no end mark: the program was killed, or is still running.
        cut_off: bool = health.cut_off,
        cuda: CudaHooks = CudaHooks::of(&health.cuda),
        spanless: SpanlessBlocks = SpanlessBlocks::of(data),
        #[serde(flatten)]
        counters: BTreeMap<&'static str, u64> = health.counters().collect(),
    }

    /// Hooks of the CUDA driver.
    struct CudaHooks(hooks: &crate::snapshot::CudaHooks) {
        /// Whether they were active, such as `active` or `not_loaded`.
        hooks: &'static str = hooks.state.word(),
        /// Patched imports of loaded programs and libraries.
        imports: u64 = hooks.imports,
        /// Imports that could not be patched: calls through them are not seen.
        refused_imports: u64 = hooks.refused_imports,
        /// Look-ups of driver functions by name that were answered with a hook.
        looked_up: u64 = hooks.looked_up,
        /// Calls whose memory is not recorded, by function.
        unseen_calls: BTreeMap<String, u64> =
            hooks.unseen_calls.iter().map(|unseen| (unseen.function.clone(), unseen.calls)).collect(),
    }

    /// Blocks of models whose `tracing` spans memtrace does not see.
    struct SpanlessBlocks(data: &Attribution<'_>)
        let found = analysis::spanless(data);
    {
        /// Number of them.
        blocks: u64 = found.blocks,
        /// Their bytes.
        bytes: u64 = found.bytes,
        /// Why, and what to do.
        note: Option<String> = analysis::spanless_note(data).map(|(cause, advice)| format!("{cause}; {advice}")),
    }

    /// A loaded program or library.
    pub(super) struct Module(object: &LoadedObject) {
        /// Its file; empty if the system reports none.
        path: String = object.path.clone().unwrap_or_default(),
        /// GNU build-id, hexadecimal; empty if it has none.
        build_id: String = object.build_id.iter().map(|byte| format!("{byte:02x}")).collect(),
        /// Address in memory minus address in the file.
        base: u64 = object.base,
    }
}
