//! Workspace of an operator: blocks that a call allocates and frees again, many times larger than its inputs and
//! outputs.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use super::lines;
use super::replay::LogReplay;
use crate::analysis::absence::LogChange;
use crate::analysis::{Call, calls, line_label, log};
use crate::attribute::{Attribution, operator, squared_by};
use crate::hashed::{HashMap, by_key};
use crate::memo::Memo;
use crate::recording::DeviceView;
use crate::snapshot::{BlockUses, DeviceSnapshot, Record, RecordKind, StackId, ThreadId};

/// An operator whose temporaries are a large part of the peak and many times larger than its inputs and outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorTemporaries {
    /// The operation that the program called: `cumsum`.
    pub operator: String,
    /// The line that calls it.
    pub line: String,
    /// Bytes of the temporaries that are live at the peak.
    pub bytes: u64,
    /// Number of the temporaries that are live at the peak.
    pub blocks: u64,
    /// Bytes of the blocks that outlive the call.
    pub outputs: u64,
    /// An upper bound of the bytes that the call reads.
    pub inputs: u64,
    /// Whether recorded uses tell exactly what the call reads. If not, `inputs` also contains the largest block that
    /// the call may have read.
    pub are_inputs_known: bool,
    /// Reduction of the peak if all calls by this line worked on [`PARTS`](Self::PARTS) parts of the tensor in turn.
    pub saves: u64,
    /// The peak after this reduction.
    pub peak_without: u64,
}

impl OperatorTemporaries {
    /// The temporaries must be at least this many times as large as the inputs and outputs together.
    pub const LEAST_TIMES: u64 = 4;
    /// Work in parts must save at least the peak divided by this.
    pub const LEAST_PART: u64 = 10;

    /// Number of parts. Each part needs the temporaries divided by this, besides the outputs of all parts.
    pub const PARTS: u64 = 16;

    /// The temporaries as a multiple of the inputs and outputs.
    pub fn times(&self) -> u64 {
        self.bytes / self.outputs.saturating_add(self.inputs).max(1)
    }
}

/// Temporaries are expected to be freed within this many records after the peak.
const SOON: usize = 256;

/// The operator call at the device's peak, if its temporaries are many times larger than its inputs and outputs. `None`
/// in a sample, or if the log has lost records.
pub fn operator_temporaries(device: &DeviceView<'_>) -> Option<OperatorTemporaries> {
    let found = at_peak(device)?;
    let is_large = found.saves > 0 && found.saves >= device.peak.bytes / OperatorTemporaries::LEAST_PART;
    (is_large && found.times() >= OperatorTemporaries::LEAST_TIMES).then_some(found)
}

/// The peak if the operator call at the peak, and all calls of the operator by the same line, worked on
/// [`OperatorTemporaries::PARTS`] parts.
pub(crate) fn peak_in_parts(device: &DeviceView<'_>) -> Option<u64> {
    at_peak(device).map(|found| found.peak_without)
}

fn at_peak(device: &DeviceView<'_>) -> Option<OperatorTemporaries> {
    let data = device.data();
    let at = log::peak_record(device)?;
    if !may_have_temporaries(device, at) {
        return None;
    }
    let log = LogReplay::of(device)?;
    let calls = calls(device);
    let thread = device.records.get(at)?.thread;
    let is_here = |call: &&Call<'_>| call.thread == thread && call.records.contains(&at);
    let call = calls.iter().find(|call| is_here(call) && !call.is_backward)?;
    let line = line_label(data, call.stack.0);
    let mut is_line = Memo::of(|stack: StackId| line_label(data, stack.0) == line);
    let allocs = AllocsByThread::of(device, call.operator);
    let same = calls.iter().filter(|other| other.operator == call.operator && is_line.get(other.stack));
    let parts = parts(data, call.stack);
    let changes = same.flat_map(|call| Workspace::of(device, &log, &allocs, call).in_parts(call.records.start, parts));
    let without = log.peak_with(changes);
    let workspace = Workspace::of(device, &log, &allocs, call);
    let (inputs, are_inputs_known) = inputs(device, &log, call);
    let live = workspace.temporaries.iter().filter(|(from, until, _)| (*from..*until).contains(&at));
    let (bytes, blocks) = live.fold((0u64, 0), |(bytes, blocks), (.., size)| (bytes.saturating_add(*size), blocks + 1));
    Some(OperatorTemporaries {
        operator: call.operator.to_owned(),
        line: line.clone(),
        bytes,
        blocks,
        outputs: workspace.bytes_of_outputs(),
        inputs,
        are_inputs_known,
        saves: device.peak.bytes.saturating_sub(without),
        peak_without: without,
    })
}

/// All calls of an operator by one line, changed to work on parts.
pub(super) struct InParts {
    pub(super) row: OperatorTemporaries,
    pub(super) changes: Vec<LogChange>,
    /// Blocks that the calls allocate.
    pub(super) blocks: Vec<NonZeroU64>,
}

