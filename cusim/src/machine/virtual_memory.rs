//! Physical memory with a handle and without an address (`cuMemCreate`). It is freed once it has no references and no
//! mappings.

use super::{Machine, pool_index};
use crate::code::{Answer, INVALID_VALUE};
use crate::faults::CallKind;
use crate::history::{BlockKind, HistoryRecord, Op};

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct AllocationProperties {
    pub(crate) allocation: u32,
    /// Handle types that it can be exported as.
    pub(crate) handles: u32,
    pub(crate) location: u32,
    pub(crate) device: i32,
    pub(crate) of_windows: u64,
    pub(crate) flags: u64,
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

impl Machine {
    pub(crate) fn create_virtual(&mut self, size: u64, properties: AllocationProperties, context: u64) -> Answer<u64> {
        self.add_virtual(BlockKind::Virtual, size, properties, context)
    }

    /// Memory of another process, which takes no memory of the device.
    pub(crate) fn import_virtual(&mut self, size: u64, properties: AllocationProperties, context: u64) -> Answer<u64> {
        self.add_virtual(BlockKind::Imported, size, properties, context)
    }

    fn add_virtual(
        &mut self,
        kind: BlockKind,
        size: u64,
        properties: AllocationProperties,
        context: u64,
    ) -> Answer<u64> {
        let device = self.device(properties.device)?;
        let memory = VirtualMemory { device, size, kind, properties, references: 1, mappings: 0 };
        let answer = self.script.check(CallKind::Alloc, size).and_then(|()| self.take_virtual(&memory));
        let handle = answer.map_or(0, |()| self.new_handle());
        if answer.is_ok() {
            self.virtuals.insert(handle, memory);
        }
        self.record_virtual(Op::Alloc, &memory, handle, context, answer);
        answer.map(|()| handle)
    }

    fn take_virtual(&mut self, memory: &VirtualMemory) -> Answer {
        if memory.size == 0 || !memory.size.is_multiple_of(GRANULARITY) {
            return Err(INVALID_VALUE);
        }
        if memory.kind == BlockKind::Imported {
            return Ok(());
        }
        self.take_directly(pool_index(memory.device, BlockKind::Virtual), memory.size)
    }

    /// Memory with a valid handle.
    pub(crate) fn virtual_memory(&self, handle: u64) -> Answer<VirtualMemory> {
        self.virtuals.get(&handle).filter(|memory| memory.references > 0).copied().ok_or(INVALID_VALUE)
    }

    /// Adds a reference, also to memory that is only mapped.
    pub(crate) fn retain_virtual(&mut self, handle: u64) -> Answer<u64> {
        self.virtuals.get_mut(&handle).ok_or(INVALID_VALUE)?.references += 1;
        Ok(handle)
    }

    pub(crate) fn release_virtual(&mut self, handle: u64, context: u64) -> Answer {
        let memory = self.virtual_memory(handle)?;
        let check = self.script.check(CallKind::Free, 0);
        if check.is_err() {
            self.record_virtual(Op::Free, &memory, handle, context, check);
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
        if memory.kind == BlockKind::Virtual {
            self.give_directly(pool_index(memory.device, BlockKind::Virtual), memory.size)?;
        }
        self.record_virtual(Op::Free, &memory, handle, context, Ok(()));
        Ok(())
    }

    fn record_virtual(&mut self, op: Op, memory: &VirtualMemory, address: u64, context: u64, answer: Answer) {
        let VirtualMemory { device, size, kind, .. } = *memory;
        let pool = (kind == BlockKind::Virtual).then(|| pool_index(device, kind));
        self.record(HistoryRecord { context, address, size, ..HistoryRecord::new(op, kind, device) }, answer, pool);
    }
}
