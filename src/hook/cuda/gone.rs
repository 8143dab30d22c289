//! Blocks that were freed with their context.
//!
//! After a context ended, the driver is asked about each block. So no rules about pools, reference counts and resets
//! are needed. A call in progress notices that a context has ended, and makes the same search once its block is
//! entered. So either the thread of that call or the thread that ended the context finds the block.

use memtrace_core::snapshot::Device;

use super::{device, query};
use crate::record::device_memory::LiveOnDevice;
use crate::record::measure::{self, Space};
use crate::record::{gates, guard, recorder};

/// Whether the driver no longer knows a block, or reports that the address belongs to another device.
pub(super) fn is_gone(device: Device, address: u64) -> bool {
    query::is_gone(address) || device::is_of_another(device, address)
}

/// Frees the blocks that are gone, if the number of contexts that have ended is no longer `ended`.
pub(super) fn free_since(ended: u64) {
    if device::ended() != ended {
        free();
    }
}

/// Frees the blocks that the driver no longer knows. Meanwhile a new block may get the address of such a block. The
/// position of its alloc in the log distinguishes it from the old block.
pub(super) fn free() {
    if guard::state() & guard::OWN != 0 {
        return;
    }
    let _own = guard::own_work();
    for device in recorder::devices().filter(|device| *device != Device::Cpu) {
        if let Some(live) = LiveOnDevice::on(device) {
            live.freed(|address| is_gone(device, address));
        }
    }
    if gates::any_measurement() {
        let is_gone = |(space, address): &(Space, u64)| measure::knows(*space, *address) && query::is_gone(*address);
        for (space, address) in measure::device_blocks().into_iter().filter(is_gone) {
            measure::on_free(space, address, None);
        }
    }
}
