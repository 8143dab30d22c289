//! Physical memory with a handle and without an address (`cuMemCreate`). It is freed once it has no references and no
//! mappings.

use super::{SimMachine, pool_index};
use crate::code::{Answer, INVALID_VALUE, demand};
use crate::faults::CallKind;
use crate::history::{BlockKind, HistoryRecord, Op};

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct AllocationProperties {
    pub(crate) allocation: u32,
    /// The types of handles with which the memory can be shared with other processes.
    pub(crate) handles: u32,
    pub(crate) location: u32,
    pub(crate) device: i32,
    pub(crate) of_windows: u64,
    pub(crate) flags: u64,
}

impl AllocationProperties {
    /// `CU_MEM_CREATE_USAGE_TILE_POOL`, in the 16 bits that begin with the third byte.
    pub(super) fn is_tile_pool(&self) -> bool {
        self.flags >> 16 & 1 != 0
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct VirtualMemory {
    pub(crate) device: usize,
    pub(crate) size: u64,
    /// Virtual or imported.
    pub(crate) kind: BlockKind,
    pub(crate) properties: AllocationProperties,
    references: u32,
    pub(super) mappings: u32,
}

/// The granularity of sizes and addresses.
pub(crate) const GRANULARITY: u64 = 2 << 20;

impl VirtualMemory {
    /// The pool whose memory it takes; imported memory takes none.
    fn pool(&self) -> Option<usize> {
        (self.kind == BlockKind::Virtual).then(|| pool_index(self.device, self.kind))
    }

    fn record(&self, op: Op, address: u64, context: u64) -> HistoryRecord {
        HistoryRecord { context, address, size: self.size, ..HistoryRecord::new(op, self.kind, self.device) }
    }
}

impl SimMachine {
    /// Creates memory of the kind `Virtual`, or `Imported`: memory of another process, which takes no memory of the
    /// device.
    pub(crate) fn create_virtual(
        &mut self,
        kind: BlockKind,
        size: u64,
        properties: AllocationProperties,
        context: u64,
    ) -> Answer<u64> {
        let device = self.device(properties.device)?;
        let memory = VirtualMemory { device, size, kind, properties, references: 1, mappings: 0 };
        self.allocate_logged(memory.record(Op::Alloc, 0, context), memory.pool(), |machine| {
            machine.take_virtual(&memory)?;
            let handle = machine.new_handle();
            machine.virtuals.insert(handle, memory);
            Ok(handle)
        })
    }

    fn take_virtual(&mut self, memory: &VirtualMemory) -> Answer {
        demand(memory.size > 0 && memory.size.is_multiple_of(GRANULARITY))?;
        memory.pool().map_or(Ok(()), |pool| self.take_directly(pool, memory.size))
    }

    pub(crate) fn virtual_memory(&self, handle: u64) -> Answer<VirtualMemory> {
        self.virtuals.get(&handle).filter(|memory| memory.references > 0).copied().ok_or(INVALID_VALUE)
    }

    /// Adds a reference, also to memory that only has mappings.
    pub(crate) fn retain_virtual(&mut self, handle: u64) -> Answer<u64> {
        self.virtuals.get_mut(&handle).ok_or(INVALID_VALUE)?.references += 1;
        Ok(handle)
    }

    pub(crate) fn release_virtual(&mut self, handle: u64, context: u64) -> Answer {
        let memory = self.virtual_memory(handle)?;
        let check = self.script.check(CallKind::Free, 0);
        if check.is_err() {
            self.record(memory.record(Op::Free, handle, context), check, memory.pool());
            return check;
        }
        self.virtuals.get_mut(&handle).ok_or(INVALID_VALUE)?.references -= 1;
        self.drop_if_unused(handle, context)
    }

    pub(super) fn drop_if_unused(&mut self, handle: u64, context: u64) -> Answer {
        let memory = *self.virtuals.get(&handle).ok_or(INVALID_VALUE)?;
        if memory.references > 0 || memory.mappings > 0 {
            return Ok(());
        }
        self.virtuals.remove(&handle);
        if let Some(pool) = memory.pool() {
            self.give_directly(pool, memory.size)?;
        }
        self.record(memory.record(Op::Free, handle, context), Ok(()), memory.pool());
        Ok(())
    }
}
