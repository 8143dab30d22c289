//! Reads a PyTorch memory snapshot, as `torch.cuda.memory._dump_snapshot` writes it, as a recording.
//!
//! It supports the snapshots of torch 2.0 (blocks with a `history`, no times) up to 2.15 (metadata, annotations, host
//! memory). Data that a snapshot lacks stays unknown, and
//! [`Health::import_notes`](crate::snapshot::Health::import_notes) says so.

mod contexts;
mod device;
mod entry;
mod fields;
mod notes;
mod reconcile;
mod rows;
mod segments;
mod shapes;
mod stacks;
mod stats;
mod trace;

#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod genuine_tests;
#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod random_tests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use self::contexts::Contexts;
use self::device::Common;
use self::fields::{DictFields, LARGEST};
use self::rows::{Shape, SnapshotValues};
use self::segments::DeviceSegments;
use self::shapes::SnapshotTables;
use self::trace::DeviceTrace;
use super::Reader;
use super::pickle::{self, PickleValue, Refusal};
use crate::capture::check_texts;
use crate::pytorch_words as words;
use crate::snapshot::{
    CudaHooks, CudaState, Device, DeviceSnapshot, Enabled, Health, Process, RecordKind, Settings, SnapshotData,
    StackContext, StackId, StackKind, Stacks,
};

/// The most bytes of a snapshot that count for the memory limits, per byte of its compressed file. Real snapshots have
/// seven.
const MOST_PACKED: usize = 32;

pub(super) const READER: Reader = Reader {
    name: "a PyTorch memory snapshot",
    written_by: "PyTorch memory snapshots are written by `torch.cuda.memory._dump_snapshot`",
    files: "a PyTorch snapshot (.pickle, .pickle.gz)",
    begins: pickle::begins_like_pickle,
    parse: |bytes, stored, _| {
        let length = bytes.len().min(stored.saturating_mul(MOST_PACKED));
        read(bytes, length).map_err(|refusal| refusal.to_string())
    },
};

/// More devices than any machine has.
const MOST_DEVICES: u64 = 1024;

/// Reads a pickle, with the memory limit of a pickle of `length` bytes.
fn read(bytes: &[u8], length: usize) -> Result<SnapshotData, Refusal> {
    let holds = |word: &str| bytes.windows(word.len()).any(|window| window == word.as_bytes());
    // A recording may lack requested frees or completed frees. A block that waits for its completed free shows that the
    // recording has completed frees.
    let completes = holds("free_completed") || holds("active_pending_free") || holds("active_awaiting_free");
    let frees_are_requests = !completes && holds("free_requested");
    let mut tables = SnapshotTables::new(frees_are_requests);
    let (values, top) = pickle::read(bytes, length, words::WORDS, &mut tables)?;
    let data = SnapshotRoot { top: DictFields(values.dict(top)), root: top, values: &values }.read(tables)?;
    check_texts(&data, length).map_err(Refusal::new)?;
    check_sizes(&data)?;
    Ok(data)
}

/// Refuses data that could be written as a capture but not read again, because the reader of captures refuses sums that
/// are too large.
fn check_sizes(data: &SnapshotData) -> Result<(), Refusal> {
    let mut total = 0_u64;
    for device in &data.devices {
        let records = device.records.iter().map(|record| (record.address, record.size));
        let blocks = device.live.iter().chain(&device.peak.blocks).map(|block| (block.address, block.size));
        let segments = device.segment_records.iter().map(|segment| (segment.address, segment.size));
        for (address, size) in records.chain(blocks).chain(segments) {
            total = total.saturating_add(size);
            if total >= LARGEST / 4 || address.saturating_add(size) >= LARGEST - 1 {
                return Err(Refusal::new("sizes beyond any memory"));
            }
        }
    }
    Ok(())
}

/// The root of a snapshot: a dict, or the list of segments that `torch.cuda.memory_snapshot` returns.
struct SnapshotRoot<'v, 'a> {
    top: DictFields<'v>,
    root: PickleValue,
    values: &'v SnapshotValues<'a>,
}

