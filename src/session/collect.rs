//! Assembly of a snapshot from copied ledgers: renumbering the stacks and resolving their addresses.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use memtrace_core::attribute::learn_backward_pass;
use memtrace_core::capture::Driver;
use memtrace_core::snapshot::{
    BlockUses, Device, DeviceSnapshot, GpuWork, Health, Process, Sampling, Settings, SnapshotData, segments,
};

use super::missed::{self, spans};
use super::numbers::DenseStacks;
use super::process::{own_folder, this_process};
use crate::record::measure::MeasuredCopy;
use crate::record::unwind::ObjectMap;
use crate::record::{CONTEXTS, DeviceCopy, recorder};
use crate::symbol;

/// Everything that changes while the program runs, copied at one moment. `finish` can make a snapshot of it
/// later.
#[derive(Debug)]
pub(super) struct Copied {
    pub(super) settings: Settings,
    pub(super) process: Process,
    pub(super) health: Health,
    pub(super) copies: Vec<(Device, DeviceCopy)>,
    pub(super) drivers: Vec<Driver>,
    pub(super) gpu_work: Option<GpuWork>,
}

impl Copied {
    pub(super) fn finish(self) -> SnapshotData {
        let mut data = assemble(&self.settings, self.copies, self.process, self.gpu_work, self.health);
        for (device, Driver { pool, memory }) in data.devices.iter_mut().zip(self.drivers) {
            (device.pool, device.memory) = (pool, memory);
            device.total_at_first = recorder::total_at_first(device.device);
        }
        data
    }
}

/// The finished data of a measurement.
pub(crate) fn measured_snapshot(devices: &[MeasuredCopy]) -> SnapshotData {
    let duration_ns = devices.iter().map(|on| on.ledger.duration_ns).max().unwrap_or(0);
    let mut settings = Settings { min_size: 0, ..Settings::default() };
    settings.rules.set_own_folder(own_folder());
    let copy = |on: &MeasuredCopy| (on.device, DeviceCopy { ledger: on.ledger.clone(), ..DeviceCopy::default() });
    let copies = devices.iter().map(copy).collect();
    assemble(&settings, copies, Process { duration_ns, ..this_process() }, None, missed::since(&missed::so_far()))
}

fn assemble(
    settings: &Settings,
    copies: Vec<(Device, DeviceCopy)>,
    mut process: Process,
    mut gpu_work: Option<GpuWork>,
    mut health: Health,
) -> SnapshotData {
    let known = ObjectMap::now();
    let mut numbers = DenseStacks::default();
    process.mappings.iter_mut().for_each(|mappings| numbers.renumber_mappings(mappings));
    gpu_work.iter_mut().for_each(|work| numbers.renumber_work(work));
    let mut devices = Vec::new();
    for (device, copy) in copies {
        health.lost_blocks += copy.ledger.lost_blocks;
        health.missed_frees += copy.ledger.missed_frees;
        health.lost_scopes += copy.ledger.lost_scopes;
        devices.push(device_snapshot(device, settings.sampling(device), copy, &mut numbers));
    }
    health.spans = spans();
    let stacks = numbers.take_new(&known);
    let addresses = numbers.addresses.take_new();
    let (objects, loaded) = known.all(symbol::loaded_objects);
    let symbols = symbol::symbolize(&addresses, objects, loaded);
    let mut data = SnapshotData::default();
    (data.stacks, data.objects) = memtrace_core::symbol::with_symbols(&stacks, symbols, settings, &mut health);
    (data.process, data.settings, data.devices, data.health) = (process, settings.clone(), devices, health);
    learn_backward_pass(&mut data.settings.rules, &data.stacks);
    data.contexts = CONTEXTS.nodes();
    data.gpu_work = gpu_work;
    data
}

/// Sorts the entries by their block's number. If a block has several entries, only the last one stays.
fn by_block(uses: Vec<BlockUses>) -> Vec<BlockUses> {
    let sorted: BTreeMap<NonZeroU64, BlockUses> = uses.into_iter().map(|uses| (uses.seq, uses)).collect();
    sorted.into_values().collect()
}

fn device_snapshot(
    device: Device,
    sampling: Sampling,
    mut copy: DeviceCopy,
    numbers: &mut DenseStacks,
) -> DeviceSnapshot {
    numbers.renumber_device(&mut copy);
    let DeviceCopy { ledger: mut copy, below_threshold, uses } = copy;
    copy.stats.below_threshold = below_threshold;
    let mut snapshot = DeviceSnapshot::default();
    snapshot.device = device;
    snapshot.sampling = sampling;
    snapshot.segments = segments::cover(&copy.records, &copy.live, &copy.segments, &copy.segment_records);
    snapshot.records = copy.records;
    snapshot.overwritten = copy.overwritten;
    snapshot.live = copy.live;
    snapshot.not_recorded = copy.not_recorded;
    snapshot.below_threshold = below_threshold;
    snapshot.peak = copy.peak;
    snapshot.stats = copy.stats;
    snapshot.ooms = copy.ooms;
    snapshot.segment_records = copy.segment_records;
    snapshot.calls = copy.calls;
    snapshot.scopes = copy.scopes;
    snapshot.marks = copy.marks;
    snapshot.names = copy.names;
    snapshot.lost_names = copy.lost_names;
    snapshot.uses = by_block(uses.blocks);
    snapshot.idle = uses.idle;
    snapshot.idle.sort_by_key(|idle| idle.seq);
    snapshot.graph_nodes = copy.graph_nodes;
    snapshot
}
