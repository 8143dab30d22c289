//! Memory of other libraries, such as Vulkan: imported by a file, used through buffers.

use super::Machine;
use super::outside::Role;
use crate::code::{Answer, INVALID_HANDLE, INVALID_VALUE};
use crate::faults::Call;
use crate::history::{Kind, Op, Record};

#[derive(Clone, Copy, Debug)]
pub(crate) struct External {
    size: u64,
    device: usize,
    context: u64,
}

impl Machine {
    pub(crate) fn import_external(&mut self, size: u64, context: u64) -> Answer<u64> {
        let external = External { size, device: self.context(context)?.device, context };
        let answer = self.script.check(Call::Alloc, size);
        let handle = if answer.is_ok() { self.new_handle() } else { 0 };
        if answer.is_ok() {
            self.externals.insert(handle, external);
        }
        self.record_external(Op::Alloc, external, handle, context, answer);
        answer.map(|()| handle)
    }

    /// Buffers in it stay until they are freed.
    pub(crate) fn destroy_external(&mut self, handle: u64, context: u64) -> Answer {
        let external = *self.externals.get(&handle).ok_or(INVALID_HANDLE)?;
        let check = self.script.check(Call::Free, 0);
        if check.is_ok() {
            self.externals.remove(&handle);
        }
        self.record_external(Op::Free, external, handle, context, check);
        check
    }

    /// The address of a part. The log has the whole only.
    pub(crate) fn map_buffer(&mut self, handle: u64, offset: u64, size: u64, context: u64) -> Answer<u64> {
        let External { size: whole, device, .. } = *self.externals.get(&handle).ok_or(INVALID_HANDLE)?;
        let end = offset.checked_add(size).ok_or(INVALID_VALUE)?;
        if size == 0 || end > whole {
            return Err(INVALID_VALUE);
        }
        self.open_import(Role::Buffer, size, (device, context))
    }

    /// With the context go its external memory and its buffers.
    pub(super) fn end_externals_of(&mut self, context: u64) {
        while let Some((handle, external)) = self.externals.iter().find(|(_, external)| external.context == context) {
            let (handle, external) = (*handle, *external);
            self.externals.remove(&handle);
            self.record_external(Op::Bulk, external, handle, context, Ok(()));
        }
        let is_buffer = |found: &&super::outside::Outside| found.role == Role::Buffer && found.block.context == context;
        while let Some(found) = self.outside.iter().find(is_buffer) {
            let address = found.block.address;
            let _ = self.close_import(address);
        }
    }

    fn record_external(&mut self, op: Op, external: External, address: u64, context: u64, answer: Answer) {
        let (kind, device, size) = (Kind::Imported, external.device as i32, external.size);
        self.record(Record { op, kind, device, context, address, size, ..Record::default() }, answer, None);
    }
}
