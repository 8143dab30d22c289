//! Measurements of the calling thread: a ledger of its own for each one that is open.

use std::cell::RefCell;
use std::time::Instant;

use super::ledger::{Ledger, LedgerCopy, LedgerOptions, Site};
use super::memory::{OwnVec, System, try_push};
use super::thread;
use super::{fork, guard};
use crate::snapshot::Block;

struct Measure {
    ledger: Ledger,
    /// Bytes of blocks that were freed here and had not been allocated here.
    foreign_freed: u64,
    /// What the last free took out, should it have to be undone.
    last_freed: Option<Block>,
}

thread_local! {
    // Has a destructor, so it is only reached with `try_with`. Its memory is the system's own.
    static OPEN: RefCell<OwnVec<Measure>> = const { RefCell::new(OwnVec::new_in(System)) };
}

/// Opens a measurement inside those already open; `None` where it cannot be (a thread that ends).
pub(crate) fn begin() -> Option<usize> {
    fork::watch();
    let options = LedgerOptions::default();
    let measure = Measure { ledger: Ledger::new(options, Instant::now(), 0), foreign_freed: 0, last_freed: None };
    let depth = with_open(|open| try_push(open, measure).then(|| open.len() - 1)).flatten();
    guard::set(guard::MEASURING, depth.is_some());
    depth
}

/// Closes a measurement and any left open inside it; gives what it saw and what it freed of others.
pub(crate) fn end(depth: usize) -> Option<(LedgerCopy, u64)> {
    let _own = guard::own_work();
    let copy = with_open(|open| open.get(depth).map(|measure| (measure.ledger.copy(0), measure.foreign_freed)));
    close(depth);
    copy.flatten()
}

/// Closes a measurement, if it is open, and any left open inside it.
pub(crate) fn close(depth: usize) {
    with_open(|open| {
        open.truncate(depth);
        guard::set(guard::MEASURING, !open.is_empty());
    });
}

pub(crate) fn on_alloc(address: u64, size: u64, site: Site) {
    each(|measure| {
        measure.ledger.alloc(address, size, site);
    });
}

pub(crate) fn on_free(address: u64, size: u64) {
    let site = Site { thread: thread::number(), ..Site::default() };
    each(|measure| {
        measure.last_freed = measure.ledger.free(address, site);
        if measure.last_freed.is_none() {
            measure.foreign_freed += size;
        }
    });
}

/// The last free did not happen: a reallocation failed.
pub(crate) fn undo_free(size: u64) {
    each(|measure| match measure.last_freed.take() {
        Some(block) => {
            measure.ledger.undo_free(&block);
        }
        None => measure.foreign_freed = measure.foreign_freed.saturating_sub(size),
    });
}

fn each(change: impl FnMut(&mut Measure)) {
    with_open(|open| open.iter_mut().for_each(change));
}

fn with_open<R>(f: impl FnOnce(&mut OwnVec<Measure>) -> R) -> Option<R> {
    OPEN.try_with(|open| open.try_borrow_mut().ok().map(|mut open| f(&mut open))).ok().flatten()
}
