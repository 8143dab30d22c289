//! Physical memory with a handle, apart from addresses: `cuMemCreate`. It goes when every reference to it
//! is released and it is mapped nowhere.

use super::{Machine, POOLS_OF_A_DEVICE};
use crate::code::{Answer, INVALID_VALUE};
use crate::faults::Call;
use crate::history::{Kind, Op, Record};

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Properties {
    pub(crate) allocation: u32,
    /// Types of handles that it can be exported as.
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
    pub(crate) kind: Kind,
    pub(crate) properties: Properties,
    references: u32,
    pub(super) mappings: u32,
}

/// Sizes and addresses are multiples of this.
pub(crate) const GRANULARITY: u64 = 2 << 20;

impl Machine {
    pub(crate) fn create_virtual(&mut self, size: u64, properties: Properties, context: u64) -> Answer<u64> {
        let device = self.device(properties.device)?;
        let answer = self.script.check(Call::Alloc, size).and_then(|()| {
            check_size(size)?;
            self.take_directly(virtual_pool(device), size)
        });
        let memory = VirtualMemory { device, size, kind: Kind::Virtual, properties, references: 1, mappings: 0 };
        let handle = answer.map_or(0, |()| self.keep_virtual(memory));
        self.record_virtual(Op::Alloc, &memory, handle, context, answer);
        answer.map(|()| handle)
    }

    /// Memory that belongs to somebody else: nothing is taken of the device.
    pub(crate) fn import_virtual(&mut self, size: u64, properties: Properties, context: u64) -> Answer<u64> {
        let device = self.device(properties.device)?;
        let answer = self.script.check(Call::Alloc, size).and_then(|()| check_size(size));
        let memory = VirtualMemory { device, size, kind: Kind::Imported, properties, references: 1, mappings: 0 };
        let handle = answer.map_or(0, |()| self.keep_virtual(memory));
        self.record_virtual(Op::Alloc, &memory, handle, context, answer);
        answer.map(|()| handle)
    }

    fn keep_virtual(&mut self, memory: VirtualMemory) -> u64 {
        let handle = self.new_handle();
        self.virtuals.insert(handle, memory);
        handle
    }

    /// Memory whose handle somebody has.
    pub(crate) fn virtual_memory(&self, handle: u64) -> Answer<VirtualMemory> {
        self.virtuals.get(&handle).filter(|memory| memory.references > 0).copied().ok_or(INVALID_VALUE)
    }

    /// One more reference; also to memory that is only mapped.
    pub(crate) fn retain_virtual(&mut self, handle: u64) -> Answer<u64> {
        self.virtuals.get_mut(&handle).ok_or(INVALID_VALUE)?.references += 1;
        Ok(handle)
    }

    pub(crate) fn release_virtual(&mut self, handle: u64, context: u64) -> Answer {
        let memory = self.virtual_memory(handle)?;
        let check = self.script.check(Call::Free, 0);
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
        if memory.kind == Kind::Virtual {
            self.give_directly(virtual_pool(memory.device), memory.size)?;
        }
        self.record_virtual(Op::Free, &memory, handle, context, Ok(()));
        Ok(())
    }

    fn record_virtual(&mut self, op: Op, memory: &VirtualMemory, address: u64, context: u64, answer: Answer) {
        let VirtualMemory { device, size, kind, .. } = *memory;
        let pool = (kind == Kind::Virtual).then(|| virtual_pool(device));
        let device = device as i32;
        self.record(Record { op, kind, device, context, address, size, ..Record::default() }, answer, pool);
    }
}

fn check_size(size: u64) -> Answer {
    if size > 0 && size.is_multiple_of(GRANULARITY) { Ok(()) } else { Err(INVALID_VALUE) }
}

/// The index of the device's virtual memory, which counts as a pool.
pub(super) fn virtual_pool(device: usize) -> usize {
    device * POOLS_OF_A_DEVICE + 4
}
