//! Memory of other processes and libraries that is known by its address here: opened as often as it is closed,
//! mapped from what is entered by its handle, or a block of another's pool.

use std::ffi::c_int;

use super::pointers::CallerPtr;
use super::query;
use super::table::HandleTable;
use super::tell::{self, Told};
use super::words::{Class, Outcome, Pointer, Release, Stream, Whose};
use crate::record::ticks;

/// What is open: each opening is a use.
static OPENED: HandleTable<u64, ()> = HandleTable::new().draws_attention();
/// Parts of something that is entered already, and stays when they are freed.
pub(super) static PARTS: HandleTable<u64, ()> = HandleTable::new().draws_attention();

/// Returns the callback to run with `cuIpcOpenMemHandle`'s result. What is open already is the same block.
pub(super) fn opened(out: CallerPtr<Pointer>) -> impl FnOnce(c_int) {
    after(out, |address| OPENED.retain_or_insert(address, ()))
}

/// Returns the callback to run with `cuMemPoolImportPointer`'s result. It is freed as any block of a pool is.
pub(super) fn imported(out: CallerPtr<Pointer>) -> impl FnOnce(c_int) {
    after(out, |_| true)
}

fn after(out: CallerPtr<Pointer>, is_new: impl FnOnce(u64) -> bool) -> impl FnOnce(c_int) {
    let began = ticks::now();
    move |result| {
        if let Some(address) = out.written(result).filter(|address| is_new(*address)) {
            let (class, stream, whose) = (Class::Imported, Stream::NONE, Whose::Streams);
            // Only the driver knows the size.
            let size = query::range_size(address).unwrap_or(0);
            let took = ticks::now().saturating_sub(began);
            tell::tell_alloc(&Outcome { result, class, address, size, stream, whose, took });
        }
    }
}

/// Returns the callback to run with `cuIpcCloseMemHandle`'s result.
pub(super) fn closed(address: Pointer) -> impl FnOnce(c_int) {
    let removed = OPENED.remove(address);
    let release = Release { class: Class::Imported, address, stream: Stream::NONE };
    let told = if removed.leaves_uses() { Told::NOTHING } else { tell::tell_free(release) };
    move |result| {
        removed.after(result);
        told.after(result);
    }
}

/// Returns the callback to run with `cuExternalMemoryGetMappedBuffer`'s result.
pub(super) fn mapped(out: CallerPtr<Pointer>) -> impl FnOnce(c_int) {
    move |result| {
        if let Some(address) = out.written(result) {
            PARTS.insert(address, ());
        }
    }
}

/// A context may have come to an end: forgets what it took along.
pub(super) fn context_ended() {
    for table in [&OPENED, &PARTS] {
        let mut gone = table.pick(|address, ()| Some(address));
        gone.retain(|address| query::is_gone(*address));
        gone.into_iter().for_each(|address| table.forget(address));
    }
}
