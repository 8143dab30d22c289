//! Memory that does not count for assertions: one-time initialization, and a thread pool's own threads and queues.
//!
//! The test that runs first pays for the initialization of statics and thread-locals, so this does not count against
//! limits and baselines. If an allocation's call stack has a function such as `OnceLock`'s, then a cell (a value that
//! is set once) is initialized. But the cell may be a static, or lie on the heap or on a thread's stack. The cell is
//! taken for a static or a thread-local only if static or thread-local memory points to a block that the initialization
//! allocated. Then everything that the initialization allocated is left out, even if it was freed again.
//!
//! Memory that keeps growing is a leak wherever it is kept. So [`leak`](super::leak) and [`growth`](super::growth)
//! leave out only the text that the test harness keeps.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::num::NonZeroU64;

use memtrace_core::analysis::runs::is_the_harnesses;
use memtrace_core::snapshot::{
    Device, DeviceSnapshot, Frame, Record, RecordKind, Replay, SnapshotData, StackId, ThreadId,
};
use memtrace_core::units::Bytes;

use super::measure::Measured;
use crate::record::measure::held_by_statics;
use crate::session::Snapshot;

/// Functions that initialize something once, and the name of that thing in messages.
const ONE_TIME: [(&str, &str); 5] = [
    ("std::sys::thread_local::native::lazy::", "a thread's own variable"),
    ("std::sys::sync::once::", "a static"),
    ("std::sync::once_lock::OnceLock", "a static"),
    ("std::sync::lazy_lock::LazyLock", "a static"),
    ("once_cell::imp::", "a static"),
];

/// Source files of pools: a crate, and a part of the file's path.
const POOLS: [(&str, &str); 2] = [("/rayon-core-", ""), ("/tokio-", "/src/runtime/blocking/pool.rs")];

/// The blocks of a device that do not count, by the numbers of their allocations, with the reason.
pub(super) type LeftOutBlocks = HashMap<NonZeroU64, &'static str>;

/// The blocks that do not count. The map is empty if the log has lost its beginning.
pub(super) fn left_out(data: &SnapshotData, device: &DeviceSnapshot) -> LeftOutBlocks {
    if device.overwritten > 0 {
        return LeftOutBlocks::new();
    }
    let allocs = || device.records.iter().filter(|record| record.kind == RecordKind::Alloc);
    let mut by_stack = HashMap::new();
    let mut of_stack = |stack| *by_stack.entry(stack).or_insert_with(|| kept_by_others(data, stack));
    let by_others = allocs().filter_map(|record| Some((record.alloc_seq?, of_stack(record.alloc_stack)?)));
    let mut blocks: LeftOutBlocks = by_others.collect();
    let is_live: HashSet<NonZeroU64> = device.live.iter().filter_map(|block| block.seq).collect();
    for call in
        Initialization::proven(data, allocs(), |record| record.alloc_seq.is_some_and(|seq| is_live.contains(&seq)))
    {
        let seqs = call.allocs.iter().chain(&call.inner).filter_map(|record| record.alloc_seq);
        seqs.for_each(|seq| _ = blocks.entry(seq).or_insert(call.what));
    }
    blocks
}

/// One call of a function that initializes something once.
#[derive(Debug)]
struct Initialization<'a> {
    what: &'static str,
    at: CallSite,
    /// Records of the allocations that this call made itself.
    allocs: Vec<&'a Record>,
    /// Records of the allocations by other initializations that ran inside this call. A static that holds one of these
    /// proves nothing for this call.
    inner: Vec<&'a Record>,
}

/// A stack, and how many of its outermost calls lead to the initialization.
#[derive(Clone, Copy, Debug)]
struct CallSite {
    stack: StackId,
    calls: usize,
}

impl CallSite {
    fn is_the_same(self, other: Self, data: &SnapshotData) -> bool {
        let outer = |site: Self| data.stacks.addresses(site.stack).rev().take(site.calls);
        self.calls == other.calls && outer(self).eq(outer(other))
    }
}

