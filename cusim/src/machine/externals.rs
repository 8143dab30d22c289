//! External memory: memory of other libraries, such as Vulkan, imported by a file and used through buffers.

use super::SimMachine;
use super::formats::Descriptor;
use super::outside::{OutsideRange, Role};
use crate::code::{Answer, INVALID_HANDLE, INVALID_VALUE, demand};
use crate::faults::CallKind;
use crate::history::{BlockKind, HistoryRecord, Op};

#[derive(Clone, Copy, Debug)]
pub(crate) struct ExternalMemory {
    size: u64,
    device: usize,
    context: u64,
}

impl ExternalMemory {
    fn record(&self, op: Op, address: u64) -> HistoryRecord {
        let Self { size, device, context } = *self;
        HistoryRecord { context, address, size, ..HistoryRecord::new(op, BlockKind::Imported, device) }
    }
}

impl SimMachine {
    pub(crate) fn import_external(&mut self, size: u64, context: u64) -> Answer<u64> {
        let external = ExternalMemory { size, device: self.context(context)?.device, context };
        self.allocate_logged(external.record(Op::Alloc, 0), None, |machine| {
            let handle = machine.new_handle();
            machine.externals.insert(handle, external);
            Ok(handle)
        })
    }

    /// Destroys external memory. Its buffers stay until they are freed.
    pub(crate) fn destroy_external(&mut self, handle: u64, context: u64) -> Answer {
        let external = *self.externals.get(&handle).ok_or(INVALID_HANDLE)?;
        let check = self.script.check(CallKind::Free, 0);
        if check.is_ok() {
            self.externals.remove(&handle);
        }
        self.record(HistoryRecord { context, ..external.record(Op::Free, handle) }, check, None);
        check
    }

    /// The address of a buffer, which is not logged.
    pub(crate) fn map_buffer(&mut self, handle: u64, offset: u64, size: u64, context: u64) -> Answer<u64> {
        let ExternalMemory { size: whole, device, .. } = *self.externals.get(&handle).ok_or(INVALID_HANDLE)?;
        let end = offset.checked_add(size).ok_or(INVALID_VALUE)?;
        demand(size > 0 && end <= whole)?;
        self.open_import(Role::Buffer, size, (device, context))
    }

    /// A mipmapped array in the memory, which is not logged.
    pub(crate) fn map_levels(
        &mut self,
        handle: u64,
        offset: u64,
        (descriptor, levels): (Descriptor, u32),
        context: u64,
    ) -> Answer<u64> {
        let ExternalMemory { size, .. } = *self.externals.get(&handle).ok_or(INVALID_HANDLE)?;
        demand(levels > 0 && offset < size)?;
        self.create_array(descriptor, levels, context, true)
    }

    pub(super) fn end_externals_of(&mut self, context: u64) {
        while let Some((handle, external)) = self.externals.iter().find(|(_, external)| external.context == context) {
            let (handle, external) = (*handle, *external);
            self.externals.remove(&handle);
            self.record(external.record(Op::Bulk, handle), Ok(()), None);
        }
        let is_buffer = |found: &&OutsideRange| found.role == Role::Buffer && found.block.context == context;
        while let Some(found) = self.outside.iter().find(is_buffer) {
            let address = found.block.address;
            let _ = self.close_import(address);
        }
    }
}
