//! Idle memory at the peak: blocks that are used before and after the peak, but not for a long time around it. In this
//! gap, they could be dropped and recomputed, or moved to the host.

use std::collections::BTreeMap;
use std::ops::Range;

use super::replay::LogReplay;
use super::{followed, lines};
use crate::analysis::absence::Absence;
use crate::recording::DeviceView;
use crate::snapshot::{BlockIdle, BlockUses, IdleTime};

/// Blocks of one allocation site that are used before and after the peak, but not for a long time around it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdleMemory {
    /// The line that allocates the blocks.
    pub line: String,
    /// The line of the use that ends the gap; empty if it is unknown, or not the same for all blocks.
    pub use_line: String,
    /// The kernel, copy or fill of that use.
    pub kernel: String,
    /// Idle bytes at the peak.
    pub bytes: u64,
    /// Idle blocks at the peak.
    pub blocks: u64,
    /// The fewest GPU operations in one of the blocks' gaps.
    pub operations: u64,
    /// The shortest of the gaps, in nanoseconds of the host's clock.
    pub idle_ns: u64,
    /// The beginning of the time in which all these blocks are idle.
    pub from_ns: u64,
    /// The end of that time. The peak lies in it.
    pub until_ns: u64,
    /// Reduction of the peak, in addition to the rows before this one and to the rows of [`waste`](super::waste).
    pub saves: u64,
    /// An upper bound of the resulting peak.
    pub peak_without: u64,
}

impl IdleMemory {
    /// Assumed bytes per second between host and device: what PCIe 4.0 with 16 lanes reaches from pinned memory.
    pub const HOST_LINK: u64 = 25_000_000_000;
    /// The shortest gap that counts, in GPU operations.
    pub const LEAST_OPERATIONS: u64 = BlockIdle::LEAST_OPERATIONS;
    /// A row that saves less than the peak divided by this is left out.
    pub const LEAST_PART: u64 = 10;
    /// The most rows.
    const MOST_ROWS: usize = 3;

    fn of((line, use_line, kernel): (String, String, String)) -> Self {
        let [operations, idle_ns, until_ns] = [u64::MAX; 3];
        Self { line, use_line, kernel, operations, idle_ns, until_ns, ..Self::default() }
    }

    /// Merges another site of the same line into this one.
    pub(super) fn join(&mut self, other: &Self) {
        if (&self.use_line, &self.kernel) != (&other.use_line, &other.kernel) {
            (self.use_line, self.kernel) = Default::default();
        }
        self.operations = self.operations.min(other.operations);
        self.idle_ns = self.idle_ns.min(other.idle_ns);
    }

    fn add(&mut self, size: u64, idle: &IdleTime) {
        self.bytes = self.bytes.saturating_add(size);
        self.blocks += 1;
        self.operations = self.operations.min(idle.operations);
        self.idle_ns = self.idle_ns.min(idle.to_ns.saturating_sub(idle.from_ns));
        self.from_ns = self.from_ns.max(idle.from_ns);
        self.until_ns = self.until_ns.min(idle.to_ns);
    }

    /// Nanoseconds to move the bytes to the host and back, at [`HOST_LINK`](Self::HOST_LINK) bytes per second.
    pub fn transfer_ns(&self) -> u64 {
        let there_and_back = u128::from(self.bytes) * 2 * 1_000_000_000 / u128::from(Self::HOST_LINK);
        u64::try_from(there_and_back).unwrap_or(u64::MAX)
    }
}

/// Idle memory at the device's peak. Each row is the site that reduces the peak most after [`waste`](super::waste) and
/// the rows before it are removed. Empty if uses were not recorded, or if the log has lost records.
pub fn idle_memory(device: &DeviceView<'_>) -> Vec<IdleMemory> {
    let Some(log) = LogReplay::with_uses(device) else { return Vec::new() };
    let Some(peak) = device.peak.seq.and_then(|seq| log.allocated_at(seq)) else { return Vec::new() };
    let mut sites = sites(device, &log, |gap| gap.contains(&peak));
    let weight = |idle: &IdleMemory| u128::from(idle.bytes) * u128::from(idle.idle_ns.max(1));
    sites.sort_by(|(a, _), (b, _)| weight(b).cmp(&weight(a)).then_with(|| a.line.cmp(&b.line)));
    if sites.is_empty() {
        return Vec::new();
    }
    let (_, needed, _) = followed(device, &log);
    let least = device.peak.bytes / IdleMemory::LEAST_PART;
    let (rows, _) = log.greedy(needed, sites, (least, IdleMemory::MOST_ROWS));
    rows.into_iter().map(|(row, saves, peak_without)| IdleMemory { saves, peak_without, ..row }).collect()
}

/// By site, the gaps for which `is_gap` holds. `is_gap` gets the records between which the block is not needed.
pub(super) fn sites(
    device: &DeviceView<'_>,
    log: &LogReplay,
    is_gap: impl Fn(Range<usize>) -> bool,
) -> Vec<(IdleMemory, Vec<Absence>)> {
    let mut lines = lines(device.data());
    let mut sites: BTreeMap<_, (IdleMemory, Vec<Absence>)> = BTreeMap::new();
    for uses in &device.uses {
        let Some(record) = log.allocated_at(uses.seq).and_then(|at| device.records.get(at)) else { continue };
        for (idle, from, until) in gaps(device, log, uses).filter(|(_, from, until)| is_gap(*from..*until)) {
            // Only the first and the last use of a block have a stack.
            let end = uses.last.filter(|last| last.time_ns == idle.to_ns && last.after_alloc == idle.to_alloc);
            let use_line = end.map_or(String::new(), |last| lines.get(last.stack));
            let work = device.data().gpu_work.as_ref();
            let kernel = end.and_then(|last| Some(work?.kernel(last.kernel))).unwrap_or_default();
            let key = (lines.get(record.stack), use_line, kernel.to_owned());
            let (row, absences) = sites.entry(key).or_insert_with_key(|key| (IdleMemory::of(key.clone()), Vec::new()));
            row.add(record.size, &idle);
            absences.push(Absence { seq: uses.seq, from, until, size: record.size });
        }
    }
    sites.into_values().collect()
}

/// A block's long gaps between two uses, each with the records between which the block is not needed.
fn gaps(device: &DeviceView<'_>, log: &LogReplay, uses: &BlockUses) -> impl Iterator<Item = (IdleTime, usize, usize)> {
    let is_long = |idle: &IdleTime| idle.operations >= IdleMemory::LEAST_OPERATIONS && !uses.escaped;
    let of_log = |idle: IdleTime| log.while_idle(&idle).map(|(from, until)| (idle, from, until));
    // Gaps overlap only in a file that no program recorded.
    let mut end = 0;
    device.idle_of(uses).filter(is_long).filter_map(of_log).filter(move |(_, from, until)| {
        let is_apart = *from >= end;
        end = if is_apart { *until } else { end };
        is_apart
    })
}
