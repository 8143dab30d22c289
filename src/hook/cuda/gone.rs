//! Blocks that were freed with their context.
//!
//! After a context ended, the driver is asked about each block. So no rules about pools, reference counts and resets
//! are needed. A call in progress notices that a context has ended, and searches again once its block is entered. So
//! either that call or the thread that ended the context sees the block.

use memtrace_core::snapshot::Device;

use super::{device, query};
use crate::record::device_memory::LiveOnDevice;
use crate::record::measure::{self, Space};
use crate::record::{gates, guard, recorder};

/// Whether the driver no longer knows a block, or reports that the address belongs to another device.
pub(super) fn is_gone(device: Device, address: u64) -> bool {
    query::is_gone(address) || device::is_of_another(device, address)
}

/// Frees the blocks that are gone, if a context ended since there were `ended`.
pub(super) fn free_since(ended: u64) {
    if device::ended() != ended {
        free();
    }
}

/// Frees the blocks that the driver no longer knows. A new block may take such an address meanwhile. The position in
/// the log distinguishes the two.
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
