//! Uses of device memory: an address index of the live blocks, and the first and last use of each block by a GPU
//! operation. Uses are recorded only if the recording's settings ask for them.

mod block;
mod copy;
mod index;
mod kernels;
mod table;
#[cfg(test)]
mod tests;
mod touched;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

pub(crate) use copy::{UseCopy, UseCursor};
pub(crate) use kernels::{ArgumentLayout, KernelEntry, Parameter, add_parameter};
use memtrace_core::snapshot::{Block, Device, GpuWork};
pub(crate) use table::UseTable;
pub(crate) use touched::{OperationKind, TensorMapWords, Touched, UseAccess};

use super::lock::{Lock, Locked, rank};

static USES: Lock<Option<UseTable>, { rank::USES }> = Lock::new(None);

/// A hint: the table itself is behind the lock.
static ON: AtomicBool = AtomicBool::new(false);

/// One relaxed load.
#[inline]
pub(crate) fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

pub(super) type LockedUses = Locked<'static, Option<UseTable>, { rank::USES }>;

pub(super) fn lock() -> LockedUses {
    USES.lock()
}

/// Calls `f` with the table, if uses are recorded. `f` must not call a driver function or take a lock.
pub(crate) fn with<T>(f: impl FnOnce(&mut UseTable) -> T) -> Option<T> {
    if is_on() { lock().as_mut().map(f) } else { None }
}

/// `epoch` is the number of the recording.
pub(super) fn start(began: Instant, epoch: u64) {
    *lock() = Some(UseTable::new(began, epoch));
    ON.store(true, Ordering::Relaxed);
}

pub(super) fn pause() {
    ON.store(false, Ordering::Relaxed);
}

pub(super) fn discard() {
    pause();
    *lock() = None;
}

pub(super) fn restart(began: Instant) {
    with(|table| table.restart(began));
}

/// A block was entered into the device's ledger. Called under the ledger's lock.
#[cold]
pub(super) fn entered(device: Device, block: &Block) {
    with(|table| table.alloc(device, block));
}

/// A block's free is about to be passed to the driver. Called under the ledger's lock, before the driver may
/// reuse the address.
#[cold]
pub(super) fn left(device: Device, block: &Block) {
    with(|table| table.free(device, block.address, block.raw_seq()));
}

/// The driver refused a free. The uses of the block in between are unknown.
#[cold]
pub(super) fn refused(device: Device, block: &Block) {
    with(|table| {
        table.alloc(device, block);
        table.escape(block.address);
    });
}

/// Uses of a device's blocks that ended or changed after the cursor.
pub(super) fn copied(device: Device, cursor: UseCursor) -> UseCopy {
    with(|table| table.copy(device, cursor)).unwrap_or_default()
}

/// The position after everything recorded so far.
pub(crate) fn end() -> UseCursor {
    with(|table| table.end()).unwrap_or_default()
}

/// The totals, and the names of kernels from number `from` on.
pub(crate) fn work(from: usize) -> Option<GpuWork> {
    with(|table| table.work(from))
}
