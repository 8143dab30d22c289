//! Object lifetime analysis: finds blocks at the peak whose last use by a GPU operation is over, or whose first use is
//! still to come. A replay of the log gives the peak as if they were freed right after their last use, or allocated
//! right before their first one.
//!
//! This needs recorded uses ([`Settings::uses`](crate::snapshot::Settings::uses)). Only certain cases count: a block is
//! left out if it may have been used by an opaque operation (one that does not tell which blocks it uses).

mod checkpoint;
mod coverage;
mod graph;
mod idle;
mod in_place;
#[cfg(test)]
mod in_place_tests;
mod plan;
pub(super) mod replay;
mod statements;
mod step;
mod temporaries;
#[cfg(test)]
mod tests;
mod ungraphed;

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU64;

use self::replay::LogReplay;
use super::absence::{Absence, LogChange};
use super::labels::line_label;
use crate::attribute::{AllocationSite, Attribution, allocation_site};
use crate::memo::Memo;
use crate::recording::DeviceView;
use crate::snapshot::StackId;
pub use checkpoint::{Checkpoint, checkpoints};
pub use coverage::{UseCoverage, use_coverage};
pub(crate) use graph::Graphs;
pub use idle::{IdleMemory, idle_memory};
pub use in_place::{InPlace, in_place};
pub(crate) use plan::PlannedChange;
pub use plan::{Plan, PlanStep};
pub(crate) use step::{peak_if_replaced, peak_with_own_step, step_temporaries};
pub(crate) use temporaries::peak_in_parts;
pub use temporaries::{OperatorTemporaries, operator_temporaries};
pub(crate) use ungraphed::{Ungraphed, is_left_by_a_pass, past_their_pass, peak_without_graphs, without_a_pass};

/// Why a block is wasted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WasteKind {
    /// At the peak, its last use was over.
    #[default]
    PastLastUse,
    /// Nothing ever used it.
    NeverUsed,
    /// At the peak, it had not been used yet.
    Early,
}

/// Wasted blocks of one allocation site, and the peak without the waste.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waste {
    /// Why the blocks are wasted.
    pub kind: WasteKind,
    /// The line that allocates the blocks.
    pub line: String,
    /// The line of the use after which they could be freed, or before which they could be allocated. Empty if it is not
    /// known.
    pub use_line: String,
    /// The kernel, copy or fill of that use.
    pub kernel: String,
    /// The line of the backward pass that needed the blocks, if the graph of its loss may keep them; otherwise empty.
    pub pass_line: String,
    /// Whether one function of the program contains both lines.
    pub in_one_function: bool,
    /// Wasted bytes at the peak.
    pub bytes: u64,
    /// Blocks at the peak with this waste.
    pub blocks: u64,
    /// The longest time between the last use and the free, or between the allocation and the first use, in nanoseconds.
    pub idle_ns: u64,
    /// The beginning of the time in which all these blocks are wasted.
    pub from_ns: u64,
    /// The end of that time. The peak lies in it.
    pub until_ns: u64,
    /// Reduction of the peak, in addition to the rows before this one.
    pub saves: u64,
    /// The exact peak without this waste and without the waste of all rows before this one.
    pub peak_without: u64,
}

/// Sites that waste less than the peak divided by this are left out.
const LEAST: u64 = 100;
/// The most rows.
const MOST_ROWS: usize = 10;

/// Waste at the device's peak. Each row is the site that reduces the peak most after the rows before it are fixed.
/// Empty if uses were not recorded, or if the log has lost records.
pub fn waste(device: &DeviceView<'_>) -> Vec<Waste> {
    LogReplay::with_uses(device).map_or_else(Vec::new, |log| followed(device, &log).0)
}

/// A block's number, why it is wasted, and the record to which its alloc or free should move.
type MovedBlock = (NonZeroU64, WasteKind, usize);

/// For each block's number and kind of waste, the record to which its alloc or free should move.
type MovedBlocks = HashMap<(NonZeroU64, WasteKind), usize>;

/// The rows of `waste`, what all of them together change of the total of live bytes, and the blocks whose alloc or free
/// they move.
fn followed(device: &DeviceView<'_>, log: &LogReplay) -> (Vec<Waste>, Vec<LogChange>, MovedBlocks) {
    let mut sites = sites(device, log, Some(device.graphs()));
    let least = device.peak.bytes / LEAST;
    sites.retain(|site| site.waste.bytes > 0 && site.waste.bytes >= least);
    sites.sort_by(|a, b| b.waste.bytes.cmp(&a.waste.bytes).then_with(|| a.waste.line.cmp(&b.waste.line)));
    let sites = sites.into_iter().map(|site| ((site.waste, site.moved), site.absences)).collect();
    let (found, changes) = log.greedy(Vec::new(), sites, (least, MOST_ROWS));
    let moved = found.iter().flat_map(|((_, moved), ..)| moved).map(|(seq, kind, at)| ((*seq, *kind), *at)).collect();
    let row = |((waste, _), saves, peak_without)| Waste { saves, peak_without, ..waste };
    (found.into_iter().map(row).collect(), changes, moved)
}

