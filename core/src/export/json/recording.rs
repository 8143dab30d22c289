//! What the document says of the recording as a whole.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::analysis::{self, Spanless};
use crate::attribute::Attribution;
use crate::snapshot::{Device, HostMemory, LoadedObject, MappingKind, StackId};

/// The process and how it was recorded.
#[derive(Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Recording {
    /// The program's name.
    program: String,
    /// The machine's name.
    host: String,
    /// The process.
    pid: u32,
    /// The rank in a group of processes.
    rank: Option<u32>,
    /// Start of the recording, in microseconds since 1970.
    started_unix_us: u64,
    /// Duration of the recording.
    duration_ns: u64,
    /// Smaller heap blocks are counted, not recorded.
    min_size: u64,
    /// Capacity of the log, in records.
    max_entries: usize,
    /// The sampling interval, if the recording is a sample: one sample point every so many bytes on average.
    #[serde(skip_serializing_if = "Option::is_none")]
    sample_interval: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host_memory: Option<HostMemoryFigures>,
    health: Health,
}

impl Recording {
    pub(super) fn of(data: &crate::Recording<'_>) -> Self {
        let (process, settings) = (&data.process, &data.settings);
        Self {
            program: process.program.clone(),
            host: process.host.clone(),
            pid: process.pid,
            rank: process.rank,
            started_unix_us: process.started_unix_us,
            duration_ns: process.duration_ns,
            min_size: settings.min_size,
            max_entries: settings.max_entries,
            sample_interval: settings.sample_interval.map(Into::into),
            host_memory: process.memory.map(|memory| HostMemoryFigures::of(data, memory)),
            health: Health::of(data),
        }
    }
}

/// Physical memory of the whole process, as the kernel counts it: heap, mapped files, code, thread stacks, memory of C libraries
/// and memtrace's own. Absent if it was not read.
#[derive(Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct HostMemoryFigures {
    #[serde(flatten)]
    memory: HostMemory,
    /// When `mapped` was read: at the reading when most was resident. Null if it is not known.
    mapped_time_ns: Option<u64>,
    /// What the program mapped, by file and line, most physical memory first: files of data, such as safetensors, and memory
    /// without a file in which no block lies.
    mapped: Vec<Mapped>,
}

impl HostMemoryFigures {
    fn of(data: &crate::Recording<'_>, memory: HostMemory) -> Self {
        let reading = data.device(Device::Cpu).and_then(analysis::at_reading);
        let rows = reading.iter().flat_map(|(mappings, then)| analysis::mapped(mappings, &then.blocks));
        Self {
            memory,
            mapped: rows.map(|row| Mapped::of(data, &row)).collect(),
            mapped_time_ns: reading.as_ref().map(|(mappings, _)| mappings.time_ns),
        }
    }
}

/// What a line of the program mapped.
#[derive(Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Mapped {
    /// The file, as the kernel names it; null for memory without one.
    path: Option<String>,
    /// The line that mapped it; null if that was not seen.
    line: Option<String>,
    /// Bytes of the address space.
    bytes: u64,
    /// The part of it in physical memory; other processes may share it.
    resident_bytes: u64,
    /// How many mappings.
    count: u64,
}

impl Mapped {
    fn of(data: &Attribution<'_>, row: &analysis::MappedRow<'_>) -> Self {
        Self {
            path: (row.kind == MappingKind::File).then(|| row.path.to_owned()),
            line: (row.stack != StackId::NONE).then(|| analysis::line_label(data, row.stack.0)),
            bytes: row.size,
            resident_bytes: row.resident,
            count: row.count,
        }
    }
}

/// What the recording missed; all counters are 0 if it missed nothing.
#[derive(Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Health {
    /// Names dropped because the name table was full.
    lost_names: u64,
    /// The program was built without line numbers.
    no_line_numbers: bool,
    /// Files whose symbols could not be read.
    unreadable_modules: Vec<String>,
    /// memtrace's allocator was not installed, so the heap was not recorded.
    no_allocator: bool,
    /// The capture has no end mark: the program was killed, or is still running.
    cut_off: bool,
    cuda: CudaHooks,
    spanless: SpanlessBlocks,
    #[serde(flatten)]
    counters: BTreeMap<&'static str, u64>,
}

impl Health {
    fn of(data: &Attribution<'_>) -> Self {
        let health = &data.health;
        let Spanless { blocks, bytes } = analysis::spanless(data);
        let note = analysis::spanless_note(data).map(|(cause, advice)| format!("{cause}; {advice}"));
        Self {
            lost_names: data.devices.iter().map(|device| device.lost_names).sum(),
            no_line_numbers: health.no_line_numbers,
            unreadable_modules: health.unreadable_objects.clone(),
            no_allocator: health.no_allocator,
            cut_off: health.cut_off,
            cuda: CudaHooks::of(&health.cuda),
            spanless: SpanlessBlocks { blocks, bytes, note },
            counters: health.counters().collect(),
        }
    }
}

/// Hooks of the CUDA driver.
#[derive(Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct CudaHooks {
    /// Whether they were active, such as `active` or `not_loaded`.
    hooks: &'static str,
    /// Patched imports of loaded programs and libraries.
    imports: u64,
    /// Imports that could not be patched: calls through them are not seen.
    refused_imports: u64,
    /// Look-ups of driver functions by name that were answered with a hook.
    looked_up: u64,
    /// Calls whose memory is not recorded, by function.
    unseen_calls: BTreeMap<String, u64>,
}

impl CudaHooks {
    fn of(hooks: &crate::snapshot::CudaHooks) -> Self {
        Self {
            hooks: hooks.state.word(),
            imports: hooks.imports,
            refused_imports: hooks.refused_imports,
            looked_up: hooks.looked_up,
            unseen_calls: hooks.unseen_calls.iter().map(|unseen| (unseen.function.clone(), unseen.calls)).collect(),
        }
    }
}

/// Blocks of models whose `tracing` spans memtrace does not see.
#[derive(Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct SpanlessBlocks {
    /// Number of them.
    blocks: u64,
    /// Their bytes.
    bytes: u64,
    /// Why, and what to do.
    note: Option<String>,
}

/// A loaded program or library.
#[derive(Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Module {
    /// Its file; empty if the system reports none.
    path: String,
    /// GNU build-id, hexadecimal; empty if it has none.
    build_id: String,
    /// Address in memory minus address in the file.
    base: u64,
}

impl Module {
    pub(super) fn of(object: &LoadedObject) -> Self {
        let build_id = object.build_id.iter().map(|byte| format!("{byte:02x}")).collect();
        Self { path: object.path.clone().unwrap_or_default(), build_id, base: object.base }
    }
}