impl<'a> Initialization<'a> {
    /// The calls that allocated a block to which static or thread-local memory still points.
    fn proven(
        data: &SnapshotData,
        allocs: impl Iterator<Item = &'a Record>,
        is_live: impl Fn(&Record) -> bool,
    ) -> Vec<Self> {
        let mut calls = Self::all(data, allocs);
        let live = calls.iter().flat_map(|call| &call.allocs).filter(|record| is_live(record));
        let held = held_by_statics(live.map(|record| record.address..record.address + record.size).collect());
        calls.retain(|call| {
            let live = || call.allocs.iter().filter(|record| is_live(record));
            let is_held = |record: &&&Record| held.contains(&record.address);
            let loose: HashSet<StackId> =
                live().filter(|record| !is_held(record)).map(|record| record.alloc_stack).collect();
            // Two cells that are filled one after the other look like one call. So a block that a static holds is
            // evidence only if all live blocks with the same stack are held, too.
            live().any(|record| is_held(&record) && !loose.contains(&record.alloc_stack))
        });
        calls
    }

    /// Groups the allocations into calls. One call is a series of allocations of one thread under the same callers,
    /// without other allocations of the thread in between.
    fn all(data: &SnapshotData, allocs: impl Iterator<Item = &'a Record>) -> Vec<Self> {
        let (mut calls, mut known) = (Vec::<Self>::new(), HashMap::new());
        // For each thread, the calls that it is in, the outermost first.
        let mut open: HashMap<ThreadId, Vec<usize>> = HashMap::new();
        for record in allocs {
            let stack = record.alloc_stack;
            let sites = known.entry(stack).or_insert_with(|| one_time(data, stack));
            let open = open.entry(record.thread).or_default();
            let is_the_same = |(call, (_, at)): &(&usize, &(&str, CallSite))| calls[**call].at.is_the_same(*at, data);
            let same = open.iter().zip(&*sites).take_while(is_the_same).count();
            open.truncate(same);
            for (what, at) in sites.iter().skip(same).copied() {
                open.push(calls.len());
                calls.push(Self { what, at, allocs: Vec::new(), inner: Vec::new() });
            }
            let Some((own, outer)) = open.split_last() else { continue };
            calls[*own].allocs.push(record);
            outer.iter().for_each(|call| calls[*call].inner.push(record));
        }
        calls
    }
}

/// The calls on a stack that initialize something once, the outermost first. Consecutive frames of such functions are
/// one call.
fn one_time(data: &SnapshotData, stack: StackId) -> Vec<(&'static str, CallSite)> {
    let listed = |frame: &Frame| ONE_TIME.iter().find(|(function, _)| frame.function_or_empty().contains(function));
    let frames = |call: &memtrace_core::snapshot::CodeAddress| {
        data.stacks.frames.get(call.frames.start as usize..call.frames.end as usize).unwrap_or_default()
    };
    let has = |function: &str| data.stacks.frames(stack).any(|frame| frame.function_or_empty().contains(function));
    let named = |what: &'static str| match what {
        _ if has("rayon_core::registry::global_registry") => "rayon's threads",
        "a thread's own variable" if has("gemm_common") => "gemm's buffer for a thread",
        what => what,
    };
    let (mut sites, mut before) = (Vec::new(), false);
    for (at, call) in data.stacks.addresses(stack).rev().enumerate() {
        let found = frames(call).iter().find_map(listed);
        if let (Some((_, what)), false) = (found, before) {
            sites.push((named(what), CallSite { stack, calls: at + 1 }));
        }
        before = found.is_some();
    }
    sites
}

/// Why a block with this stack does not count, if the test harness or a thread pool keeps it for itself.
fn kept_by_others(data: &SnapshotData, stack: StackId) -> Option<&'static str> {
    if is_the_harnesses(data, stack) {
        return Some("text that the test harness keeps");
    }
    is_pools(data, stack).then_some("a pool's threads and queues")
}

/// Whether in this stack a pool starts a thread, or adds to its own queue. Such a queue only contains pointers.
fn is_pools(data: &SnapshotData, stack: StackId) -> bool {
    let file = |frame: &Frame| frame.file_or_empty().to_owned();
    let mut frames = data.stacks.frames(stack).map(file).peekable();
    let mut is_own = false;
    while let Some(inner) =
        frames.next_if(|file| file.is_empty() || file.contains("/library/") || file.contains("/crossbeam-"))
    {
        is_own |= inner.contains("/crossbeam-") || inner.contains("/library/std/src/thread/");
    }
    let is_of = |file: &String| POOLS.iter().any(|(package, path)| file.contains(package) && file.contains(path));
    is_own && frames.next().is_some_and(|file| is_of(&file))
}

