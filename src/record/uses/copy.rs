//! Copies of the table of uses in ordinary memory. They use the recorder's own stack ids.

use memtrace_core::snapshot::{BlockIdle, BlockUses, Device, GpuWork};

use super::table::UseTable;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UseCursor {
    /// Number of freed blocks that were read.
    finished: u64,
    /// Number of operations so far.
    operations: u64,
    /// Number of idle times that were read.
    idle: u64,
}

/// The known uses of a device's blocks.
#[derive(Clone, Debug, Default)]
pub(crate) struct UseCopy {
    /// Not sorted. If a block has several entries, in this copy or in later ones, the last one counts.
    pub(crate) blocks: Vec<BlockUses>,
    /// Sorted by when they ended.
    pub(crate) idle: Vec<BlockIdle>,
}

impl UseTable {
    pub(super) fn end(&self) -> UseCursor {
        let (finished, idle) = (self.finished.pushed(), self.idle.pushed());
        UseCursor { finished, operations: self.totals.operations, idle }
    }

    /// Uses of a device's blocks since the cursor: of freed blocks, then of live ones that were used since or are new.
    pub(super) fn copy(&self, device: Device, cursor: UseCursor) -> UseCopy {
        let finished = self.finished.since(cursor.finished).1.filter(|(of, _)| *of == device).map(|(_, uses)| *uses);
        let is_new = |uses: &BlockUses| {
            uses.allocated_at >= cursor.operations
                || uses.last.is_some_and(|last| last.operation > cursor.operations)
                || uses.escaped
        };
        let live = self.slots.iter().flatten().filter(|block| block.device == device && is_new(&block.uses));
        let live = live.map(|block| BlockUses { last_opaque: self.opaque_since(&block.uses), ..block.uses });
        let idle = self.idle.since(cursor.idle).1.filter(|(of, _)| *of == device).map(|(_, idle)| *idle);
        UseCopy { blocks: finished.chain(live).collect(), idle: idle.collect() }
    }

    pub(super) fn work(&self, from: usize) -> GpuWork {
        let mut totals = self.totals;
        totals.lost = self.finished.overwritten();
        let (opaque, local) = (self.kernels.opaque(), self.kernels.local());
        GpuWork { kernels: self.kernels.names_from(from), totals, opaque, local }
    }
}
