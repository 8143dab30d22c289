//! Memory without an address of its own: physical memory that is mapped by hand, arrays, memory of other
//! libraries. It gets addresses that are made up, from 2⁵² on, where no device has any.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

use super::driver::SUCCESS;
use super::pointers::CallerPtr;
use super::table::{HandleTable, own_vec};
use super::tell::{self, Told};
use super::words::{Class, Outcome, Release, Stream, Whose};
use crate::record::ticks;
use crate::snapshot::MADE_UP;

/// What a handle stands for: each kind has handles of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Physical,
    Array,
    External,
}

type Key = (Kind, u64);

#[derive(Clone, Copy, Debug)]
struct Memory {
    class: Class,
    /// The address that was made up; 0 for what is entered where it is mapped.
    address: u64,
    /// Context that takes it along.
    context: usize,
}

#[derive(Clone, Copy, Debug)]
struct Mapping {
    size: u64,
    key: Key,
}

/// Each handle and each mapping is a use of the memory.
static MEMORY: HandleTable<Key, Memory> = HandleTable::new();
/// By address.
static MAPPINGS: HandleTable<u64, Mapping> = HandleTable::new();

/// An address for so much memory.
fn made_up_address(size: u64) -> u64 {
    /// Made-up addresses are multiples of this, and never neighbours.
    const STEP: u64 = 1 << 20;
    static NEXT: AtomicU64 = AtomicU64::new(MADE_UP);
    let length = size.checked_next_multiple_of(STEP).unwrap_or(u64::MAX).saturating_add(STEP);
    NEXT.update(Ordering::Relaxed, Ordering::Relaxed, |address| address.saturating_add(length))
}

/// Something that was made, as far as is known before the call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Made {
    pub(super) kind: Kind,
    pub(super) class: Class,
    /// Where the call leaves the handle.
    pub(super) out: CallerPtr<u64>,
    pub(super) size: u64,
    pub(super) whose: Whose,
    pub(super) context: usize,
}

/// Returns the callback to run with the result of a call that makes something.
pub(super) fn made(made: Made) -> impl FnOnce(c_int) {
    let began = ticks::now();
    move |result| {
        let Made { kind, class, out, size, whose, context } = made;
        let took = ticks::now().saturating_sub(began);
        let outcome = Outcome { result, class, address: 0, size, stream: Stream::NONE, whose, took };
        if result != SUCCESS {
            tell::tell_refusal(&outcome);
        } else if let Some(handle) = out.read().filter(|_| size != 0) {
            let address = made_up_address(size);
            MEMORY.insert((kind, handle), Memory { class, address, context });
            tell::tell_alloc(&Outcome { address, ..outcome });
        }
    }
}

/// Takes what has an address of its own out of the accounts.
fn tell_gone(memory: &Memory) -> Told {
    let Memory { class, address, .. } = *memory;
    if address == 0 { Told::NOTHING } else { tell::tell_free(Release { class, address, stream: Stream::NONE }) }
}

/// A handle is given back. Returns the callback to run with the call's result.
pub(super) fn released(kind: Kind, handle: u64) -> impl FnOnce(c_int) {
    let removed = MEMORY.remove((kind, handle));
    let told = removed.entry().map_or(Told::NOTHING, tell_gone);
    move |result| {
        removed.after(result);
        told.after(result);
    }
}

/// One more handle to physical memory, or one to memory that was made elsewhere. Returns the callback to run with the
/// call's result.
pub(super) fn retained(out: CallerPtr<u64>) -> impl FnOnce(c_int) {
    move |result| {
        if let Some(handle) = out.written(result) {
            // How large it is shows when it is mapped.
            let elsewhere = Memory { class: Class::Imported, address: 0, context: 0 };
            MEMORY.retain_or_insert((Kind::Physical, handle), elsewhere);
        }
    }
}

/// Returns the callback to run with `cuMemMap`'s result.
pub(super) fn mapped(address: u64, size: u64, handle: u64) -> impl FnOnce(c_int) {
    let key = (Kind::Physical, handle);
    move |result| {
        let memory = if result == SUCCESS { MEMORY.retain(key) } else { None };
        let Some(Memory { class, address: known, .. }) = memory else { return };
        MAPPINGS.insert(address, Mapping { size, key });
        if known == 0 {
            let (stream, whose) = (Stream::NONE, Whose::Streams);
            tell::tell_alloc(&Outcome { result, class, address, size, stream, whose, took: 0 });
        }
    }
}

/// Returns the callback to run with `cuMemUnmap`'s result. It takes whole mappings.
pub(super) fn unmapped(start: u64, size: u64) -> impl FnOnce(c_int) {
    let end = start.saturating_add(size);
    let within = |address: u64, mapping: &Mapping| {
        (start <= address && address.saturating_add(mapping.size) <= end).then_some((address, mapping.key))
    };
    let unmap = |(address, key)| {
        let class = MEMORY.get(key).map(|memory| memory.class);
        let (mapping, memory) = (MAPPINGS.remove(address), MEMORY.remove(key));
        let told = match class {
            // Memory from elsewhere was entered where it was mapped.
            Some(class @ Class::Imported) => tell::tell_free(Release { class, address, stream: Stream::NONE }),
            _ => memory.entry().map_or(Told::NOTHING, tell_gone),
        };
        (mapping, memory, told)
    };
    let all = own_vec(MAPPINGS.pick(within).into_iter().map(unmap));
    move |result| {
        // What was taken first goes back last, so that all counts are as they were.
        for (mapping, memory, told) in all.into_iter().rev() {
            mapping.after(result);
            memory.after(result);
            told.after(result);
        }
    }
}

/// A context came to an end: so did its arrays.
pub(super) fn ended(context: usize) {
    for memory in MEMORY.take_all(|memory| memory.context == context) {
        tell_gone(&memory).after(SUCCESS);
    }
}

/// Is there anything that goes with a context?
pub(super) fn any_of_contexts() -> bool {
    !MEMORY.pick(|_, memory| (memory.context != 0).then_some(())).is_empty()
}
