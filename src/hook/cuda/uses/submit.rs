//! Enters an operation with its blocks. Takes a stack if one of the blocks is large.

use std::ffi::c_int;

use memtrace_core::snapshot::KernelId;

use crate::hook::cuda::device::context_of;
use crate::hook::cuda::types::Stream;
use crate::hook::cuda::{notify, streams};
use crate::record::uses::{OperationKind, Touched, UseTable};
use crate::record::{EventSite, guard, uses};

/// The callback of a call that was examined beforehand.
pub(in crate::hook::cuda) type Looked = fn(c_int);

pub(super) const LOOKED: Looked = |_| {};

/// Whether the call is the program's and uses are recorded.
#[inline]
pub(super) fn is_wanted() -> bool {
    uses::is_on() && guard::state() & guard::OWN == 0
}

/// Runs `look`, which examines a call, as memtrace's own work. Does nothing unless [`is_wanted`].
#[inline]
pub(super) fn wanted<T>(look: impl FnOnce() -> T) -> Option<T> {
    if !is_wanted() {
        return None;
    }
    let _own = guard::own_work();
    Some(look())
}

/// Like [`wanted`], for a hook that has nothing to do after the driver call.
#[inline]
pub(super) fn looked(look: impl FnOnce()) -> Looked {
    wanted(look);
    LOOKED
}

pub(super) fn site(stream: Stream) -> EventSite {
    let site = notify::site_here();
    if stream == Stream::NONE {
        return site;
    }
    EventSite { stream: streams::number(context_of(stream), stream, site.thread), ..site }
}

/// Enters an operation. `look` runs under the table's lock. It collects the blocks of the operation, and returns the
/// kernel and the kind of work, or `None` if there is nothing to enter.
pub(super) fn submit(
    stream: Stream,
    look: impl FnOnce(&mut UseTable, &mut Touched) -> Option<(KernelId, OperationKind)>,
) {
    let mut touched = Touched::new();
    let looked = uses::with(|table| {
        let (kernel, work) = look(table, &mut touched)?;
        if table.needs_stack(&touched) {
            return Some((kernel, work));
        }
        enter(table, kernel, work, &touched, EventSite::default());
        None
    });
    // Take the stack without holding the lock.
    if let Some((kernel, work)) = looked.flatten() {
        let site = site(stream);
        uses::with(|table| enter(table, kernel, work, &touched, site));
    }
}

fn enter(table: &mut UseTable, kernel: KernelId, work: OperationKind, touched: &Touched, site: EventSite) {
    table.begin();
    table.count(work, kernel);
    table.apply(kernel, touched, site);
}
