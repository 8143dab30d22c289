//! In-place forms: outputs of element-wise operators that could overwrite an input that is not used any more.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::num::NonZeroU64;

use super::replay::LogReplay;
use super::{MovedBlocks, WasteKind, followed, lines};
use crate::analysis::absence::Absence;
use crate::attribute::{Attribution, Elementwise, elementwise, operator};
use crate::memo::Memo;
use crate::recording::DeviceView;
use crate::snapshot::{BlockUse, BlockUses, Record, RecordKind};

/// Outputs of an element-wise operator, called by one line, that do not need their own memory.
///
/// Each output has an input of the same size whose last use is the output's first use. Sizes and frees come from the
/// log, the operator from the stack of the output's allocation, and the rest from recorded uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InPlace {
    /// The line that calls the operator, and so allocates the outputs.
    pub line: String,
    /// The line that allocates the inputs.
    pub input_line: String,
    /// The operation that the program called: `silu`.
    pub operator: String,
    /// Number of tensors that the operator reads: 1 or 2.
    pub operands: u32,
    /// Bytes of the outputs that are live at the peak together with their inputs.
    pub bytes: u64,
    /// Number of these outputs.
    pub blocks: u64,
    /// Reduction of the peak in bytes, in addition to the rows before this one and those of [`waste`](super::waste).
    pub saves: u64,
    /// An upper bound of the resulting peak, in bytes.
    pub peak_without: u64,
}

impl InPlace {
    /// A row that saves less than the peak divided by this is left out.
    pub const LEAST_PART: u64 = 10;
    /// The most rows.
    const MOST_ROWS: usize = 3;

    fn of((line, input_line, operator, operands): InPlaceKey<'_>) -> Self {
        let operator = operator.to_owned();
        Self { line, input_line, operator, operands, bytes: 0, blocks: 0, saves: 0, peak_without: 0 }
    }
}

/// Of the blocks of one size with the same last use, this many are considered. An element-wise operator reads two.
const MOST_INPUTS: usize = 64;

type InPlaceKey<'a> = (String, String, &'a str, u32);

/// In-place forms at the device's peak. Each row is the site that reduces the peak most after [`waste`](super::waste)
/// and the rows before it are fixed. Empty if uses were not recorded, or if the log has lost records.
///
/// An input that lives to the end of the recording, or during a backward pass, may be needed, so it is left out.
pub fn in_place(device: &DeviceView<'_>) -> Vec<InPlace> {
    let Some(log) = LogReplay::with_uses(device) else { return Vec::new() };
    let pairs = pairs(device, &log);
    if pairs.is_empty() {
        return Vec::new();
    }
    let (_, needed, moved) = followed(device, &log);
    let mut sites = sites(device, &log, &moved, pairs);
    sites.retain(|(row, _)| row.bytes > 0);
    sites.sort_by(|(a, _), (b, _)| b.bytes.cmp(&a.bytes).then_with(|| a.line.cmp(&b.line)));
    let least = device.peak.bytes / InPlace::LEAST_PART;
    let (rows, _) = log.greedy(needed, sites, (least, InPlace::MOST_ROWS));
    rows.into_iter().map(|(row, saves, peak_without)| InPlace { saves, peak_without, ..row }).collect()
}

/// All in-place forms by site, regardless of the peak. Outputs that [`waste`](super::waste) would allocate later are
/// left out.
pub(super) fn all(device: &DeviceView<'_>, log: &LogReplay) -> Vec<(InPlace, Vec<Absence>)> {
    let mut pairs = pairs(device, log);
    pairs.retain(|pair| log.early(pair.output.0).is_none());
    sites(device, log, &MovedBlocks::new(), pairs)
}

/// A block and the record of its allocation.
type Allocated<'a> = (&'a BlockUses, &'a Record);

/// An output, and the inputs that it could overwrite.
struct Pair<'a> {
    output: Allocated<'a>,
    elementwise: Elementwise<'a>,
    inputs: Vec<Allocated<'a>>,
}

