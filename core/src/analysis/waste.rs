//! Object lifetime analysis: blocks at the peak that no GPU operation uses any more, or not yet, and the peak by replay
//! if they were freed after their last use or allocated before their first.
//!
//! Needs recorded uses ([`Settings::uses`](crate::snapshot::Settings::uses)). Only what is certain counts: a block that an
//! opaque operation may have used is left out.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU64;

use super::labels::line_and_callers;
use super::log;
use crate::snapshot::{BlockUse, BlockUses, Device, DeviceSnapshot, RecordKind, SnapshotData, StackId};

/// What is wasted about a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WasteKind {
    /// At the peak it was past its last use.
    PastLastUse,
    /// Nothing ever used it.
    NeverUsed,
    /// At the peak it was not used yet.
    Early,
}

/// Wasted blocks of one allocation site, and the peak without the waste.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waste {
    /// What is wasted.
    pub kind: WasteKind,
    /// The line that allocates the blocks.
    pub line: String,
    /// The line of the use after which they could be freed, or before which they could be allocated; empty if it is not
    /// known.
    pub use_line: String,
    /// The kernel, copy or fill there.
    pub kernel: String,
    /// Wasted bytes at the peak.
    pub bytes: u64,
    /// Blocks at the peak with this waste.
    pub blocks: u64,
    /// The longest time between the last use and the free, or between the allocation and the first use, in nanoseconds.
    pub idle_ns: u64,
    /// Reduction of the peak, in addition to the rows before this one.
    pub saves: u64,
    /// The peak without this waste and that of all rows before this one, to the byte.
    pub peak_without: u64,
}

/// Sites that waste less than this part of the peak are left out.
const LEAST: u64 = 100;
/// Sites that are tried, largest first, and rows.
const MOST_SITES: usize = 24;
const MOST_ROWS: usize = 10;

/// Waste at the device's peak. Each row is the site that reduces the peak most once the rows before it are followed.
/// Empty if uses were not recorded, or the log has lost records.
pub fn waste(data: &SnapshotData, device: &DeviceSnapshot) -> Vec<Waste> {
    let Some(log) = ReplayedLog::of(device).filter(|_| !device.uses.is_empty()) else { return Vec::new() };
    let mut sites = sites(data, device, &log);
    let least = device.peak.bytes / LEAST;
    sites.retain(|site| site.waste.bytes > 0 && site.waste.bytes >= least);
    sites.sort_by(|a, b| b.waste.bytes.cmp(&a.waste.bytes).then_with(|| a.waste.line.cmp(&b.waste.line)));
    sites.truncate(MOST_SITES);
    greedy(&log, sites, least)
}

/// A site's blocks, and what moving their allocs or frees changes: bytes from a record on.
struct WastingSite {
    waste: Waste,
    changes: Vec<(usize, i64)>,
}

fn greedy(log: &ReplayedLog, mut sites: Vec<WastingSite>, least: u64) -> Vec<Waste> {
    let (mut changes, mut peak, mut rows) = (Vec::new(), log.peak(&[]), Vec::new());
    while rows.len() < MOST_ROWS {
        let with = |site: &WastingSite| log.peak(&merged(&changes, &site.changes));
        let best = sites.iter().enumerate().map(|(at, site)| (with(site), at)).min();
        let Some((without, at)) = best.filter(|(without, _)| peak - *without >= (least as i64).max(1)) else { break };
        let site = sites.remove(at);
        changes = merged(&changes, &site.changes);
        let (saves, peak_without) = ((peak - without) as u64, without.max(0) as u64);
        rows.push(Waste { saves, peak_without, ..site.waste });
        peak = without;
    }
    rows
}

fn merged(one: &[(usize, i64)], other: &[(usize, i64)]) -> Vec<(usize, i64)> {
    let mut all = [one, other].concat();
    all.sort_unstable();
    all
}

/// The log with the positions of each block's records.
struct ReplayedLog {
    at_start: i64,
    steps: Vec<i64>,
    allocated: HashMap<NonZeroU64, usize>,
    freed: HashMap<NonZeroU64, usize>,
    times: Vec<u64>,
}

impl ReplayedLog {
    /// `None` if the log does not reproduce the peak.
    fn of(device: &DeviceSnapshot) -> Option<Self> {
        if device.overwritten > 0 || !device.gaps.is_empty() || device.is_sample() {
            return None;
        }
        let at_start = i64::try_from(log::allocated_at_start(device)).ok()?;
        let (mut allocated, mut freed) = (HashMap::new(), HashMap::new());
        for (at, record) in device.records.iter().enumerate() {
            if let Some(seq) = record.alloc_seq {
                let of = if record.kind == RecordKind::Alloc { &mut allocated } else { &mut freed };
                of.insert(seq, at);
            }
        }
        let steps = device.records.iter().map(|record| log::change(device, record)).collect();
        let times = device.records.iter().map(|record| record.time_ns).collect();
        let log = Self { at_start, steps, allocated, freed, times };
        (u64::try_from(log.peak(&[])) == Ok(device.peak.bytes)).then_some(log)
    }

    /// The highest total with these changes, in the order of their records.
    fn peak(&self, changes: &[(usize, i64)]) -> i64 {
        let (mut total, mut peak, mut changes) = (self.at_start, self.at_start, changes.iter().peekable());
        for (at, step) in self.steps.iter().enumerate() {
            total += step;
            while let Some((_, change)) = changes.next_if(|(from, _)| *from <= at) {
                total += change;
            }
            peak = peak.max(total);
        }
        peak
    }