impl SnapshotRoot<'_, '_> {
    fn read(&self, mut tables: SnapshotTables) -> Result<SnapshotData, Refusal> {
        let segments = self.segments()?;
        let mut traces = self.traces(words::DEVICE_TRACES, &mut tables)?;
        let placed = segments::by_device(Some(segments), &tables, self.values)?;
        let host_placed = segments::by_device(self.top.find(words::HOST_SEGMENTS), &tables, self.values)?;
        let host_traces = self.traces(words::HOST_TRACES, &mut tables)?;
        let settings =
            DictFields(self.top.find(words::ALLOCATOR_SETTINGS).map_or(&[], |value| self.values.dict(value)));
        let recorder = settings.find(words::RECORDED_BY).and_then(|by| self.values.text(by)).unwrap_or_default();
        let annotations = self.top.find(words::EXTERNAL_ANNOTATIONS);
        let mut contexts = Contexts::of(annotations, recorder.starts_with("memtrace"), self.values)?;
        let all = || traces.values().chain(host_traces.values());
        let started_us = all()
            .filter(|trace| trace.has_times)
            .filter_map(DeviceTrace::first_us)
            .chain(contexts.first_us())
            .min()
            .unwrap_or(0);
        let ended = |trace: &DeviceTrace| if trace.has_times { trace.last_us } else { started_us + trace.last_us };
        let ended_us = all().map(ended).chain(contexts.last_us()).max().unwrap_or(started_us);
        let mut shared = Common {
            contexts: &mut contexts,
            values: self.values,
            started_us,
            frees_are_requests: tables.frees_are_requests,
        };
        let (mut devices, mut notes) = (Vec::new(), self.notes(settings));
        let mut add = |device, number, trace: DeviceTrace, placed: Option<&DeviceSegments>| {
            let (snapshot, missing) = device::build(device, number, trace, placed, &mut shared);
            notes.extend(notes::about(&snapshot, missing, placed));
            devices.push(snapshot);
        };
        let numbers: BTreeSet<u64> = traces.keys().chain(placed.keys()).copied().collect();
        for number in numbers {
            let ordinal = u32::try_from(number).ok().filter(|_| number < MOST_DEVICES);
            let ordinal = ordinal.ok_or_else(|| Refusal::new("a device with an impossible number"))?;
            let trace = traces.remove(&number).unwrap_or_default();
            // If the file lists segments only of other devices, this device has none.
            let none = DeviceSegments::default();
            let placed = placed.get(&number).or((!placed.is_empty()).then_some(&none));
            add(Device::Cuda(ordinal), number, trace, placed);
        }
        let host = host_traces.into_values().next().unwrap_or_default();
        let host_segments = host_placed.into_values().next();
        if host_segments.is_some() || !host.records.is_empty() {
            add(Device::Pinned, u64::MAX, host, host_segments.as_ref());
        }
        let stacks = stacks::number_stacks(&mut devices, &tables, self.values);
        let program = settings.find(words::PROGRAM).and_then(|program| self.values.text(program));
        let cuda = CudaHooks { state: CudaState::Active, ..CudaHooks::default() };
        Ok(SnapshotData {
            process: Process {
                program: program.map_or_else(|| main_script(&stacks), str::to_owned),
                started_unix_us: started_us,
                duration_ns: ended_us.saturating_sub(started_us).saturating_mul(1000),
                ..Process::default()
            },
            settings: settings_of(&devices),
            devices,
            stacks,
            contexts: contexts.nodes,
            health: Health { cuda, import_notes: notes, ..Health::default() },
            ..SnapshotData::default()
        })
    }

    /// The list of segments. Every snapshot has one.
    fn segments(&self) -> Result<PickleValue, Refusal> {
        let is_list = !self.values.list(self.root).is_empty();
        let found = if is_list { Some(self.root) } else { self.top.find(words::SEGMENTS) };
        found.ok_or_else(|| Refusal::new("it holds no `segments`: it is no memory snapshot"))
    }

    /// The traces that are not empty, by device number. Host memory has one trace, or a list with one trace.
    fn traces(&self, key: u32, tables: &mut SnapshotTables) -> Result<BTreeMap<u64, DeviceTrace>, Refusal> {
        let Some(lists) = self.top.find(key) else { return Ok(BTreeMap::new()) };
        let alone = [lists];
        let lists = if self.values.kept(lists).is_some() { &alone } else { self.values.list(lists) };
        let trace = |(number, list): (u64, &PickleValue)| match self.values.kept(*list) {
            Some(Shape::Trace(trace)) => Some(tables.take_trace(trace).map(|trace| (number, trace))),
            _ => None,
        };
        (0..).zip(lists).filter_map(trace).collect()
    }

    fn notes(&self, settings: DictFields<'_>) -> Vec<String> {
        let configured = settings.find(words::ALLOC_CONF).and_then(|value| self.values.text(value));
        let configured = configured.filter(|configured| !configured.is_empty());
        configured
            .map(|configured| format!("PyTorch's allocator ran with PYTORCH_CUDA_ALLOC_CONF={configured}"))
            .into_iter()
            .collect()
    }
}

fn settings_of(devices: &[DeviceSnapshot]) -> Settings {
    let records = || devices.iter().flat_map(|device| &device.records);
    let has_stack = |kind| records().any(|record| record.kind == kind && record.stack != StackId::NONE);
    let context = if has_stack(RecordKind::Free) {
        StackContext::All
    } else if has_stack(RecordKind::Alloc) {
        StackContext::Alloc
    } else {
        StackContext::State
    };
    Settings {
        enabled: if records().next().is_some() { Enabled::All } else { Enabled::State },
        context,
        stacks: StackKind::All,
        min_size: 0,
        ..Settings::default()
    }
}

/// The name of the script that Python ran, if a stack reaches it.
fn main_script(stacks: &Stacks) -> String {
    let script = |stack: u32| {
        let mut frames = stacks.frames(StackId(stack)).rev();
        frames.find(|frame| frame.function_or_empty() == "<module>" && frame.file_or_empty().ends_with(".py"))
    };
    let found = (0..stacks.len() as u32).find_map(script);
    let name = found.and_then(|frame| frame.file_or_empty().rsplit(['/', '\\']).next());
    name.unwrap_or("unknown").to_owned()
}
