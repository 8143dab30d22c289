//! Physical memory that is mapped to parts of arrays (`cuMemMapArrayAsync`). A mapping keeps the memory alive after the
//! program has released the memory's handle.
//!
//! Memory is mapped to a sparse array in boxes of elements of one level and layer, and in ranges of the tail, which its
//! small levels share. An array with deferred mapping is mapped as a whole. It is assumed that the destruction of an
//! array unmaps its parts.

use std::ffi::{c_int, c_uint};

use super::arrays::Array3d;
use super::device;
use super::driver::SUCCESS;
use super::handles::{self, EndedUse, HandleKind};
use super::pointers::CallerPtr;
use super::table::HandleTable;
use super::types::Handle;
use crate::record::memory::{OwnVec, System, own_vec, try_push};

/// `CUarrayMapInfo`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct ArrayMapping {
    resource: c_uint,
    array: u64,
    kind: c_uint,
    /// A box or a range, depending on `kind`.
    part: [u64; 4],
    operation: c_uint,
    handle_kind: c_uint,
    memory: u64,
    offset: u64,
    devices: c_uint,
    others: [c_uint; 3],
}

/// `CU_MEM_OPERATION_TYPE_MAP`.
const MAP: c_uint = 1;
/// `CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL`.
const TAIL: c_uint = 1;

/// A part of an array that is mapped: kind, level and layer, and a range in each dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    of: [u64; 3],
    ranges: [(u64, u64); 3],
}

const WHOLE: Part = Part { of: [0; 3], ranges: [(0, u64::MAX); 3] };

/// The mapped parts, each with the handle of its memory. Each part is a use of that memory.
type Parts = OwnVec<(Part, u64)>;

/// An array to which memory can be mapped.
struct MappedArray {
    is_whole: bool,
    context: usize,
    parts: Parts,
}

static ARRAYS: HandleTable<u64, MappedArray> = HandleTable::new();

impl ArrayMapping {
    fn part(&self) -> Part {
        let [one, two, three, four] = self.part;
        let low = |word: u64| word & u64::from(u32::MAX);
        if self.kind == TAIL {
            return Part { of: [1, 0, low(one)], ranges: [(two, two.saturating_add(three)), (0, 1), (0, 1)] };
        }
        let from = |start: u64, extent: u64| (start, start + extent);
        let ranges = [from(low(two), three >> 32), from(two >> 32, low(four)), from(low(three), four >> 32)];
        Part { of: [0, low(one), one >> 32], ranges }
    }
}

impl Part {
    fn meets(&self, other: &Self) -> bool {
        let common =
            |((from, to), (from_other, to_other)): (&(u64, u64), &(u64, u64))| from.max(from_other) < to.min(to_other);
        self.of == other.of && self.ranges.iter().zip(&other.ranges).all(common)
    }

    fn with(mut self, axis: usize, range: (u64, u64)) -> Self {
        self.ranges.get_mut(axis).into_iter().for_each(|place| *place = range);
        self
    }

    /// What is left of this part without the part `cut`, which intersects it: up to six parts.
    fn without(mut self, cut: &Self) -> OwnVec<Self> {
        let mut left = OwnVec::new_in(System);
        for axis in 0..3 {
            let (Some(&(from, to)), Some(&(cut_from, cut_to))) = (self.ranges.get(axis), cut.ranges.get(axis)) else {
                continue;
            };
            for range in [(from, cut_from), (cut_to, to)].into_iter().filter(|(from, to)| from < to) {
                try_push(&mut left, self.with(axis, range));
            }
            self = self.with(axis, (from.max(cut_from), to.min(cut_to)));
        }
        left
    }
}

/// An array was created to which memory may be mapped later.
pub(super) fn created(out: CallerPtr<u64>, description: CallerPtr<Array3d>) -> impl FnOnce(c_int) {
    move |result| {
        let mapped_later = description.written(result).and_then(Array3d::is_mapped_as_a_whole);
        if let Some((array, is_whole)) = out.written(result).zip(mapped_later) {
            let (context, parts) = (device::current_context(), OwnVec::new_in(System));
            ARRAYS.insert(array, MappedArray { is_whole, context, parts });
        }
    }
}

/// Handles `cuMemMapArrayAsync`. Memory that the call unmaps leaves its account before the driver is called.
pub(super) fn mapped(list: CallerPtr<ArrayMapping>, count: c_uint) -> impl FnOnce(c_int) {
    let mut changes = Changes::new();
    for at in (0..count as usize).take_while(|_| !list.is_null()) {
        if let Some(mapping) = list.part::<ArrayMapping>(at * size_of::<ArrayMapping>()).read() {
            changes.apply(&mapping);
        }
    }
    move |result| changes.finish(result)
}

/// The changes of a call, to be undone if the driver refuses.
struct Changes {
    /// The parts that each array had before.
    before: OwnVec<(u64, Parts)>,
    ended: OwnVec<EndedUse>,
    /// Handles of memory with a new use.
    added: OwnVec<u64>,
}

