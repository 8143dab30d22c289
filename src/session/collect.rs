//! From the recorder's ledgers to a snapshot: renumbers the stacks, resolves their addresses.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::missed::{self, spans};
use super::process::this_process;
use crate::attribute::learn_backward_pass;
use crate::capture::Driver;
use crate::record::measure::MeasuredCopy;
use crate::record::unwind::ObjectMap;
use crate::record::{CONTEXTS, DeviceCopy, STACKS};
use crate::snapshot::{Device, DeviceSnapshot, Health, Process, Sampling, Settings, SnapshotData, StackId, segments};
use crate::symbol;

/// All that changes while the program goes on, as it was at one moment: the rest can be done later.
#[derive(Debug)]
pub(super) struct Copied {
    pub(super) settings: Settings,
    pub(super) process: Process,
    pub(super) health: Health,
    pub(super) copies: Vec<(Device, DeviceCopy)>,
    pub(super) drivers: Vec<Driver>,
}

impl Copied {
    pub(super) fn finish(self) -> SnapshotData {
        let mut data = assemble(&self.settings, self.copies, self.process, self.health);
        for (device, Driver { pool, memory }) in data.devices.iter_mut().zip(self.drivers) {
            (device.pool, device.memory) = (pool, memory);
        }
        data
    }
}

/// The finished data of a measurement, whose ledgers stand for themselves.
pub(crate) fn measured_snapshot(devices: &[MeasuredCopy]) -> SnapshotData {
    let duration_ns = devices.iter().map(|on| on.ledger.duration_ns).max().unwrap_or(0);
    let settings = Settings { min_size: 0, ..Settings::default() };
    let copy = |on: &MeasuredCopy| (on.device, DeviceCopy { ledger: on.ledger.clone(), below_threshold: 0 });
    let copies = devices.iter().map(copy).collect();
    assemble(&settings, copies, Process { duration_ns, ..this_process() }, missed::since(&missed::so_far()))
}

fn assemble(
    settings: &Settings,
    copies: Vec<(Device, DeviceCopy)>,
    process: Process,
    mut health: Health,
) -> SnapshotData {
    let mut renumber = Renumber { known: ObjectMap::now(), ..Renumber::default() };
    let mut devices = Vec::new();
    for (device, copy) in copies {
        health.lost_blocks += copy.ledger.lost_blocks;
        health.missed_frees += copy.ledger.missed_frees;
        health.lost_scopes += copy.ledger.lost_scopes;
        devices.push(renumber.device(device, settings.sampling(device), copy));
    }
    health.spans = spans();
    let Renumber { stacks, addresses, known, .. } = renumber;
    let (modules, loaded) = known.all(symbol::loaded_modules);
    let symbols = symbol::symbolise(&addresses, modules, loaded);
    let (stacks, modules) = memtrace_core::symbol::with_symbols(&stacks, symbols, settings, &mut health);
    let mut settings = settings.clone();
    learn_backward_pass(&mut settings.rules, &stacks);
    SnapshotData { process, settings, devices, stacks, contexts: CONTEXTS.nodes(), objects: modules, health }
}

/// Gives the stacks that occur in a snapshot numbers of its own, without gaps.
#[derive(Default)]
struct Renumber {
    /// By old number: that is a place, of which there are many more than stacks.
    new_ids: HashMap<StackId, StackId, RandomState>,
    /// The stacks by new number less one, as indices into `addresses`.
    stacks: Vec<Vec<u32>>,
    addresses: Vec<u64>,
    address_index: HashMap<u64, u32, RandomState>,
    known: ObjectMap,
}

impl Renumber {
    fn device(&mut self, device: Device, sampling: Sampling, copy: DeviceCopy) -> DeviceSnapshot {
        let DeviceCopy { ledger: mut copy, below_threshold: below } = copy;
        for record in &mut copy.records {
            record.stack = self.id(record.stack);
            record.alloc_stack = self.id(record.alloc_stack);
        }
        copy.live.iter_mut().chain(&mut copy.peak.blocks).for_each(|block| block.stack = self.id(block.stack));
        copy.ooms.iter_mut().for_each(|oom| oom.stack = self.id(oom.stack));
        copy.stats.below_threshold = below;
        copy.segment_records.iter_mut().for_each(|record| record.stack = self.id(record.stack));
        copy.calls.iter_mut().for_each(|time| time.stack = self.id(time.stack));
        let segments = segments::cover(&copy.records, &copy.live, &copy.segments, &copy.segment_records);
        DeviceSnapshot {
            device,
            sampling,
            records: copy.records,
            overwritten: copy.overwritten,
            gaps: Vec::new(),
            live: copy.live,
            not_recorded: copy.not_recorded,
            below_threshold: below,
            peak: copy.peak,
            stats: copy.stats,
            ooms: copy.ooms,
            pool: None,
            memory: None,
            segments,
            segment_records: copy.segment_records,
            calls: copy.calls,
            scopes: copy.scopes,
            marks: copy.marks,
            names: copy.names,
            lost_names: copy.lost_names,
        }
    }

    fn id(&mut self, old: StackId) -> StackId {
        if old == StackId::NONE {
            return old;
        }
        if let Some(new) = self.new_ids.get(&old) {
            return *new;
        }
        let mut addresses = Vec::new();
        let mark = STACKS.copy_to(old, &mut addresses);
        let calls = addresses.into_iter().map(|address| self.address(self.known.address(address, mark))).collect();
        self.stacks.push(calls);
        let new = StackId(self.stacks.len() as u32);
        self.new_ids.insert(old, new);
        new
    }

    fn address(&mut self, address: u64) -> u32 {
        let next = self.addresses.len() as u32;
        let index = *self.address_index.entry(address).or_insert(next);
        if index == next {
            self.addresses.push(address);
        }
        index
    }
}