    /// The last record before a use.
    fn before(&self, used: &BlockUse) -> Option<usize> {
        let alloc = self.allocated.get(&NonZeroU64::new(used.after_alloc)?)?;
        Some(alloc + used.frees_after as usize)
    }

    /// What changes if the block is freed right after its last use; from which record on, until which.
    fn past_last_use(&self, uses: &BlockUses) -> Option<(usize, Option<usize>)> {
        let freed = *self.freed.get(&uses.seq)?;
        let from = self.before(uses.known_last()?)? + 1;
        (from < freed).then_some((from, Some(freed)))
    }

    fn never_used(&self, uses: &BlockUses) -> Option<(usize, Option<usize>)> {
        let from = *self.allocated.get(&uses.seq).filter(|_| uses.is_unused())?;
        Some((from, self.freed.get(&uses.seq).copied()))
    }

    /// What changes if the block is allocated right before its first use.
    fn early(&self, uses: &BlockUses) -> Option<(usize, Option<usize>)> {
        let from = *self.allocated.get(&uses.seq)?;
        let until = self.before(uses.known_first()?)?;
        (from < until).then_some((from, Some(until)))
    }
}

/// Bytes allocated on CUDA devices, by whether their last use is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UseCoverage {
    /// Bytes of all allocs in the log.
    pub bytes: u64,
    /// Bytes of blocks whose last use is known, or that nothing used.
    pub known: u64,
}

/// How much is known about uses, over all CUDA devices.
pub fn use_coverage(data: &SnapshotData) -> UseCoverage {
    let mut coverage = UseCoverage::default();
    for device in data.devices.iter().filter(|device| matches!(device.device, Device::Cuda(_))) {
        for record in device.records.iter().filter(|record| record.kind == RecordKind::Alloc) {
            let is_known = |uses: &&BlockUses| uses.known_last().is_some() || uses.is_unused();
            let known = device.uses_of(record.alloc_seq).filter(is_known).map_or(0, |_| record.size);
            coverage.bytes = coverage.bytes.saturating_add(record.size);
            coverage.known = coverage.known.saturating_add(known);
        }
    }
    coverage
}

type SiteKey = (WasteKind, String, String, String);

fn sites(data: &SnapshotData, device: &DeviceSnapshot, log: &ReplayedLog) -> Vec<WastingSite> {
    let mut lines = LineCache { data, known: HashMap::new() };
    let mut sites: BTreeMap<SiteKey, WastingSite> = BTreeMap::new();
    let peak_at = device.peak.seq.and_then(|seq| log.allocated.get(&seq)).copied();
    for uses in &device.uses {
        let Some((at, record)) = log.allocated.get(&uses.seq).and_then(|at| Some((*at, device.records.get(*at)?)))
        else {
            continue;
        };
        let found = [
            (WasteKind::PastLastUse, log.past_last_use(uses), uses.last),
            (WasteKind::NeverUsed, log.never_used(uses), None),
            (WasteKind::Early, log.early(uses), uses.first),
        ];
        for (kind, range, used) in found {
            let Some((from, until)) = range else { continue };
            let (line, use_line) = (lines.of(record.stack), used.map_or(String::new(), |used| lines.of(used.stack)));
            let kernel = used.map_or("", |used| data.gpu_work.as_ref().map_or("", |work| work.kernel(used.kernel)));
            let key = (kind, line, use_line, kernel.to_owned());
            let site = sites.entry(key).or_insert_with_key(WastingSite::of);
            let size = record.size as i64;
            site.changes.push((from, -size));
            site.changes.extend(until.map(|until| (until, size)));
            let is_at_peak = peak_at.is_some_and(|peak| (from..until.unwrap_or(usize::MAX)).contains(&peak));
            if is_at_peak {
                site.waste.bytes += record.size;
                site.waste.blocks += 1;
                let time = |at: usize| log.times.get(at).copied().unwrap_or(0);
                let idle = match kind {
                    WasteKind::PastLastUse => until.map_or(0, time).saturating_sub(used.map_or(0, |used| used.time_ns)),
                    _ => used.map_or(0, |used| used.time_ns.saturating_sub(time(at))),
                };
                site.waste.idle_ns = site.waste.idle_ns.max(idle);
            }
        }
    }
    sites.into_values().collect()
}

impl WastingSite {
    fn of((kind, line, use_line, kernel): &SiteKey) -> Self {
        let waste = Waste {
            kind: *kind,
            line: line.clone(),
            use_line: use_line.clone(),
            kernel: kernel.clone(),
            bytes: 0,
            blocks: 0,
            idle_ns: 0,
            saves: 0,
            peak_without: 0,
        };
        Self { waste, changes: Vec::new() }
    }
}

/// Lines of stacks, cached.
struct LineCache<'a> {
    data: &'a SnapshotData,
    known: HashMap<StackId, String>,
}

impl LineCache<'_> {
    fn of(&mut self, stack: StackId) -> String {
        if stack == StackId::NONE {
            return String::new();
        }
        self.known.entry(stack).or_insert_with(|| line_and_callers(self.data, stack, 0).concat()).clone()
    }
}

#[cfg(test)]
#[path = "waste_tests.rs"]
mod tests;