fn pairs<'a>(device: &'a DeviceView<'a>, log: &LogReplay) -> Vec<Pair<'a>> {
    let with_record = |uses: &'a BlockUses| Some((uses, device.records.get(log.allocated_at(uses.seq)?)?));
    let passes = backward_allocs(device);
    let mut ended: HashMap<(u64, u64), Vec<Allocated<'a>>> = HashMap::new();
    for (uses, record) in device.uses.iter().filter_map(with_record) {
        if let Some(last) = uses.known_last().filter(|_| !may_be_needed(log, &passes, uses)) {
            let ended = ended.entry((last.operation, record.size)).or_default();
            ended.extend((ended.len() < MOST_INPUTS).then_some((uses, record)));
        }
    }
    let mut elementwise = Memo::of(|stack| elementwise(device.data(), stack));
    let pair = |(uses, record): Allocated<'a>| {
        let first = uses.known_first().filter(|first| is_kernel(device.data(), first))?;
        let is_input = |(input, _): &&Allocated<'a>| {
            input.seq < uses.seq && input.first.is_some_and(|used| used.operation < first.operation)
        };
        let inputs: Vec<_> = ended.get(&(first.operation, record.size))?.iter().filter(is_input).copied().collect();
        let elementwise = elementwise.get(record.stack)?;
        (!inputs.is_empty()).then_some(Pair { output: (uses, record), elementwise, inputs })
    };
    device.uses.iter().filter_map(with_record).filter_map(pair).collect()
}

/// Whether the use is one kernel: copies and fills are no operators, and the launch of a graph is many kernels.
fn is_kernel(data: &Attribution<'_>, used: &BlockUse) -> bool {
    let name = data.gpu_work.as_ref().map_or("", |work| work.kernel(used.kernel));
    !["cuMem", "cuGraph"].iter().any(|other| name.starts_with(other))
}

/// The records of a backward pass's allocations.
fn backward_allocs(device: &DeviceView<'_>) -> Vec<usize> {
    let mut backward = Memo::of(|stack| operator(device.data(), stack).is_some_and(|found| found.is_backward));
    let allocs = device.records.iter().enumerate().filter(|(_, record)| record.kind == RecordKind::Alloc);
    allocs.filter(|(_, record)| backward.get(record.stack)).map(|(at, _)| at).collect()
}

/// Whether an input may be needed after its last recorded use. A block that lives to the end may be used later. A
/// block that lives during a backward pass may be part of the graph, and candle does not differentiate operators that
/// work in place.
fn may_be_needed(log: &LogReplay, passes: &[usize], uses: &BlockUses) -> bool {
    let (Some(from), Some(until)) = (log.allocated_at(uses.seq), log.freed_at(uses.seq)) else { return true };
    let next = passes.partition_point(|at| *at < from);
    passes.get(next).is_some_and(|at| *at < until)
}

/// Groups pairs by site. In the replay, an input is absent from the alloc of the output that overwrites it.
fn sites(
    device: &DeviceView<'_>,
    log: &LogReplay,
    moved: &MovedBlocks,
    pairs: Vec<Pair<'_>>,
) -> Vec<(InPlace, Vec<Absence>)> {
    let Some(peak) = device.peak.seq.and_then(|seq| log.allocated_at(seq)) else { return Vec::new() };
    let moved = |uses: &BlockUses, kind| moved.get(&(uses.seq, kind)).copied();
    let start = |uses: &BlockUses| moved(uses, WasteKind::Early).or_else(|| log.allocated_at(uses.seq));
    let freed = |uses: &BlockUses| moved(uses, WasteKind::PastLastUse).or_else(|| log.freed_at(uses.seq));
    let both = |input: &BlockUses, output: &BlockUses| {
        let from = start(input)?.max(start(output)?);
        let until = freed(input).unwrap_or(usize::MAX).min(freed(output).unwrap_or(usize::MAX));
        (from < until).then_some((from, until))
    };
    let mut lines = lines(device.data());
    let mut sites: BTreeMap<InPlaceKey<'_>, (InPlace, Vec<Absence>)> = BTreeMap::new();
    // Each input takes at most one output.
    let mut taken: HashSet<NonZeroU64> = HashSet::new();
    for Pair { output: (uses, record), elementwise, inputs } in pairs {
        let free = inputs.into_iter().filter(|(input, _)| !taken.contains(&input.seq));
        let both = free.filter_map(|(input, of)| Some((both(input, uses)?, input, of)));
        let Some(((from, until), input, of)) = both.max_by_key(|((_, until), ..)| *until) else { continue };
        taken.insert(input.seq);
        let Elementwise { operator, operands } = elementwise;
        let key = (lines.get(record.stack), lines.get(of.stack), operator, operands);
        let (row, absences) = sites.entry(key).or_insert_with_key(|key| (InPlace::of(key.clone()), Vec::new()));
        if (from..until).contains(&peak) {
            row.bytes = row.bytes.saturating_add(record.size);
            row.blocks += 1;
        }
        absences.push(Absence { seq: input.seq, from, until, size: record.size });
    }
    sites.into_values().collect()
}
