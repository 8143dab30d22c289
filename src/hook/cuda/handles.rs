//! Memory that is known by a handle: physical memory to be mapped, arrays, external memory.
//!
//! Ledgers, viewers and captures identify blocks by address. So such memory gets a made-up address, from 2⁵² on, where
//! no device has memory. Numbers below 2⁵³ are exact as floating-point numbers, which viewers use.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

use memtrace_core::snapshot::MADE_UP;

use super::driver::{OUT_OF_MEMORY, SUCCESS};
use super::notify::{self, PendingFree};
use super::pointers::CallerPtr;
use super::table::{HandleTable, Undo};
use super::types::{Class, DeviceHint, FreeRequest, Outcome, Place, Stream};
use crate::record::memory::own_vec;
use crate::record::ticks;

/// The kind of a handle. Handles of different kinds may be equal numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum HandleKind {
    Physical,
    Array,
    External,
}

type HandleKey = (HandleKind, u64);

#[derive(Clone, Copy, Debug)]
struct HandleMemory {
    class: Class,
    /// The made-up address; 0 for memory that is recorded where it is mapped.
    address: u64,
    /// The context whose end frees the memory; 0 if there is none.
    context: usize,
}

#[derive(Clone, Copy, Debug)]
struct Mapping {
    size: u64,
    key: HandleKey,
}

/// Memory by handle. Each handle and each mapping counts as one use.
static MEMORY: HandleTable<HandleKey, HandleMemory> = HandleTable::new();
/// Mappings by address.
static MAPPINGS: HandleTable<u64, Mapping> = HandleTable::new();

fn made_up_address(size: u64) -> u64 {
    /// Addresses are multiples of this, with a gap between any two blocks.
    const STEP: u64 = 1 << 20;
    static NEXT: AtomicU64 = AtomicU64::new(MADE_UP);
    let length = size.checked_next_multiple_of(STEP).unwrap_or(u64::MAX).saturating_add(STEP);
    let past = |address: u64| Some(address.saturating_add(length));
    NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, past).unwrap_or_else(|address| address)
}

/// A call that creates memory with a handle, as known before the call.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewHandle {
    pub(super) kind: HandleKind,
    pub(super) class: Class,
    /// Where the driver writes the handle.
    pub(super) out: CallerPtr<u64>,
    pub(super) size: u64,
    pub(super) hint: DeviceHint,
    pub(super) context: usize,
}

pub(super) fn made(new: NewHandle) -> impl FnOnce(c_int) {
    let (place, began) = (Place::before(new.class, Stream::NONE, new.hint), ticks::now());
    move |result| {
        let NewHandle { kind, class, out, size, context, .. } = new;
        let took = ticks::now().saturating_sub(began);
        let outcome = Outcome { result, took, ..Outcome::of_block(class, place, 0, size) };
        if result == OUT_OF_MEMORY {
            notify::notify_alloc(&outcome);
        } else if let Some(handle) = out.written(result).filter(|_| size != 0) {
            let address = made_up_address(size);
            MEMORY.insert((kind, handle), HandleMemory { class, address, context });
            notify::notify_alloc(&Outcome { address, ..outcome });
        }
    }
}

fn notify_gone(memory: &HandleMemory) -> PendingFree {
    let HandleMemory { class, address, .. } = *memory;
    if address == 0 { PendingFree::NONE } else { notify::notify_free(FreeRequest::at_once(class, address)) }
}

/// A use of memory that a call ends, unless the driver refuses.
#[must_use = "`finish` ends it or restores it"]
pub(super) struct EndedUse {
    memory: Undo<HandleKey, HandleMemory>,
    pending: PendingFree,
}

impl EndedUse {
    pub(super) fn finish(self, result: c_int) {
        self.memory.finish(result);
        self.pending.finish(result);
    }
}

/// Ends a use of memory. Must be called before the driver call.
pub(super) fn end_use(kind: HandleKind, handle: u64) -> EndedUse {
    let memory = MEMORY.remove((kind, handle));
    let pending = memory.entry().map_or(PendingFree::NONE, notify_gone);
    EndedUse { memory, pending }
}

/// Adds a use of physical memory, if it is known.
pub(super) fn retain(handle: u64) -> bool {
    MEMORY.retain((HandleKind::Physical, handle)).is_some()
}

pub(super) fn released(kind: HandleKind, handle: u64) -> impl FnOnce(c_int) {
    let ended = end_use(kind, handle);
    move |result| ended.finish(result)
}

/// Returns the callback for a call that returns a handle of physical memory. The memory may be known already, or
/// belong to another process.
pub(super) fn retained(out: CallerPtr<u64>) -> impl FnOnce(c_int) {
    move |result| {
        if let Some(handle) = out.written(result) {
            // The size is known once the memory is mapped.
            let imported = HandleMemory { class: Class::Imported, address: 0, context: 0 };
            MEMORY.retain_or_insert((HandleKind::Physical, handle), imported);
        }
    }
}

pub(super) fn mapped(address: u64, size: u64, handle: u64) -> impl FnOnce(c_int) {
    let key = (HandleKind::Physical, handle);
    let place = Place::before(Class::Imported, Stream::NONE, DeviceHint::Stream);
    move |result| {
        let memory = if result == SUCCESS { MEMORY.retain(key) } else { None };
        let Some(HandleMemory { class, address: made_up, .. }) = memory else { return };
        MAPPINGS.insert(address, Mapping { size, key });
        if made_up == 0 {
            notify::notify_alloc(&Outcome::of_block(class, place, address, size));
        }
    }
}

/// Handles `cuMemUnmap`, which unmaps whole mappings.
pub(super) fn unmapped(start: u64, size: u64) -> impl FnOnce(c_int) {
    let end = start.saturating_add(size);
    let within = |address: u64, mapping: &Mapping| {
        (start <= address && address.saturating_add(mapping.size) <= end).then_some((address, mapping.key))
    };
    let unmap = |(address, key)| {
        let class = MEMORY.get(key).map(|memory| memory.class);
        let (mapping, memory) = (MAPPINGS.remove(address), MEMORY.remove(key));
        let pending = match class {
            // Imported memory was recorded at the address of its mapping.
            Some(Class::Imported) => notify::notify_free(FreeRequest::at_once(Class::Imported, address)),
            _ => memory.entry().map_or(PendingFree::NONE, notify_gone),
        };
        (mapping, EndedUse { memory, pending })
    };
    let all = own_vec(MAPPINGS.pick(within).into_iter().map(unmap));
    move |result| {
        // In reverse order: the last removal may have removed the whole entry, which must be restored first.
        for (mapping, ended) in all.into_iter().rev() {
            mapping.finish(result);
            ended.finish(result);
        }
    }
}

/// Frees the arrays and the external memory of a context that ended.
pub(super) fn ended(context: usize) {
    for memory in MEMORY.take_all(|memory| memory.context == context) {
        notify_gone(&memory).finish(SUCCESS);
    }
}

/// Whether any memory belongs to a context.
pub(super) fn any_of_contexts() -> bool {
    !MEMORY.pick(|_, memory| (memory.context != 0).then_some(())).is_empty()
}
