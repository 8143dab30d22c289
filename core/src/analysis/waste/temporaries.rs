//! Workspace of an operator: blocks that a call of it allocates and frees again, many times its inputs and outputs.

use std::collections::HashMap;
use std::num::NonZeroU64;

use super::replay::{LogChange, ReplayedLog};
use crate::analysis::{Call, calls, line_and_callers};
use crate::attribute::operator;
use crate::snapshot::{BlockUses, DeviceSnapshot, Record, RecordKind, SnapshotData};

/// An operator whose temporaries make up much of the peak and are many times its inputs and outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorTemporaries {
    /// The operation that the program called: `cumsum`.
    pub operator: String,
    /// The line that calls it.
    pub line: String,
    /// Bytes of the temporaries that are live at the peak.
    pub bytes: u64,
    /// Number of these blocks.
    pub blocks: u64,
    /// Bytes of what the call leaves.
    pub outputs: u64,
    /// Bytes that the call reads, at most.
    pub inputs: u64,
    /// Uses say exactly what the call reads; otherwise `inputs` is the largest block that it could have read.
    pub are_inputs_known: bool,
    /// Reduction of the peak without the temporaries of all calls by this line.
    pub saves: u64,
    /// The peak then.
    pub peak_without: u64,
}

impl OperatorTemporaries {
    /// Temporaries are reported from this many times the inputs and outputs on,
    pub const LEAST_TIMES: u64 = 4;
    /// and if they save at least this part of the peak.
    pub const LEAST_PART: u64 = 10;

    /// The temporaries in multiples of inputs and outputs.
    pub fn times(&self) -> u64 {
        self.bytes / self.outputs.saturating_add(self.inputs).max(1)
    }
}

/// Records after the peak in which a temporary is expected to be freed.
const SOON: usize = 256;

/// The operator call at the device's peak, if its temporaries are many times its inputs and outputs. `None` in a sample, and if
/// the log has lost records.
pub fn operator_temporaries(data: &SnapshotData, device: &DeviceSnapshot) -> Option<OperatorTemporaries> {
    let at = device.records.iter().position(|record| is_peak(device, record))?;
    if !may_have_temporaries(data, device, at) {
        return None;
    }
    let log = ReplayedLog::of(device)?;
    let calls = calls(data, device);
    let thread = device.records.get(at)?.thread;
    let is_here = |call: &&Call<'_>| call.thread == thread && call.records.contains(&at);
    let call = calls.iter().find(|call| is_here(call) && !call.is_backward)?;
    let line = line_and_callers(data, call.stack, 0).concat();
    let is_same =
        |other: &&Call<'_>| other.operator == call.operator && line_and_callers(data, other.stack, 0).concat() == line;
    let changes = calls.iter().filter(is_same).flat_map(|call| Workspace::of((data, device), &log, call).changes());
    let mut changes: Vec<LogChange> = changes.collect();
    changes.sort_unstable();
    let without = u64::try_from(log.peak(&changes)).unwrap_or(0);
    let workspace = Workspace::of((data, device), &log, call);
    let (inputs, are_inputs_known) = inputs(device, &log, call);
    let at_peak = workspace.temporaries.iter().filter(|(from, until, _)| (*from..*until).contains(&at));
    let (bytes, blocks) =
        at_peak.fold((0u64, 0), |(bytes, blocks), (.., size)| (bytes.saturating_add(*size), blocks + 1));
    let found = OperatorTemporaries {
        operator: call.operator.to_owned(),
        line,
        bytes,
        blocks,
        outputs: workspace.outputs,
        inputs,
        are_inputs_known,
        saves: device.peak.bytes.saturating_sub(without),
        peak_without: without,
    };
    let is_large = found.saves > 0 && found.saves >= device.peak.bytes / OperatorTemporaries::LEAST_PART;
    (is_large && found.times() >= OperatorTemporaries::LEAST_TIMES).then_some(found)
}

fn is_peak(device: &DeviceSnapshot, record: &Record) -> bool {
    record.kind == RecordKind::Alloc && record.alloc_seq.is_some() && record.alloc_seq == device.peak.seq
}

/// A cheap test before the log is split into calls: do blocks of the operator at the peak go soon, and are they large?
fn may_have_temporaries(data: &SnapshotData, device: &DeviceSnapshot, at: usize) -> bool {
    let Some(root) = device.records.get(at).and_then(|record| operator(data, record.stack)) else { return false };
    if root.is_backward {
        return false;
    }
    let soon = device.records.iter().skip(at).take(SOON).filter(|record| record.kind == RecordKind::Free);
    let of_root = soon.filter(|record| operator(data, record.alloc_stack).is_some_and(|found| found.root == root.root));
    let bytes = of_root.fold(0u64, |sum, record| sum.saturating_add(record.size));
    bytes > 0 && bytes >= device.peak.bytes / OperatorTemporaries::LEAST_PART
}

