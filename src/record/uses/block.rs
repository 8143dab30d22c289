//! A live block with its uses so far.

use std::num::NonZeroU64;

use memtrace_core::snapshot::{Block, BlockUse, BlockUses, DeadWrite, Device, IdleTime, KernelId, Operands};

use super::touched::UseAccess;
use crate::record::event_site::EventSite;

/// A write that nothing has read yet: its range, its operation, and the kernel that wrote.
#[derive(Clone, Copy, Debug)]
struct UnreadWrite {
    start: u64,
    end: u64,
    operation: u64,
    by: KernelId,
}

/// The older blocks that an operation uses: their devices, and the log positions of their allocs. There is room for
/// the block itself and for one operand too many.
pub(super) type OperandNumbers = [Option<(Device, NonZeroU64)>; Operands::MOST + 2];

#[derive(Debug)]
pub(super) struct UsedBlock {
    pub(super) device: Device,
    pub(super) address: u64,
    pub(super) size: u64,
    pub(super) uses: BlockUses,
    unread: Option<UnreadWrite>,
    /// The block contains addresses of other blocks.
    pub(super) holds: bool,
}

/// The properties of an operation, known when it is applied.
#[derive(Clone, Copy, Debug)]
pub(super) struct Applied {
    pub(super) operation: u64,
    pub(super) time_ns: u64,
    pub(super) kernel: KernelId,
    pub(super) site: EventSite,
}

impl UsedBlock {
    pub(super) fn new(device: Device, block: &Block, uses: BlockUses) -> Self {
        Self { device, address: block.address, size: block.size, uses, unread: None, holds: false }
    }

    /// Whether operations still make this block: its uses are few, and no block was allocated on the device since its
    /// first use.
    pub(super) fn is_made(&self, last_alloc: u64) -> bool {
        let uses = &self.uses;
        let is_few = uses.count <= Operands::MOST as u64 && uses.operands.are_known();
        is_few && uses.first.is_some_and(|first| first.after_alloc == last_alloc)
    }

    /// Adds what an operation used together with this block.
    pub(super) fn add_operands(&mut self, numbers: &OperandNumbers) {
        for (_, operand) in numbers.iter().flatten().filter(|(device, _)| *device == self.device) {
            self.uses.operands.add(self.uses.seq, *operand);
        }
    }

    /// Notes a use. Returns the time since the previous use, if nothing can have used the block in between.
    pub(super) fn used(
        &mut self,
        access: UseAccess,
        by: &Applied,
        (after_alloc, frees_after): (u64, u64),
        last_opaque: u64,
    ) -> Option<IdleTime> {
        let Applied { operation, time_ns, kernel, site } = *by;
        let used =
            BlockUse { operation, time_ns, after_alloc, frees_after, stack: site.stack, kernel, stream: site.stream };
        self.note_write(access, &used, last_opaque);
        let uses = &mut self.uses;
        let is_new = uses.last.is_none_or(|last| last.operation != operation);
        if is_new {
            uses.count += 1;
            uses.reads += u64::from(access.only_reads());
            uses.writes += u64::from(matches!(access, UseAccess::Write(..) | UseAccess::WriteRows));
        }
        let idle = uses.last.filter(|last| is_new && last_opaque <= last.operation).map(|last| IdleTime {
            operations: operation - last.operation - 1,
            from_ns: last.time_ns,
            to_ns: time_ns,
            from_alloc: last.after_alloc,
            to_alloc: after_alloc,
        });
        let longest = uses.idle.map_or(0, |idle| idle.operations);
        uses.idle = idle.filter(|idle| idle.operations > longest).or(uses.idle);
        if uses.first.is_none() {
            uses.first = Some(used);
            uses.opaque_first = last_opaque > uses.allocated_at;
        }
        uses.last = Some(used);
        idle
    }

    fn note_write(&mut self, access: UseAccess, used: &BlockUse, last_opaque: u64) {
        let UseAccess::Write(start, size) = access else {
            self.unread = None;
            return;
        };
        let end = start.saturating_add(size);
        let covers =
            |before: &UnreadWrite| start <= before.start && before.end <= end && last_opaque < before.operation;
        if let Some(before) = self.unread.filter(covers).filter(|_| !self.uses.escaped) {
            let dead = DeadWrite {
                bytes: before.end - before.start,
                first: before.by,
                second: used.kernel,
                stack: used.stack,
            };
            self.uses.dead_write.get_or_insert(dead);
        }
        self.unread = Some(UnreadWrite { start, end, operation: used.operation, by: used.kernel });
    }
}