/// A measurement, as taken and without one-time initialization.
#[derive(Debug)]
pub(super) struct Needed {
    pub(super) all: Snapshot,
    /// The snapshot's data without one-time initialization.
    pub(super) data: SnapshotData,
    /// Bytes that were live at the peak and do not count, by the reason for this, the most bytes first.
    pub(super) left_out: Vec<(&'static str, u64)>,
}

impl Needed {
    pub(super) fn of(measured: &Measured) -> Self {
        let all = measured.snapshot();
        let mut data = SnapshotData::clone(&all);
        let mut sums = BTreeMap::new();
        let mut devices = std::mem::take(&mut data.devices);
        for device in &mut devices {
            let blocks = left_out(&data, device);
            let what_for = |seq: Option<NonZeroU64>| seq.and_then(|seq| blocks.get(&seq));
            let at_peak = device.peak.blocks.iter().filter_map(|block| Some((*what_for(block.seq)?, block.size)));
            at_peak.for_each(|(what, size)| *sums.entry(what).or_default() += size);
            without(device, &blocks);
        }
        data.devices = devices;
        let mut left_out: Vec<(&'static str, u64)> = sums.into_iter().collect();
        left_out.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        Self { data, left_out, all }
    }

    /// A note on the one-time initialization at the peak, if there was any.
    pub(super) fn setup(&self) -> Option<String> {
        let parts: Vec<String> =
            self.left_out.iter().map(|(what, bytes)| format!("{} for {what}", Bytes(*bytes))).collect();
        (!parts.is_empty()).then(|| format!("one-time initialization, not counted: {}", parts.join(", ")))
    }

    /// A device's peak.
    pub(super) fn peak(&self, device: Device) -> u64 {
        self.data.device(device).map_or(0, |device| device.peak.bytes)
    }
}

/// Takes blocks out of a device's log, and finds the peak again. Does nothing if all blocks at the peak count.
fn without(device: &mut DeviceSnapshot, blocks: &LeftOutBlocks) {
    let counts = |seq: Option<NonZeroU64>| seq.is_none_or(|seq| !blocks.contains_key(&seq));
    if device.peak.blocks.iter().all(|block| counts(block.seq)) {
        return;
    }
    device.records.retain(|record| counts(record.alloc_seq));
    device.live.retain(|block| counts(block.seq));
    find_peak(device);
}

/// Finds the peak by replaying the log, which must be complete.
fn find_peak(device: &mut DeviceSnapshot) {
    let (mut live, mut most, mut at) = (Replay::default(), 0, 0);
    for (number, record) in device.records.iter().enumerate() {
        live.apply(record);
        if live.bytes() > most {
            (most, at) = (live.bytes(), number + 1);
        }
    }
    let mut live = Replay::default();
    device.records.iter().take(at).for_each(|record| live.apply(record));
    let blocks = live.blocks();
    (device.peak.seq, device.peak.time_ns) = blocks.last().map_or((None, 0), |block| (block.seq, block.time_ns));
    device.peak.bytes = most;
    device.peak.blocks = blocks;
}

#[cfg(test)]
mod tests {
    use super::super::with_stacks;
    use super::*;

    #[test]
    fn initializations_have_the_names_of_what_they_initialize() {
        const CELL: &str = "std::sync::once_lock::OnceLock<T>::initialize";
        const OWN: &str = "std::sys::thread_local::native::lazy::Storage<T,D>::get_or_init_slow";
        let data = with_stacks(&[
            &["alloc", CELL, "main"],
            &[
                "alloc",
                "rayon_core::registry::global_registry::{{closure}}",
                CELL,
                "std::sys::sync::once::Once",
                "main",
            ],
            &["alloc", OWN, "main"],
            &["alloc", OWN, "gemm_common::gemm::gemm_basic", "main"],
            &["alloc", CELL, "app::read", OWN, "main"],
            &["alloc", "main"],
        ]);
        let found = |stack| one_time(&data, StackId(stack)).iter().map(|(what, _)| *what).collect::<Vec<_>>();
        assert_eq!(found(1), ["a static"]);
        assert_eq!(found(2), ["rayon's threads"]);
        assert_eq!(found(3), ["a thread's own variable"]);
        assert_eq!(found(4), ["gemm's buffer for a thread"]);
        assert_eq!(found(5), ["a thread's own variable", "a static"]);
        assert_eq!(found(6), [""; 0]);
    }
}
