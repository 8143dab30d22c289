//! Imported memory that is known by its address: IPC handles, buffers of external memory, and blocks of another
//! process's pool.

use std::ffi::c_int;

use super::notify::{self, PendingFree};
use super::pointers::CallerPtr;
use super::query;
use super::table::HandleTable;
use super::types::{Class, DeviceHint, FreeRequest, Outcome, Place, Stream};
use crate::record::ticks;

/// Open IPC handles. Each open call counts as one use.
static OPENED: HandleTable<u64, ()> = HandleTable::new().draws_attention();
/// Buffers within external memory. They are not recorded as blocks: the external memory is one block, recorded
/// by its handle, and outlives its buffers.
pub(super) static PARTS: HandleTable<u64, ()> = HandleTable::new().draws_attention();

/// Handles `cuIpcOpenMemHandle`. If the handle is already open, the call yields the same block again.
pub(super) fn opened(out: CallerPtr<u64>) -> impl FnOnce(c_int) {
    after(out, |address| OPENED.retain_or_insert(address, ()))
}

/// Handles `cuMemPoolImportPointer`. The block is freed like any block of a pool.
pub(super) fn imported(out: CallerPtr<u64>) -> impl FnOnce(c_int) {
    after(out, |_| true)
}

fn after(out: CallerPtr<u64>, is_new: impl FnOnce(u64) -> bool) -> impl FnOnce(c_int) {
    let (place, began) = (Place::before(Class::Imported, Stream::NONE, DeviceHint::Stream), ticks::now());
    move |result| {
        if let Some(address) = out.written(result).filter(|address| is_new(*address)) {
            // Only the driver knows the size.
            let size = query::range_size(address).unwrap_or(0);
            let took = ticks::now().saturating_sub(began);
            notify::notify_alloc(&Outcome { took, ..Outcome::of_block(Class::Imported, place, address, size) });
        }
    }
}

pub(super) fn closed(address: u64) -> impl FnOnce(c_int) {
    let removed = OPENED.remove(address);
    let request = FreeRequest::at_once(Class::Imported, address);
    let pending = if removed.leaves_uses() { PendingFree::NONE } else { notify::notify_free(request) };
    move |result| {
        removed.finish(result);
        pending.finish(result);
    }
}

/// `cuExternalMemoryGetMappedBuffer`.
pub(super) fn mapped(out: CallerPtr<u64>) -> impl FnOnce(c_int) {
    move |result| {
        if let Some(address) = out.written(result) {
            PARTS.insert(address, ());
        }
    }
}

/// Forgets the imports that are gone, after a context may have ended.
pub(super) fn context_ended() {
    for table in [&OPENED, &PARTS] {
        let mut gone = table.pick(|address, ()| Some(address));
        gone.retain(|address| query::is_gone(*address));
        gone.into_iter().for_each(|address| table.forget(address));
    }
}