/// The wasted blocks of one site, and where in the log they would be absent if their allocs or frees moved.
#[derive(Default)]
struct WastingSite {
    waste: Waste,
    absences: Vec<Absence>,
    moved: Vec<MovedBlock>,
    /// The longest time during which one of the site's blocks is not needed. The peak may lie outside of it.
    longest_ns: u64,
}

type SiteKey = (WasteKind, String, String, String);

/// Wasted blocks by site. If `graphs` is given, only blocks that the program can free or allocate at another time.
fn sites(device: &DeviceView<'_>, log: &LogReplay, graphs: Option<&Graphs>) -> Vec<WastingSite> {
    let data = device.data();
    let mut lines = lines(data);
    let mut sites: BTreeMap<SiteKey, WastingSite> = BTreeMap::new();
    let peak_at = device.peak.seq.and_then(|seq| log.allocated_at(seq));
    for uses in &device.uses {
        let Some((at, record)) = log.allocated_at(uses.seq).and_then(|at| Some((at, device.records.get(at)?))) else {
            continue;
        };
        let found = [
            (WasteKind::PastLastUse, log.past_last_use(uses), uses.last),
            (WasteKind::NeverUsed, log.never_used(uses), None),
            (WasteKind::Early, log.early(uses), uses.first),
        ];
        for (kind, range, used) in found {
            let Some((from, until)) = range else { continue };
            let is_past = kind == WasteKind::PastLastUse;
            let freed = until.filter(|_| is_past);
            let Some((from, pass)) =
                graphs.map_or(Some((from, None)), |graphs| graphs.way_out(data, (at, record), from, freed))
            else {
                continue;
            };
            let (line, use_line) = (lines.get(record.stack), used.map_or(String::new(), |used| lines.get(used.stack)));
            let kernel = used.map_or("", |used| data.gpu_work.as_ref().map_or("", |work| work.kernel(used.kernel)));
            let key = (kind, line, use_line, kernel.to_owned());
            let pass_line = pass.map_or(String::new(), |pass| lines.get(pass));
            let site = sites.entry(key).or_insert_with_key(WastingSite::of);
            site.waste.pass_line = pass_line;
            site.waste.in_one_function = used.is_some_and(|used| in_one_function(data, record.stack, used.stack));
            let until_end = until.unwrap_or(usize::MAX);
            site.absences.push(Absence { seq: uses.seq, from, until: until_end, size: record.size });
            site.moved.push((uses.seq, kind, if kind == WasteKind::Early { until.unwrap_or(from) } else { from }));
            let time = |at: usize| log.times.get(at).copied().unwrap_or(0);
            let used_ns = used.map_or(0, |used| used.time_ns);
            let (from_ns, until_ns) = match kind {
                WasteKind::PastLastUse => (used_ns, until.map_or(u64::MAX, time)),
                WasteKind::NeverUsed => (time(at), until.map_or(u64::MAX, time)),
                WasteKind::Early => (time(at), used_ns),
            };
            let idle = if kind == WasteKind::NeverUsed { 0 } else { until_ns.saturating_sub(from_ns) };
            site.longest_ns = site.longest_ns.max(idle);
            let is_at_peak = peak_at.is_some_and(|peak| (from..until_end).contains(&peak));
            if is_at_peak {
                site.waste.bytes += record.size;
                site.waste.blocks += 1;
                site.waste.from_ns = site.waste.from_ns.max(from_ns);
                site.waste.until_ns = site.waste.until_ns.min(until_ns);
                site.waste.idle_ns = site.waste.idle_ns.max(idle);
            }
        }
    }
    sites.into_values().collect()
}

fn in_one_function(data: &Attribution<'_>, one: StackId, other: StackId) -> bool {
    let [one, other] = [one, other].map(|stack| match allocation_site(data, stack) {
        AllocationSite::User(frame) => Some((frame.file_or_empty(), frame.function_or_empty())),
        _ => None,
    });
    one.is_some_and(|(file, function)| !file.is_empty() && !function.is_empty()) && one == other
}

impl WastingSite {
    fn of((kind, line, use_line, kernel): &SiteKey) -> Self {
        let (line, use_line, kernel) = (line.clone(), use_line.clone(), kernel.clone());
        let waste = Waste { kind: *kind, line, use_line, kernel, until_ns: u64::MAX, ..Waste::default() };
        Self { waste, ..Self::default() }
    }
}

/// The line of each stack; an empty text for [`StackId::NONE`].
fn lines<'a>(data: &'a Attribution<'_>) -> Memo<'a, StackId, String> {
    Memo::of(move |stack: StackId| if stack == StackId::NONE { String::new() } else { line_label(data, stack.0) })
}

/// All blocks at the device's peak that are past their last use or never used, by site, largest first. Even the
/// smallest site has a row. Nothing is replayed, so [`Waste::saves`] is 0. `None` if uses were not recorded, or if the
/// log has lost records.
pub fn waste_at_peak(device: &DeviceView<'_>) -> Option<Vec<Waste>> {
    let log = LogReplay::with_uses(device)?;
    let mut rows: Vec<Waste> = sites(device, &log, None).into_iter().map(|site| site.waste).collect();
    rows.retain(|row| row.bytes > 0 && row.kind != WasteKind::Early);
    rows.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.line.cmp(&b.line)));
    Some(rows)
}
