//! The changes that a plan may choose from: each is what all findings of one kind say of one line, at whatever moment.

use std::num::NonZeroU64;

use super::super::graph::KeptByGraph;
use super::super::replay::LogReplay;
use super::super::temporaries::in_parts;
use super::super::ungraphed::{kept_past_their_pass, kept_without_a_pass, pass_of, ungraphed};
use super::super::{
    IdleMemory, InPlace, OperatorTemporaries, Ungraphed, Waste, idle, in_place, sites, step, step_temporaries,
};
use super::PlannedChange;
use crate::analysis::absence::{Absence, LogChange};
use crate::analysis::{LiveTwice, twice};
use crate::recording::DeviceView;
use crate::snapshot::{Block, Record, RecordKind};

/// A change saves at least this part of the peak somewhere.
const LEAST: u64 = 200;
/// Changes that are tried, those that save most first.
const MOST: usize = 96;

/// A change, and what it takes out of the log.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) change: PlannedChange,
    /// Blocks that go. Several changes may take one block; then it is gone when one of them takes it.
    pub(super) absences: Vec<Absence>,
    /// Bytes that come and go otherwise,
    pub(super) changes: Vec<LogChange>,
    /// by these blocks: no other change of them counts.
    pub(super) blocks: Vec<NonZeroU64>,
    /// Bytes to the host and back.
    pub(super) moved: u64,
}

impl Candidate {
    pub(super) fn of(change: PlannedChange, absences: Vec<Absence>) -> Self {
        let absences = united(absences);
        Self { change, absences, changes: Vec::new(), blocks: Vec::new(), moved: 0 }
    }

    fn of_blocks(change: PlannedChange, changes: Vec<LogChange>, blocks: Vec<NonZeroU64>) -> Self {
        Self { changes, blocks, ..Self::of(change, Vec::new()) }
    }

    /// The most bytes that it takes away at one moment.
    fn most(&self) -> u64 {
        let mut changes = self.changes.clone();
        changes.extend(self.absences.iter().flat_map(Absence::changes));
        changes.sort_unstable();
        let (mut total, mut lowest) = (0i64, 0);
        for records in changes.chunk_by(|(one, _), (other, _)| one == other) {
            total += records.iter().map(|(_, change)| change).sum::<i64>();
            lowest = lowest.min(total);
        }
        lowest.unsigned_abs()
    }

    /// Bytes and blocks that are gone at a record.
    fn gone_at(&self, at: usize) -> (u64, u64) {
        let gone = self.absences.iter().filter(|absence| absence.is_at(at));
        gone.fold((0, 0), |(bytes, blocks), absence| (bytes + absence.size, blocks + 1))
    }

    /// What is said of the change if this record is the moment that it is for.
    pub(super) fn at(&self, device: &DeviceView<'_>, at: usize, (saves, peak_without): (u64, u64)) -> PlannedChange {
        let (bytes, blocks) = self.gone_at(at);
        let graph = |kept: &[&KeptByGraph], row: &Ungraphed| {
            let found = ungraphed(device.data(), kept, at, row.pass.clone());
            Ungraphed { peak_without, ..found.unwrap_or_else(|| row.clone()) }
        };
        match self.change.clone() {
            PlannedChange::Waste(row) => PlannedChange::Waste(Waste { bytes, blocks, saves, peak_without, ..row }),
            PlannedChange::Idle(row) => PlannedChange::Idle(IdleMemory { bytes, blocks, saves, peak_without, ..row }),
            PlannedChange::InPlace(row) => {
                PlannedChange::InPlace(InPlace { bytes, blocks, saves, peak_without, ..row })
            }
            PlannedChange::InParts(row) => PlannedChange::InParts(OperatorTemporaries { saves, peak_without, ..row }),
            PlannedChange::LiveTwice(row) => {
                PlannedChange::LiveTwice(LiveTwice { peak_without: Some(peak_without), ..row })
            }
            PlannedChange::KeptByVariables(row) => {
                PlannedChange::KeptByVariables(graph(&kept_without_a_pass(device), &row))
            }
            PlannedChange::KeptLoss(row) => PlannedChange::KeptLoss(graph(&kept_past_their_pass(device), &row)),
            PlannedChange::OwnStep(largest, _) => {
                let live = self.blocks.iter().filter_map(|seq| device.lifetimes().get(*seq));
                let live = live.filter(|life| (life.from..life.to).contains(&(at as u32 + 1)));
                let (bytes, most) = live.fold((0, None), |(bytes, most): (u64, Option<&Block>), life| {
                    let most = most.filter(|most| most.size >= life.block.size).unwrap_or(&life.block);
                    (bytes + life.block.size, Some(most))
                });
                PlannedChange::OwnStep(most.cloned().unwrap_or(largest), bytes)
            }
        }
    }
}

