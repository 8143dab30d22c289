//! The changes that a plan can choose from. Each change combines all findings of one kind for one line, at any moment.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

use super::super::graph::KeptByGraph;
use super::super::replay::LogReplay;
use super::super::temporaries::in_parts;
use super::super::ungraphed::{kept_past_their_pass, kept_without_a_pass, pass_of};
use super::super::{
    IdleMemory, InPlace, OperatorTemporaries, Ungraphed, Waste, idle, in_place, sites, step, step_temporaries,
};
use super::change::PlannedChange;
use crate::analysis::absence::{Absence, LogChange};
use crate::analysis::{LiveTwice, bytes_by_line, twice};
use crate::recording::DeviceView;
use crate::snapshot::{Block, Record, RecordKind, StackId};

/// A change must save at least the peak divided by this at some moment.
const LEAST: u64 = 200;
/// The most changes that are tried. Those that save most come first.
const MOST: usize = 96;

/// A change, and what it removes from the log.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) change: PlannedChange,
    /// Blocks that become absent. Several changes may remove the same block.
    pub(super) absences: Vec<Absence>,
    /// Other changes of the total of live bytes, caused by `blocks`.
    pub(super) changes: Vec<LogChange>,
    /// The blocks that cause `changes`. If a plan has this candidate, no other change of these blocks counts.
    pub(super) blocks: Vec<NonZeroU64>,
    /// Bytes that are moved to the host and back.
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

    /// Blocks that it removes, in the order of their allocation.
    pub(super) fn taken(&self) -> impl Iterator<Item = NonZeroU64> {
        self.absences.chunk_by(|one, other| one.seq == other.seq).filter_map(|of_block| Some(of_block.first()?.seq))
    }

    /// The same change for only the first blocks, up to this one.
    pub(super) fn up_to(&self, log: &LogReplay, last: NonZeroU64) -> Self {
        let absences: Vec<Absence> = self.absences.iter().filter(|absence| absence.seq <= last).copied().collect();
        Self { moved: moved(log, &absences), absences, ..self.clone() }
    }

    /// The most bytes that it removes at one moment.
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

    /// The line whose blocks have most absent bytes at a record.
    fn line_at(&self, device: &DeviceView<'_>, at: usize) -> String {
        let stack = |seq| device.lifetimes().get(seq).map_or(StackId::NONE, |life| life.block.stack);
        let gone = self.absences.iter().filter(|absence| absence.is_at(at));
        let by_line = bytes_by_line(device.data(), gone.map(|absence| (stack(absence.seq), absence.size)));
        by_line.into_iter().max_by_key(|(_, bytes)| *bytes).map_or(String::new(), |(line, _)| line)
    }

    /// The change, with the numbers that describe its effect at this record.
    pub(super) fn at(&self, device: &DeviceView<'_>, at: usize, (saves, peak_without): (u64, u64)) -> PlannedChange {
        let gone = self.absences.iter().filter(|absence| absence.is_at(at));
        let (bytes, blocks) = gone.fold((0, 0), |(bytes, blocks), absence| (bytes + absence.size, blocks + 1));
        let of_graph =
            |row: Ungraphed| Ungraphed { blocks, bytes, peak_without, line: self.line_at(device, at), ..row };
        match self.change.clone() {
            PlannedChange::Waste(row) => PlannedChange::Waste(Waste { bytes, blocks, saves, peak_without, ..row }),
            PlannedChange::Idle(row, [_, all]) => {
                let row = IdleMemory { bytes, blocks, saves, peak_without, ..row };
                PlannedChange::Idle(row, [self.taken().count() as u64, all])
            }
            PlannedChange::InPlace(row) => {
                PlannedChange::InPlace(InPlace { bytes, blocks, saves, peak_without, ..row })
            }
            PlannedChange::InParts(row) => PlannedChange::InParts(OperatorTemporaries { saves, peak_without, ..row }),
            PlannedChange::LiveTwice(row) => {
                PlannedChange::LiveTwice(LiveTwice { peak_without: Some(peak_without), ..row })
            }
            PlannedChange::KeptByVariables(row) => PlannedChange::KeptByVariables(of_graph(row)),
            PlannedChange::KeptLoss(row) => PlannedChange::KeptLoss(of_graph(row)),
            PlannedChange::OwnStep(largest, _) => {
                let live = self.blocks.iter().filter_map(|seq| device.lifetimes().get(*seq));
                let live = live.filter(|life| (life.from..life.to).contains(&(at as u32 + 1)));
                let (bytes, most) = live.fold((0, None), |(bytes, most): (u64, Option<&Block>), life| {
                    let most = most.filter(|most| most.size >= life.block.size).unwrap_or(&life.block);
                    (bytes + life.block.size, Some(most))
                });
                PlannedChange::OwnStep(most.copied().unwrap_or(largest), bytes)
            }
        }
    }
}

