//! Segments: asked for when a block lies in none that is known, and looked at again after calls that
//! may have given some back.

use std::ffi::c_int;
use std::panic::catch_unwind;

use super::driver::SUCCESS;
use super::{attention, pools, query};
use crate::record::segments::SegmentAnswer;
use crate::record::{device_memory, guard, recorder};
use crate::snapshot::{Device, MemoryKind};

/// The segment that a block lies in, if the driver tells.
pub(super) fn told(address: u64, size: u64, memory: MemoryKind) -> Option<SegmentAnswer> {
    let end = address.saturating_add(size);
    let has_it = |told: &SegmentAnswer| told.address <= address && end <= told.address.saturating_add(told.size);
    query::segment(address, memory == MemoryKind::Pool).filter(has_it)
}

/// After a call that may have given memory back to devices.
pub(super) fn settle(result: c_int) {
    if result != SUCCESS || attention::is_idle() || guard::state() & guard::OWN != 0 {
        return;
    }
    let _own = guard::own_work();
    let _ = catch_unwind(look);
}

/// The same after what is to be done anyhow.
pub(super) fn then_settle(done: impl FnOnce(c_int)) -> impl FnOnce(c_int) {
    move |result| {
        done(result);
        settle(result);
    }
}

/// Asks the pools that have segments without blocks.
pub(super) fn look() {
    recorder::cuda_devices().for_each(settle_device);
}

fn settle_device(device: Device) {
    let (pools_with_empty, asked) = device_memory::pools_with_empty(device);
    for pool in pools_with_empty {
        match pool {
            0 => device_memory::drop_empty_segments(device),
            pool if pools::was_destroyed(pool) => device_memory::pool_has(device, pool, 0, asked),
            pool => {
                if let Some(bytes) = query::reserved(pool) {
                    device_memory::pool_has(device, pool, bytes, asked);
                }
            }
        }
    }
}
