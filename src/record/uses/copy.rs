//! Copies of the table of uses in ordinary memory, with the recorder's own stack ids.

use memtrace_core::snapshot::{BlockUses, Device, GpuWork};

use super::table::UseTable;

/// Position of a reader of uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UseCursor {
    /// Freed blocks read.
    finished: u64,
    /// Operations seen.
    operations: u64,
}

impl UseTable {
    pub(super) fn end(&self) -> UseCursor {
        UseCursor { finished: self.finished.pushed(), operations: self.totals.operations }
    }

    /// Uses of a device's blocks: those freed since the cursor, then the live ones that were used since, or are new.
    pub(super) fn copy(&self, device: Device, cursor: UseCursor) -> Vec<BlockUses> {
        let finished = self.finished.since(cursor.finished).1.filter(|(of, _)| *of == device).map(|(_, uses)| *uses);
        let is_new = |uses: &BlockUses| {
            uses.allocated_at >= cursor.operations
                || uses.last.is_some_and(|last| last.operation > cursor.operations)
                || uses.escaped
        };
        let live = self.slots.iter().flatten().filter(|block| block.device == device && is_new(&block.uses));
        let live = live.map(|block| BlockUses { last_opaque: self.opaque_since(&block.uses), ..block.uses });
        finished.chain(live).collect()
    }

    pub(super) fn work(&self, from: usize) -> GpuWork {
        let mut totals = self.totals;
        totals.lost = self.finished.overwritten();
        GpuWork { kernels: self.kernels.names_from(from), totals, opaque: self.kernels.opaque() }
    }
}