/// The same without what is there twice.
fn united(mut absences: Vec<Absence>) -> Vec<Absence> {
    absences.sort_unstable_by_key(|absence| (absence.seq, absence.from));
    absences.dedup_by(|next, last| {
        let is_one = next.seq == last.seq && next.from <= last.until;
        last.until = if is_one { last.until.max(next.until) } else { last.until };
        is_one
    });
    absences
}

/// All changes that matter, those that save most first.
pub(super) fn all(device: &DeviceView<'_>, log: &LogReplay) -> Vec<Candidate> {
    let least = (device.peak.bytes / LEAST).max(1);
    let kinds: [fn(&DeviceView<'_>, &LogReplay) -> Vec<Candidate>; 5] =
        [by_uses, by_variables, by_graphs, by_parts, by_steps];
    let mut all: Vec<(u64, Candidate)> = kinds
        .iter()
        .flat_map(|kind| kind(device, log))
        .map(|candidate| (candidate.most(), candidate))
        .filter(|(most, _)| *most >= least)
        .collect();
    all.sort_by_key(|(most, _)| std::cmp::Reverse(*most));
    all.truncate(MOST);
    all.into_iter().map(|(_, candidate)| candidate).collect()
}

fn by_uses(device: &DeviceView<'_>, log: &LogReplay) -> Vec<Candidate> {
    if device.uses.is_empty() {
        return Vec::new();
    }
    let wasted = sites(device, log, Some(device.graphs())).into_iter();
    let wasted = wasted.map(|site| Candidate::of(PlannedChange::Waste(site.waste), site.absences));
    let over_inputs = in_place::all(device, log).into_iter();
    let over_inputs = over_inputs.map(|(row, absences)| Candidate::of(PlannedChange::InPlace(row), absences));
    let idle = idle::sites(device, log, |_| true).into_iter().map(|(row, absences)| {
        let moved = absences.iter().fold(0u64, |sum, absence| sum.saturating_add(2 * absence.size));
        Candidate { moved, ..Candidate::of(PlannedChange::Idle(row), absences) }
    });
    wasted.chain(over_inputs).chain(idle).collect()
}

/// Where each use is known, those decide it.
fn by_variables(device: &DeviceView<'_>, _log: &LogReplay) -> Vec<Candidate> {
    if !device.uses.is_empty() {
        return Vec::new();
    }
    let rows = twice::with_absences(device.data(), device).into_iter();
    rows.map(|(row, absences)| Candidate::of(PlannedChange::LiveTwice(row), absences)).collect()
}

fn by_graphs(device: &DeviceView<'_>, _log: &LogReplay) -> Vec<Candidate> {
    let absences = |kept: &[&KeptByGraph]| kept.iter().map(|kept| kept.absence()).collect();
    let row = |pass: String| Ungraphed { blocks: 0, bytes: 0, line: String::new(), pass, peak_without: 0 };
    let kept = kept_without_a_pass(device);
    let never = Candidate::of(PlannedChange::KeptByVariables(row(String::new())), absences(&kept));
    let kept = if device.uses.is_empty() { kept_past_their_pass(device) } else { Vec::new() };
    let pass = kept.first().and_then(|kept| pass_of(device, kept)).unwrap_or_default();
    vec![never, Candidate::of(PlannedChange::KeptLoss(row(pass)), absences(&kept))]
}

fn by_parts(device: &DeviceView<'_>, log: &LogReplay) -> Vec<Candidate> {
    let found = in_parts(device, log, device.peak.bytes / LEAST).into_iter();
    found.map(|found| Candidate::of_blocks(PlannedChange::InParts(found.row), found.changes, found.blocks)).collect()
}

fn by_steps(device: &DeviceView<'_>, log: &LogReplay) -> Vec<Candidate> {
    let Some(mut is_transient) = step_temporaries(device) else { return Vec::new() };
    let mut is_of_step = |record: &Record| record.kind == RecordKind::Alloc && is_transient(&record.block());
    let blocks = device.records.iter().filter(|record| is_of_step(record));
    let blocks: Vec<NonZeroU64> = blocks.filter_map(|record| record.alloc_seq).collect();
    let Some(first) = blocks.first().and_then(|seq| device.lifetimes().get(*seq)) else { return Vec::new() };
    let changes = step::own_step(device, log, is_of_step);
    vec![Candidate::of_blocks(PlannedChange::OwnStep(first.block.clone(), 0), changes, blocks)]
}