/// What a call allocates.
#[derive(Default)]
struct Workspace {
    /// Records of the alloc and the free, and bytes.
    temporaries: Vec<(usize, usize, u64)>,
    /// Bytes of blocks that outlive the call.
    outputs: u64,
}

impl Workspace {
    /// Without stacks of frees, a call seems to end before it frees its last blocks, or at the second of two equal allocs.
    /// So the frees of its thread up to the next alloc by another operator count, too; if they free all of the call's blocks,
    /// the last one is the result.
    fn of((data, device): (&SnapshotData, &DeviceSnapshot), log: &ReplayedLog, call: &Call<'_>) -> Self {
        let of_thread = |record: &&Record| record.thread == call.thread && record.kind == RecordKind::Alloc;
        let is_own = |record: &Record| operator(data, record.stack).is_some_and(|found| found.root == call.operator);
        let after = device
            .records
            .iter()
            .skip(call.records.end)
            .take_while(|record| !of_thread(record) || is_own(record))
            .count();
        let end = call.records.end + after;
        let own = call.records.clone().filter_map(|at| Some((at, device.records.get(at).filter(of_thread)?)));
        let freed = |record: &Record| record.alloc_seq.and_then(|seq| log.freed_at(seq)).filter(|freed| *freed < end);
        let blocks: Vec<(usize, Option<usize>, u64)> =
            own.map(|(at, record)| (at, freed(record), record.size)).collect();
        let last = blocks.iter().map(|(_, freed, _)| *freed).collect::<Option<Vec<_>>>();
        let result = last.and_then(|freed| freed.into_iter().max()).filter(|last| *last >= call.records.end);
        let mut workspace = Self::default();
        for (at, freed, size) in blocks {
            match freed.filter(|freed| Some(*freed) != result) {
                Some(freed) => workspace.temporaries.push((at, freed, size)),
                None => workspace.outputs = workspace.outputs.saturating_add(size),
            }
        }
        workspace
    }

    fn changes(self) -> impl Iterator<Item = LogChange> {
        let signed = |size: u64| i64::try_from(size).unwrap_or(i64::MAX);
        self.temporaries.into_iter().flat_map(move |(from, until, size)| [(from, -signed(size)), (until, signed(size))])
    }
}

/// Bytes that a call reads, at most, and whether uses say so exactly.
///
/// A block whose first or last use is in the call is an input. A block that is used before and after the call may be one:
/// the largest of those counts, as an operator with temporaries rarely has two large inputs.
fn inputs(device: &DeviceSnapshot, log: &ReplayedLog, call: &Call<'_>) -> (u64, bool) {
    let mut seqs = call.records.clone().filter_map(|at| device.records.get(at)).filter(|r| r.kind == RecordKind::Alloc);
    let first = seqs.clone().next().and_then(|record| record.alloc_seq).map_or(0, NonZeroU64::get);
    let last = seqs.next_back().and_then(|record| record.alloc_seq).map_or(0, NonZeroU64::get);
    let uses: HashMap<NonZeroU64, &BlockUses> = device.uses.iter().map(|uses| (uses.seq, uses)).collect();
    let (mut read, mut perhaps) = (0u64, 0u64);
    for (seq, size) in log.live_before(device, call.records.start) {
        match seq.and_then(|seq| uses.get(&seq)).map(|uses| is_read(uses, first, last)) {
            Some(Some(true)) => read = read.saturating_add(size),
            Some(Some(false)) => {}
            Some(None) | None => perhaps = perhaps.max(size),
        }
    }
    (read.saturating_add(perhaps), perhaps == 0)
}

/// Does a block have a use between these allocs? `None` if that is not known.
fn is_read(uses: &BlockUses, first: u64, last: u64) -> Option<bool> {
    let within = |alloc: u64| (first..=last).contains(&alloc);
    if uses.first.is_some_and(|used| within(used.after_alloc)) || uses.last.is_some_and(|used| within(used.after_alloc))
    {
        return Some(true);
    }
    let is_later = uses.known_first().is_some_and(|used| used.after_alloc > last);
    let is_earlier = uses.known_last().is_some_and(|used| used.after_alloc < first);
    let is_idle = uses.idle.is_some_and(|idle| !uses.escaped && idle.from_alloc < first && last < idle.to_alloc);
    (uses.is_unused() || is_later || is_earlier || is_idle).then_some(false)
}
