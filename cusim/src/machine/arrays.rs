//! CUDA arrays: texture memory, which has a handle and no address. Its contents are not simulated.

use super::formats::Descriptor;
use super::{SimMachine, pool_index};
use crate::code::{Answer, INVALID_HANDLE, INVALID_VALUE, demand, demand_or};
use crate::faults::CallKind;
use crate::history::{BlockKind, HistoryRecord, Op};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Array {
    pub(crate) descriptor: Descriptor,
    /// Mipmap levels; 0 for an array without mipmaps.
    pub(super) levels: u32,
    /// Bytes of all levels.
    pub(crate) size: u64,
    device: usize,
    context: u64,
    /// The mipmapped array to which this level belongs, and the level.
    pub(super) part_of: Option<(u64, u32)>,
    /// The array lies in imported memory, and takes no memory of its own.
    is_imported: bool,
}

impl Array {
    fn takes_no_memory(&self) -> bool {
        self.is_imported || self.descriptor.has_no_memory()
    }

    fn record(&self, op: Op, address: u64, context: u64) -> HistoryRecord {
        HistoryRecord { context, address, size: self.size, ..HistoryRecord::new(op, BlockKind::Array, self.device) }
    }
}

impl SimMachine {
    /// Creates an array. `levels` is 0 for an array without mipmaps. Sizes in imported memory are not checked, because
    /// they are not documented.
    pub(crate) fn create_array(
        &mut self,
        descriptor: Descriptor,
        levels: u32,
        context: u64,
        is_imported: bool,
    ) -> Answer<u64> {
        let device = self.context(context)?.device;
        let descriptor = Descriptor { padding: 0, ..descriptor };
        let levels = levels.min(descriptor.most_levels());
        let sizes = (0..levels.max(1)).map(|level| descriptor.level(level).bytes());
        let size = sizes.into_iter().try_fold(0, |sum: u64, bytes| sum.checked_add(bytes?).ok_or(INVALID_VALUE))?;
        let array = Array { descriptor, levels, size, device, context, part_of: None, is_imported };
        if array.takes_no_memory() {
            return Ok(self.keep_array(array));
        }
        let pool = pool_index(device, BlockKind::Array);
        self.allocate_logged(array.record(Op::Alloc, 0, context), Some(pool), |machine| {
            machine.take_directly(pool, size)?;
            Ok(machine.keep_array(array))
        })
    }

    fn keep_array(&mut self, array: Array) -> u64 {
        let handle = self.new_handle();
        self.arrays.insert(handle, array);
        handle
    }

    pub(crate) fn array(&self, handle: u64, has_levels: bool) -> Answer<Array> {
        let found = self.arrays.get(&handle).copied();
        found.filter(|array| (array.levels > 0) == has_levels).ok_or(INVALID_HANDLE)
    }

    /// The handle of a mipmap level as an array. Each call for this level returns the same handle.
    pub(crate) fn level_of_array(&mut self, handle: u64, level: u32) -> Answer<u64> {
        let whole = self.array(handle, true)?;
        demand(level < whole.levels)?;
        let part_of = Some((handle, level));
        if let Some((known, _)) = self.arrays.iter().find(|(_, array)| array.part_of == part_of) {
            return Ok(*known);
        }
        let descriptor = whole.descriptor.level(level);
        let size = descriptor.bytes()?;
        Ok(self.keep_array(Array { descriptor, levels: 0, size, part_of, ..whole }))
    }

    /// Destroys an array. A level cannot be destroyed by itself (assumed).
    pub(crate) fn destroy_array(&mut self, handle: u64, has_levels: bool, context: u64) -> Answer {
        let array = self.array(handle, has_levels)?;
        demand_or(array.part_of.is_none(), INVALID_HANDLE)?;
        let check = self.script.check(CallKind::Free, 0);
        if check.is_err() {
            if !array.takes_no_memory() {
                let pool = pool_index(array.device, BlockKind::Array);
                self.record(array.record(Op::Free, handle, context), check, Some(pool));
            }
            return check;
        }
        self.end_array(handle, Op::Free, context)
    }

    pub(super) fn end_arrays_of(&mut self, context: u64) {
        let of_context = |(_, array): &(&u64, &Array)| array.context == context && array.part_of.is_none();
        while let Some((&handle, _)) = self.arrays.iter().find(of_context) {
            let _ = self.end_array(handle, Op::Bulk, context);
        }
    }

    fn end_array(&mut self, handle: u64, op: Op, context: u64) -> Answer {
        let array = self.arrays.remove(&handle).ok_or(INVALID_HANDLE)?;
        self.arrays.retain(|_, other| other.part_of.is_none_or(|(whole, _)| whole != handle));
        self.end_tiles_of(handle, context);
        if array.takes_no_memory() {
            return Ok(());
        }
        let pool = pool_index(array.device, BlockKind::Array);
        self.give_directly(pool, array.size)?;
        self.record(array.record(op, handle, context), Ok(()), Some(pool));
        Ok(())
    }
}
