//! From the recorder's ledgers to a snapshot: renumbers the stacks, resolves their addresses.

use std::collections::HashMap;

use super::Session;
use crate::record::{CONTEXTS, LedgerCopy, STACKS, recorder};
use crate::snapshot::{
    Device, DeviceSnapshot, FRAMES_LEFT_OUT, Health, Process, Settings, SnapshotData, StackId, StackKind, Stacks,
    segments,
};
use crate::symbol::{self, Symbols};

/// Everything that is being recorded, as finished data.
pub(super) fn collect(session: &Session) -> SnapshotData {
    let process = Process {
        started_unix_us: session.started_unix_us,
        duration_ns: session.began.elapsed().as_nanos() as u64,
        ..this_process()
    };
    if recorder::was_forked() {
        return SnapshotData { process, settings: session.settings.clone(), ..SnapshotData::default() };
    }
    assemble(&session.settings, copies(), process, session.missed_before)
}

/// What was missed in this process, in all recordings and measurements together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Missed {
    shortened_stacks: u64,
    lost_stacks: u64,
    lost_scopes: u64,
}

impl Missed {
    pub(super) fn so_far() -> Self {
        Self {
            shortened_stacks: recorder::shortened_stacks(),
            lost_stacks: STACKS.refused(),
            lost_scopes: CONTEXTS.refused(),
        }
    }

    fn since(self) -> Health {
        let now = Self::so_far();
        Health {
            shortened_stacks: now.shortened_stacks - self.shortened_stacks,
            lost_stacks: now.lost_stacks - self.lost_stacks,
            lost_scopes: now.lost_scopes - self.lost_scopes,
            ..Health::default()
        }
    }
}

/// The finished data of ledgers that stand for themselves: a measurement's.
pub(crate) fn ledger_snapshot(copies: Vec<LedgerCopy>) -> SnapshotData {
    let duration_ns = copies.first().map_or(0, |copy| copy.duration_ns);
    let settings = Settings { min_size: 0, ..Settings::default() };
    let copies = copies.into_iter().map(|copy| (Device::Cpu, copy, 0, 0)).collect();
    assemble(&settings, copies, Process { duration_ns, ..this_process() }, Missed::so_far())
}

type Copy = (Device, LedgerCopy, u64, u64);

fn copies() -> Vec<Copy> {
    let devices = std::iter::once(Device::Cpu).chain((0..32).map(Device::Cuda));
    let copy = |device| recorder::copy(device).map(|(copy, below, not_recorded)| (device, copy, below, not_recorded));
    devices.filter_map(copy).collect()
}

fn assemble(settings: &Settings, copies: Vec<Copy>, process: Process, missed_before: Missed) -> SnapshotData {
    let mut renumber = Renumber::default();
    let mut health = missed_before.since();
    let mut devices = Vec::new();
    for (device, copy, below, not_recorded) in copies {
        health.lost_blocks += copy.lost_blocks;
        health.missed_frees += copy.missed_frees;
        health.lost_scopes += copy.lost_scopes;
        devices.push(renumber.device(device, copy, below, not_recorded));
    }
    let symbols = symbol::symbolise(&renumber.addresses);
    health.no_line_numbers = symbols.no_line_numbers;
    health.unknown_addresses = symbols.unknown_addresses;
    let (stacks, modules) = renumber.stacks(symbols, settings.stacks);
    SnapshotData { process, settings: settings.clone(), devices, stacks, contexts: CONTEXTS.nodes(), modules, health }
}

fn this_process() -> Process {
    let program = std::env::current_exe().ok();
    let name = program.as_deref().and_then(|p| p.file_name()).map(|n| n.to_string_lossy().into_owned());
    let dir = std::env::current_dir().map(|d| d.display().to_string());
    Process {
        program: name.unwrap_or_default(),
        pid: std::process::id(),
        working_dir: dir.unwrap_or_default(),
        ..Process::default()
    }
}

/// Gives the stacks that occur in a snapshot numbers of its own, without gaps.
#[derive(Default)]
struct Renumber {
    new_ids: HashMap<StackId, StackId>,
    /// The stacks by new number less one, as indices into `addresses`.
    stacks: Vec<Vec<u32>>,
    addresses: Vec<u64>,
    address_index: HashMap<u64, u32>,
}

impl Renumber {
    fn device(&mut self, device: Device, mut copy: LedgerCopy, below: u64, not_recorded: u64) -> DeviceSnapshot {
        for record in &mut copy.records {
            record.stack = self.id(record.stack);
            record.alloc_stack = self.id(record.alloc_stack);
        }
        copy.live.iter_mut().chain(&mut copy.peak.blocks).for_each(|block| block.stack = self.id(block.stack));
        copy.stats.below_threshold = below;
        let segments = segments::estimate(&copy.records, &copy.live);
        DeviceSnapshot {
            device,
            records: copy.records,
            overwritten: copy.overwritten,
            live: copy.live,
            not_recorded,
            below_threshold: below,
            peak: copy.peak,
            stats: copy.stats,
            segments,
            scopes: copy.scopes,
            marks: copy.marks,
        }
    }

    fn id(&mut self, old: StackId) -> StackId {
        if old == StackId::NONE {
            return old;
        }
        if let Some(&new) = self.new_ids.get(&old) {
            return new;
        }
        let mut addresses = Vec::new();
        STACKS.copy_to(old, &mut addresses);
        let calls = addresses.into_iter().map(|address| self.address(address)).collect();
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

    /// The stacks in their final form: without C frames if those were not asked for.
    fn stacks(self, symbols: Symbols, kind: StackKind) -> (Stacks, Vec<crate::snapshot::Module>) {
        let Symbols { addresses, frames, modules, native, .. } = symbols;
        let kept = |call: &u32| {
            let index = *call as usize;
            let mark = self.addresses.get(index) == Some(&FRAMES_LEFT_OUT);
            kind == StackKind::All || mark || !native.get(index).copied().unwrap_or(false)
        };
        let (mut starts, mut calls) = (vec![0], Vec::new());
        for stack in &self.stacks {
            starts.push(calls.len() as u32);
            calls.extend(stack.iter().copied().filter(kept));
        }
        (Stacks { starts, calls, addresses, frames }, modules)
    }
}