/// The absences, with overlapping ones merged.
fn united(mut absences: Vec<Absence>) -> Vec<Absence> {
    absences.sort_unstable_by_key(|absence| (absence.seq, absence.from));
    absences.dedup_by(|next, last| {
        let is_one = next.seq == last.seq && next.from <= last.until;
        last.until = if is_one { last.until.max(next.until) } else { last.until };
        is_one
    });
    absences
}

/// All changes that save enough, those that save most first.
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
    let mut wasted = Vec::new();
    // Everything that the graph of one backward pass keeps is freed together with the loss of that pass.
    let mut by_pass: BTreeMap<String, Vec<Absence>> = BTreeMap::new();
    for site in sites(device, log, Some(device.graphs())) {
        if site.waste.pass_line.is_empty() {
            let waste = Waste { idle_ns: site.longest_ns, ..site.waste };
            wasted.push(Candidate::of(PlannedChange::Waste(waste), site.absences));
        } else {
            by_pass.entry(site.waste.pass_line).or_default().extend(site.absences);
        }
    }
    let by_pass = by_pass.into_iter();
    let kept = by_pass.map(|(pass, absences)| Candidate::of(PlannedChange::KeptLoss(of_pass(pass)), absences));
    let over_inputs = in_place::all(device, log).into_iter();
    let over_inputs = over_inputs.map(|(row, absences)| Candidate::of(PlannedChange::InPlace(row), absences));
    wasted.into_iter().chain(kept).chain(over_inputs).chain(by_idle_lines(device, log)).collect()
}

/// A candidate for each line: all its idle memory, whichever use comes next.
fn by_idle_lines<'d>(device: &'d DeviceView<'_>, log: &'d LogReplay) -> impl Iterator<Item = Candidate> + 'd {
    let mut by_line: BTreeMap<String, (IdleMemory, Vec<Absence>)> = BTreeMap::new();
    for (row, absences) in idle::sites(device, log, |_| true) {
        if let Some((of_line, all)) = by_line.get_mut(&row.line) {
            of_line.join(&row);
            all.extend(absences);
        } else {
            by_line.insert(row.line.clone(), (row, absences));
        }
    }
    by_line.into_values().map(|(row, mut absences)| {
        let seqs: BTreeSet<_> = absences.iter().map(|absence| absence.seq).collect();
        let blocks = seqs.len() as u64;
        absences.extend(seqs.iter().filter_map(|seq| past_last_use(device, log, *seq)));
        let moved = moved(log, &absences);
        Candidate { moved, ..Candidate::of(PlannedChange::Idle(row, [blocks; 2]), absences) }
    })
}

/// The absence of a moved block after its last use, because it need not be moved back from the host.
fn past_last_use(device: &DeviceView<'_>, log: &LogReplay, seq: NonZeroU64) -> Option<Absence> {
    let from = log.after(device.uses_of(Some(seq))?.known_last()?)?;
    let until = log.freed_at(seq).unwrap_or(usize::MAX);
    let size = device.lifetimes().get(seq)?.block.size;
    (from < until.min(device.records.len())).then_some(Absence { seq, from, until, size })
}

/// Bytes moved to the host, and back if that happens before the free.
fn moved(log: &LogReplay, absences: &[Absence]) -> u64 {
    absences.iter().fold(0, |sum, absence| {
        let comes_back = absence.until < log.freed_at(absence.seq).unwrap_or(usize::MAX);
        sum.saturating_add(absence.size.saturating_mul(1 + u64::from(comes_back)))
    })
}

fn of_pass(pass: String) -> Ungraphed {
    Ungraphed { pass, ..Ungraphed::default() }
}

/// Finds nothing if uses are known, because then `by_uses` decides.
fn by_variables(device: &DeviceView<'_>, _log: &LogReplay) -> Vec<Candidate> {
    if !device.uses.is_empty() {
        return Vec::new();
    }
    let rows = twice::with_absences(device.data(), device).into_iter();
    rows.map(|(row, absences)| Candidate::of(PlannedChange::LiveTwice(row), absences)).collect()
}

fn by_graphs(device: &DeviceView<'_>, _log: &LogReplay) -> Vec<Candidate> {
    let absences = |kept: &[&KeptByGraph]| kept.iter().map(|kept| kept.absence).collect();
    let kept = kept_without_a_pass(device);
    let never = Candidate::of(PlannedChange::KeptByVariables(Ungraphed::default()), absences(&kept));
    let kept = if device.uses.is_empty() { kept_past_their_pass(device) } else { Vec::new() };
    let pass = kept.first().and_then(|kept| pass_of(device, kept)).unwrap_or_default();
    vec![never, Candidate::of(PlannedChange::KeptLoss(of_pass(pass)), absences(&kept))]
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
    vec![Candidate::of_blocks(PlannedChange::OwnStep(first.block, 0), changes, blocks)]
}
