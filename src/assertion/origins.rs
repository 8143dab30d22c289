//! Source lines of measured blocks.

use std::collections::HashMap;

use memtrace_core::analysis::line_and_callers;
use memtrace_core::analysis::runs::{BlockOrigin, is_the_harnesses};
use memtrace_core::attribute::Attribution;
use memtrace_core::snapshot::{Device, SnapshotData, StackId};

use super::measure::Measured;
use crate::session::Snapshot;

/// The stacks of a measurement, resolved.
#[derive(Debug)]
pub(super) struct NamedOrigins {
    data: Snapshot,
    stacks: HashMap<BlockOrigin, StackId>,
    /// For each origin (a stack on a device), the one that stands for all origins of its line.
    lines: HashMap<BlockOrigin, BlockOrigin>,
}

impl NamedOrigins {
    pub(super) fn of(measured: &Measured) -> Self {
        let data = measured.snapshot();
        let stacks = in_snapshot(measured, &data);
        let attribution = Attribution::new(&data);
        let mut first: HashMap<(Device, Vec<String>), BlockOrigin> = HashMap::new();
        let one_of = |(origin, stack): (&BlockOrigin, &StackId)| {
            let line = (origin.device, line_and_callers(&attribution, *stack, 0));
            (*origin, *first.entry(line).or_insert(*origin))
        };
        let lines = stacks.iter().map(one_of).collect();
        drop(attribution);
        Self { stacks, lines, data }
    }

    /// The origin that stands for all stacks of this origin's line.
    pub(super) fn line(&self, origin: &BlockOrigin) -> BlockOrigin {
        self.lines.get(origin).copied().unwrap_or(*origin)
    }

    pub(super) fn are_the_harnesses(&self, origin: &BlockOrigin) -> bool {
        self.stacks.get(origin).is_some_and(|stack| is_the_harnesses(&self.data, *stack))
    }

    /// Like [`Self::line`], but `None` for the test harness's blocks, as
    /// [`leaks_of_its_own`](memtrace_core::analysis::runs::leaks_of_its_own) expects.
    pub(super) fn counted_line(&self, origin: &BlockOrigin) -> Option<BlockOrigin> {
        (!self.are_the_harnesses(origin)).then(|| self.line(origin))
    }
}

/// The stack in the snapshot of each origin with blocks that are live now or at the peak.
pub(super) fn in_snapshot(measured: &Measured, data: &SnapshotData) -> HashMap<BlockOrigin, StackId> {
    let mut found = HashMap::new();
    for (seen, device) in measured.seen().iter().filter_map(|seen| Some((seen, data.device(seen.device)?))) {
        // The snapshot keeps the order of the ledger's blocks.
        let blocks = seen.ledger.live.iter().zip(&device.live);
        for (old, new) in blocks.chain(seen.ledger.peak.blocks.iter().zip(&device.peak.blocks)) {
            found.insert(BlockOrigin { device: seen.device, stack: old.stack, of_helper: false }, new.stack);
        }
    }
    found
}