impl Changes {
    const fn new() -> Self {
        Self { before: OwnVec::new_in(System), ended: OwnVec::new_in(System), added: OwnVec::new_in(System) }
    }

    fn apply(&mut self, mapping: &ArrayMapping) {
        let take = |known: &mut MappedArray| std::mem::replace(&mut known.parts, OwnVec::new_in(System));
        let taken = ARRAYS.change(mapping.array, |known| (known.is_whole, take(known)));
        let Some((is_whole, parts)) = taken else { return };
        if !self.before.iter().any(|(array, _)| *array == mapping.array) {
            try_push(&mut self.before, (mapping.array, own_vec(parts.iter().copied())));
        }
        let part = if is_whole { WHOLE } else { mapping.part() };
        let mut parts = self.cut(parts, &part);
        if mapping.operation == MAP {
            self.add(&mut parts, part, mapping.memory);
        }
        ARRAYS.change(mapping.array, |known| known.parts.extend(parts));
    }

    /// Returns the parts without `cut`, which is to be replaced or unmapped.
    fn cut(&mut self, parts: Parts, cut: &Part) -> Parts {
        let mut kept = OwnVec::new_in(System);
        for (part, memory) in parts {
            if !part.meets(cut) {
                try_push(&mut kept, (part, memory));
                continue;
            }
            part.without(cut).into_iter().for_each(|piece| self.add(&mut kept, piece, memory));
            try_push(&mut self.ended, handles::end_use(HandleKind::Physical, memory));
        }
        kept
    }

    fn add(&mut self, parts: &mut Parts, part: Part, memory: u64) {
        if handles::retain(memory) {
            try_push(&mut self.added, memory);
            try_push(parts, (part, memory));
        }
    }

    fn finish(self, result: c_int) {
        let Self { before, ended, added } = self;
        // In reverse order: the last removal may have removed the whole entry, which must be restored first.
        ended.into_iter().rev().for_each(|ended| ended.finish(result));
        if result != SUCCESS {
            for (array, parts) in before {
                ARRAYS.change(array, |known| known.parts = parts);
            }
            added.into_iter().for_each(|memory| handles::end_use(HandleKind::Physical, memory).finish(SUCCESS));
        }
    }
}

fn end_uses(array: &MappedArray) -> OwnVec<EndedUse> {
    own_vec(array.parts.iter().map(|(_, memory)| handles::end_use(HandleKind::Physical, *memory)))
}

pub(super) fn destroying(array: Handle) -> impl FnOnce(c_int) {
    let removed = ARRAYS.remove(array.addr() as u64);
    let ended = removed.entry().map_or(OwnVec::new_in(System), end_uses);
    move |result| {
        ended.into_iter().rev().for_each(|ended| ended.finish(result));
        removed.finish(result);
    }
}

/// Forgets the arrays of a context that ended, and ends their uses of memory.
pub(super) fn ended(context: usize) {
    for array in ARRAYS.take_all(|array| array.context == context) {
        end_uses(&array).into_iter().for_each(|ended| ended.finish(SUCCESS));
    }
}

/// Whether there are arrays to which memory may be mapped.
pub(super) fn any() -> bool {
    !ARRAYS.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_as_long_as_the_drivers() {
        assert_eq!((size_of::<ArrayMapping>(), std::mem::offset_of!(ArrayMapping, memory)), (96, 64));
    }

    /// Counts all elements of small boxes one by one.
    #[test]
    fn what_is_left_of_a_part_is_what_the_other_does_not_have() {
        let ranges = [(0, 2), (1, 3), (2, 5), (0, 5)];
        let boxes =
            ranges.iter().flat_map(|x| ranges.iter().map(move |y| Part { of: [0; 3], ranges: [*x, *y, (1, 4)] }));
        let boxes: Vec<Part> = boxes.chain([WHOLE, Part { of: [0, 1, 0], ..WHOLE }]).collect();
        let has =
            |part: &Part, at: [u64; 3]| part.ranges.iter().zip(at).all(|((from, to), at)| (*from..*to).contains(&at));
        for (one, other) in boxes.iter().flat_map(|one| boxes.iter().map(move |other| (one, other))) {
            let left: Vec<Part> = if one.meets(other) { one.without(other).to_vec() } else { vec![*one] };
            for at in 0..6 * 6 * 6 {
                let at = [at % 6, at / 6 % 6, at / 36];
                let expected = has(one, at) && !(one.of == other.of && has(other, at));
                assert_eq!(
                    left.iter().filter(|part| has(part, at)).count(),
                    usize::from(expected),
                    "{one:?} {other:?}"
                );
            }
            assert!(left.iter().all(|part| part.of == one.of && part.ranges.iter().all(|(from, to)| from < to)));
        }
    }
}
