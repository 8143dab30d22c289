//! In-place forms: outputs of element-wise operators that could be written over an input that nothing uses any more.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU64;

use super::replay::{LogChange, ReplayedLog};
use super::{LineCache, MovedBlock, WasteKind, followed};
use crate::attribute::operator;
use crate::snapshot::{BlockUses, DeviceSnapshot, Record, RecordKind, SnapshotData};

/// Outputs of one line that could be written over the inputs from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InPlace {
    /// The line that allocates the outputs.
    pub line: String,
    /// The line that allocates the inputs.
    pub input_line: String,
    /// The element-wise operator of the outputs' allocation: `relu`.
    pub operator: String,
    /// Bytes of the outputs that are live at the peak together with their inputs.
    pub bytes: u64,
    /// Number of these outputs.
    pub blocks: u64,
    /// Reduction of the peak, in addition to the rows before this one and to the rows of [`waste`](super::waste).
    pub saves: u64,
    /// The peak then, at most.
    pub peak_without: u64,
}

/// Operators of candle whose result has at each place the value of one place of each input.
const ELEMENT_WISE: [&str; 32] = [
    "abs",
    "add",
    "affine",
    "broadcast_add",
    "broadcast_div",
    "broadcast_maximum",
    "broadcast_minimum",
    "broadcast_mul",
    "broadcast_sub",
    "ceil",
    "cos",
    "div",
    "elu",
    "erf",
    "exp",
    "floor",
    "gelu",
    "gelu_erf",
    "log",
    "maximum",
    "minimum",
    "mul",
    "neg",
    "powf",
    "recip",
    "relu",
    "round",
    "silu",
    "sin",
    "sqr",
    "sqrt",
    "sub",
];
/// A row that saves less than this part of the peak is left out.
const LEAST_PART: u64 = 100;
/// Number of rows.
const MOST_ROWS: usize = 3;

/// In-place forms at the device's peak. Each row is the pair of lines that reduces the peak most once
/// [`waste`](super::waste) and the rows before it are followed. Empty if uses were not recorded, or the log has lost records.
pub fn in_place(data: &SnapshotData, device: &DeviceSnapshot) -> Vec<InPlace> {
    let Some(log) = ReplayedLog::with_uses(device) else { return Vec::new() };
    let (_, needed, moved) = followed(data, device, &log);
    let sites = Pairs { data, device, log: &log, moved }.sites();
    let (rows, _) = log.greedy(needed, sites, (device.peak.bytes / LEAST_PART, MOST_ROWS));
    rows.into_iter().map(|(row, saves, peak_without)| InPlace { saves, peak_without, ..row }).collect()
}

struct Pairs<'a> {
    data: &'a SnapshotData,
    device: &'a DeviceSnapshot,
    log: &'a ReplayedLog,
    moved: HashMap<(NonZeroU64, WasteKind), usize>,
}

impl Pairs<'_> {
    fn sites(&self) -> Vec<(InPlace, Vec<LogChange>)> {
        let mut ending: HashMap<u64, Vec<(&BlockUses, &Record)>> = HashMap::new();
        for uses in &self.device.uses {
            if let (Some(last), Some(record)) = (uses.known_last(), self.record(uses)) {
                ending.entry(last.operation).or_default().push((uses, record));
            }
        }
        let mut lines = LineCache::of_data(self.data);
        let mut sites: BTreeMap<_, (InPlace, Vec<LogChange>)> = BTreeMap::new();
        let peak = self.device.peak.seq.and_then(|seq| self.log.allocated.get(&seq)).copied();
        for output in &self.device.uses {
            let Some((record, name)) = self.record(output).and_then(|record| Some((record, self.operator(record)?)))
            else {
                continue;
            };
            let inputs = output.known_first().and_then(|first| ending.get(&first.operation));
            let fits = |(input, of): &&(&BlockUses, &Record)| {
                input.seq < output.seq && of.size == record.size && !self.sees_a_backward_pass(input)
            };
            let ends = |input: &BlockUses| self.freed(input).min(self.freed(output));
            let best = inputs.into_iter().flatten().filter(fits).max_by_key(|(input, _)| ends(input));
            let (Some((input, of)), Some(from)) = (best, self.allocated(output)) else { continue };
            let until = ends(input);
            let key = (lines.of(record.stack), lines.of(of.stack), name);
            let (row, changes) = sites.entry(key).or_insert_with_key(|(line, input_line, operator)| {
                let (line, input_line, operator) = (line.clone(), input_line.clone(), (*operator).to_owned());
                (InPlace { line, input_line, operator, bytes: 0, blocks: 0, saves: 0, peak_without: 0 }, Vec::new())
            });
            if peak.is_some_and(|peak| (from..until).contains(&peak)) {
                row.bytes = row.bytes.saturating_add(record.size);
                row.blocks += 1;
            }
            let size = i64::try_from(record.size).unwrap_or(i64::MAX);
            changes.extend([(from, -size), (until, size)]);
        }
        sites.into_values().filter(|(row, _)| row.bytes > 0).collect()
    }

    fn record(&self, uses: &BlockUses) -> Option<&Record> {
        self.device.records.get(*self.log.allocated.get(&uses.seq)?)
    }

    fn operator(&self, record: &Record) -> Option<&str> {
        let found = operator(self.data, record.stack).filter(|found| !found.is_backward)?;
        [found.root, found.leaf].iter().all(|name| ELEMENT_WISE.contains(name)).then_some(found.root)
    }

    /// A graph holds the block, so the operator must be one that candle can differentiate.
    fn sees_a_backward_pass(&self, uses: &BlockUses) -> bool {
        let Some(from) = self.log.allocated.get(&uses.seq) else { return true };
        let Some(until) = self.log.freed_at(uses.seq) else { return true };
        let live = self.device.records.get(*from..until).unwrap_or_default();
        live.iter()
            .filter(|record| record.kind == RecordKind::Alloc)
            .any(|record| operator(self.data, record.stack).is_some_and(|found| found.is_backward))
    }

    fn allocated(&self, uses: &BlockUses) -> Option<usize> {
        self.moved.get(&(uses.seq, WasteKind::Early)).or_else(|| self.log.allocated.get(&uses.seq)).copied()
    }

    fn freed(&self, uses: &BlockUses) -> usize {
        let moved = self.moved.get(&(uses.seq, WasteKind::PastLastUse)).copied();
        moved.or_else(|| self.log.freed_at(uses.seq)).unwrap_or(usize::MAX)
    }
}

/// Where the advice of a row moves a block's free, or its alloc.
pub(super) fn moved_to(blocks: &[MovedBlock]) -> HashMap<(NonZeroU64, WasteKind), usize> {
    blocks.iter().map(|(seq, kind, at)| ((*seq, *kind), *at)).collect()
}