/// The lines whose calls have temporaries many times larger than their inputs and outputs, regardless of the peak.
/// `bytes` and `blocks` of a row count all temporaries of the line's largest call.
pub(super) fn in_parts(device: &DeviceView<'_>, log: &LogReplay, least: u64) -> Vec<InParts> {
    let calls = calls(device);
    let mut lines = lines(device.data());
    let forward = calls.iter().filter(|call| !call.is_backward);
    let sites = BTreeMap::from_iter(by_key(forward.map(|call| ((call.operator, lines.get(call.stack)), call))));
    let (mut allocs, mut found) = (HashMap::default(), Vec::new());
    for ((operator, line), calls) in sites {
        let allocs = allocs.entry(operator).or_insert_with(|| AllocsByThread::of(device, operator));
        found.extend(of_site(device, log, allocs, least.max(1), (operator, line, &calls)));
    }
    found.retain(|site| site.row.times() >= OperatorTemporaries::LEAST_TIMES);
    found
}

/// The calls of one operator by one line. `None` if the largest one has less than `least` bytes of temporaries.
fn of_site(
    device: &DeviceView<'_>,
    log: &LogReplay,
    allocs: &AllocsByThread,
    least: u64,
    (operator, line, calls): (&str, String, &[&Call<'_>]),
) -> Option<InParts> {
    let bytes =
        |workspace: &Workspace| workspace.temporaries.iter().fold(0u64, |sum, (.., size)| sum.saturating_add(*size));
    let all: Vec<(&Call<'_>, Workspace)> =
        calls.iter().map(|call| (*call, Workspace::of(device, log, allocs, call))).collect();
    let (call, largest) = all.iter().max_by_key(|(_, workspace)| bytes(workspace))?;
    // The search for the inputs reads the whole log.
    if bytes(largest) < least {
        return None;
    }
    let (inputs, are_inputs_known) = inputs(device, log, call);
    let row = OperatorTemporaries {
        operator: operator.to_owned(),
        line,
        bytes: bytes(largest),
        blocks: largest.temporaries.len() as u64,
        outputs: largest.bytes_of_outputs(),
        inputs,
        are_inputs_known,
        saves: 0,
        peak_without: 0,
    };
    let parts = parts(device.data(), call.stack);
    let blocks = all.iter().flat_map(|(call, _)| allocs.within(call));
    let blocks = blocks.filter_map(|at| device.records.get(*at)?.alloc_seq).collect();
    let changes = all.into_iter().flat_map(|(call, workspace)| workspace.in_parts(call.records.start, parts)).collect();
    Some(InParts { row, changes, blocks })
}

/// The factor by which work in parts shrinks the temporaries. If they are a square matrix, a part with half of the
/// length needs only a quarter of the memory.
fn parts(data: &Attribution<'_>, stack: StackId) -> u64 {
    OperatorTemporaries::PARTS.pow(if squared_by(data, stack).is_some() { 2 } else { 1 })
}

/// A cheap test before the log is split into calls: whether blocks of the operator at the peak are large and freed
/// soon.
fn may_have_temporaries(device: &DeviceView<'_>, at: usize) -> bool {
    let Some(root) = device.records.get(at).and_then(|record| operator(device.data(), record.stack)) else {
        return false;
    };
    if root.is_backward {
        return false;
    }
    let mut is_own = of_operator(device.data(), root.root);
    let soon = device.records.iter().skip(at).take(SOON).filter(|record| record.kind == RecordKind::Free);
    let of_root = soon.filter(|record| is_own.get(record.alloc_stack));
    let bytes = of_root.fold(0u64, |sum, record| sum.saturating_add(record.size));
    bytes > 0 && bytes >= device.peak.bytes / OperatorTemporaries::LEAST_PART
}

/// Tests whether a stack belongs to this operator.
fn of_operator<'a>(data: &'a Attribution<'a>, root: &'a str) -> Memo<'a, StackId, bool> {
    Memo::of(move |stack| operator(data, stack).is_some_and(|found| found.root == root))
}

/// Blocks that a call allocates.
#[derive(Default)]
struct Workspace {
    /// For each temporary: the records of its alloc and of its free, and its bytes.
    temporaries: Vec<(usize, usize, u64)>,
    /// The alloc and the bytes of each block that outlives the call.
    outputs: Vec<(usize, u64)>,
}

/// The allocs of each thread, as sorted positions in the log.
struct AllocsByThread {
    all: HashMap<ThreadId, Vec<usize>>,
    /// The allocs by other operators, and those outside of all operators.
    foreign: HashMap<ThreadId, Vec<usize>>,
}

impl AllocsByThread {
    fn of(device: &DeviceView<'_>, root: &str) -> Self {
        let mut is_own = of_operator(device.data(), root);
        let allocs = || device.records.iter().enumerate().filter(|(_, record)| record.kind == RecordKind::Alloc);
        let of_thread = |(at, record): (usize, &Record)| (record.thread, at);
        let foreign = by_key(allocs().filter(|(_, record)| !is_own.get(record.stack)).map(of_thread));
        Self { all: by_key(allocs().map(of_thread)), foreign }
    }

    /// The allocs of a call's thread between its first and its last record.
    fn within(&self, call: &Call<'_>) -> &[usize] {
        let all = self.all.get(&call.thread).map_or(&[][..], Vec::as_slice);
        let place = |at: usize| all.partition_point(|alloc| *alloc < at);
        all.get(place(call.records.start)..place(call.records.end)).unwrap_or_default()
    }

    /// The thread's first alloc by another operator after the call.
    fn foreign_after(&self, call: &Call<'_>) -> usize {
        let foreign = self.foreign.get(&call.thread).map_or(&[][..], Vec::as_slice);
        let next = foreign.partition_point(|alloc| *alloc < call.records.end);
        foreign.get(next).copied().unwrap_or(usize::MAX)
    }
}

impl Workspace {
    /// If frees have no stacks, a call seems to end before it frees its last blocks, or at the second of two allocs
    /// with the same stack. So frees count up to the thread's next alloc by another operator. If all of the call's
    /// blocks are freed by then, and the last of them after the call seemed to end, this last block is the result.
    fn of(device: &DeviceSnapshot, log: &LogReplay, allocs: &AllocsByThread, call: &Call<'_>) -> Self {
        let end = allocs.foreign_after(call);
        let own = allocs.within(call).iter().filter_map(|at| Some((*at, device.records.get(*at)?)));
        let freed = |record: &Record| record.alloc_seq.and_then(|seq| log.freed_at(seq)).filter(|freed| *freed < end);
        let blocks: Vec<(usize, Option<usize>, u64)> =
            own.map(|(at, record)| (at, freed(record), record.size)).collect();
        let last = blocks.iter().map(|(_, freed, _)| *freed).collect::<Option<Vec<_>>>();
        let result = last.and_then(|freed| freed.into_iter().max()).filter(|last| *last >= call.records.end);
        let mut workspace = Self::default();
        for (at, freed, size) in blocks {
            match freed.filter(|freed| Some(*freed) != result) {
                Some(freed) => workspace.temporaries.push((at, freed, size)),
                None => workspace.outputs.push((at, size)),
            }
        }
        workspace
    }

    fn bytes_of_outputs(&self) -> u64 {
        self.outputs.iter().fold(0, |sum, (_, size)| sum.saturating_add(*size))
    }

    /// How the total of live bytes changes if the call works on parts: each part has its share of the temporaries, and
    /// the outputs are live from the beginning.
    fn in_parts(self, begin: usize, parts: u64) -> impl Iterator<Item = LogChange> {
        let signed = |size: u64| i64::try_from(size).unwrap_or(i64::MAX);
        let saved = move |size: u64| signed(size - size.div_ceil(parts));
        let temporaries = self
            .temporaries
            .into_iter()
            .flat_map(move |(from, until, size)| [(from, -saved(size)), (until, saved(size))]);
        let outputs = self.outputs.into_iter().flat_map(move |(at, size)| [(begin, signed(size)), (at, -signed(size))]);
        temporaries.chain(outputs)
    }
}

/// An upper bound of the bytes that a call reads, and whether it is exact.
///
/// A block whose first or last use is in the call is an input. A block that is used before and after the call may be an
/// input, and so may a block whose uses are not known. Of such blocks, only the largest counts, because an operator
/// with temporaries rarely has two large inputs.
fn inputs(device: &DeviceSnapshot, log: &LogReplay, call: &Call<'_>) -> (u64, bool) {
    let mut seqs = call.records.clone().filter_map(|at| device.records.get(at)).filter(|r| r.kind == RecordKind::Alloc);
    let first = seqs.clone().next().and_then(|record| record.alloc_seq).map_or(0, NonZeroU64::get);
    let last = seqs.next_back().and_then(|record| record.alloc_seq).map_or(0, NonZeroU64::get);
    let uses: HashMap<NonZeroU64, &BlockUses> = device.uses.iter().map(|uses| (uses.seq, uses)).collect();
    let (mut read, mut perhaps) = (0u64, 0u64);
    for (seq, size) in log.live_before(device, call.records.start) {
        match seq.and_then(|seq| uses.get(&seq)).map(|uses| is_read(device, uses, first, last)) {
            Some(Some(true)) => read = read.saturating_add(size),
            Some(Some(false)) => {}
            Some(None) | None => perhaps = perhaps.max(size),
        }
    }
    (read.saturating_add(perhaps), perhaps == 0)
}

/// Whether a block has a use between these allocs; `None` if unknown.
fn is_read(device: &DeviceSnapshot, uses: &BlockUses, first: u64, last: u64) -> Option<bool> {
    let within = |alloc: u64| (first..=last).contains(&alloc);
    if uses.first.is_some_and(|used| within(used.after_alloc)) || uses.last.is_some_and(|used| within(used.after_alloc))
    {
        return Some(true);
    }
    let is_later = uses.known_first().is_some_and(|used| used.after_alloc > last);
    let is_earlier = uses.known_last().is_some_and(|used| used.after_alloc < first);
    let is_idle = !uses.escaped && device.idle_of(uses).any(|idle| idle.from_alloc < first && last < idle.to_alloc);
    (uses.is_unused() || is_later || is_earlier || is_idle).then_some(false)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::snapshot::SnapshotData;
    use crate::snapshot::testing::{Story, frame, registry, stacks};

    /// Stacks 1 and 2 are `cumsum` of one line, stack 3 is `relu`, stack 4 is no operator.
    fn story(ops: &[(u32, u32, usize)]) -> SnapshotData {
        let core = registry("candle-core-0.11.1/src/tensor.rs");
        let frames = vec![
            frame("candle_core::tensor::Tensor::matmul", &core, 1),
            frame("candle_core::tensor::Tensor::tril", &core, 2),
            frame("candle_core::tensor::Tensor::cumsum", &core, 3),
            frame("candle_core::tensor::Tensor::relu", &core, 4),
            frame("net::main", "/home/u/net/src/main.rs", 9),
        ];
        let mut story = Story::cuda(0);
        story.stacks(stacks(frames, [&[0, 2, 4][..], &[1, 2, 4], &[3, 4], &[4]]));
        let mut live = Vec::new();
        for (time_ns, &(thread, stack, nth)) in (1u64..).zip(ops) {
            story.at(time_ns).thread(thread);
            if stack < 5 {
                story.alloc(time_ns, 100 + time_ns).on(StackId(stack));
                live.push(time_ns);
            } else if nth < live.len() {
                story.free(live.remove(live.len() - 1 - nth));
            }
        }
        story.build()
    }

    /// Blocks that a call allocates, computed as [`Workspace::of`] is described: each call looks at the whole log.
    fn by_definition(data: &SnapshotData, log: &LogReplay, call: &Call<'_>) -> (Vec<(usize, usize, u64)>, u64) {
        let records = &data.devices[0].records;
        let is_alloc = |at: usize| records[at].thread == call.thread && records[at].kind == RecordKind::Alloc;
        let is_foreign = |at: usize| {
            operator(&Attribution::new(data), records[at].stack).is_none_or(|found| found.root != call.operator)
        };
        let end = (call.records.end..records.len()).find(|at| is_alloc(*at) && is_foreign(*at));
        let freed = |at: usize| log.freed_at(records[at].alloc_seq?).filter(|freed| end.is_none_or(|end| *freed < end));
        let own: Vec<usize> = call.records.clone().filter(|at| is_alloc(*at)).collect();
        let last = own.iter().map(|at| freed(*at)).max().flatten();
        let all_go = own.iter().all(|at| freed(*at).is_some());
        let result = last.filter(|last| all_go && *last >= call.records.end);
        let (mut temporaries, mut outputs) = (Vec::new(), 0);
        for at in own {
            match freed(at).filter(|freed| Some(*freed) != result) {
                Some(freed) => temporaries.push((at, freed, records[at].size)),
                None => outputs += records[at].size,
            }
        }
        (temporaries, outputs)
    }

    proptest! {
        #![proptest_config(crate::random::programs(500))]

        #[test]
        fn the_workspace_of_each_call_is_that_of_a_look_at_the_whole_log(
            ops in prop::collection::vec((1..4u32, 0..8u32, 0..4usize), 0..80),
        ) {
            let data = story(&ops);
            let device = &DeviceView::of(&data, &data.devices[0]);
            let Some(log) = LogReplay::of(device) else { return Ok(()) };
            for call in calls(device) {
                let found = Workspace::of(device, &log, &AllocsByThread::of(device, call.operator), &call);
                prop_assert_eq!((found.temporaries.clone(), found.bytes_of_outputs()), by_definition(&data, &log, &call));
            }
        }
    }

    /// A scan of the log for each call would take a minute here.
    #[test]
    fn two_hundred_thousand_calls_of_one_line_are_no_trouble() {
        let ops: Vec<(u32, u32, usize)> = (0..400_000).map(|at| (1, if at % 2 == 0 { 1 } else { 5 }, 1)).collect();
        let data = story(&ops);
        let found = operator_temporaries(&DeviceView::of(&data, &data.devices[0]));
        assert_eq!(found, None, "each call only has its result");
    }
}
