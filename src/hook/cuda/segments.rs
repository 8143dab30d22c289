//! Segments of the driver's pools. The driver is queried about a block that lies outside all known segments. After a
//! call that may have released segments, the driver is queried about the pools.
//!
//! Each segment is queried once. For a block inside a known segment, searching a sorted list is enough. A pool's
//! reserved bytes show how much it has released, but not which segments. Empty segments are taken for the released
//! ones, and marked as estimated where that is ambiguous.
//!
//! No lock of the recorder is held during a query, so two answers may be entered out of order. Each answer carries the
//! number of answers that were entered before its query. An answer that was overtaken releases no segments; the next
//! one does ([`crate::record::ledger::segments`]).

use std::ffi::c_int;
use std::panic::catch_unwind;

use memtrace_core::snapshot::{Device, MemoryKind};

use super::driver::SUCCESS;
use super::{attention, pools, query};
use crate::record::ledger::segments::SegmentAnswer;
use crate::record::{device_memory, guard, recorder};

/// The segment that contains a block, if the driver reports one.
pub(super) fn segment_of(address: u64, size: u64, memory: MemoryKind) -> Option<SegmentAnswer> {
    let end = address.saturating_add(size);
    let contains =
        |segment: &SegmentAnswer| segment.address <= address && end <= segment.address.saturating_add(segment.size);
    query::segment(address, memory == MemoryKind::Pool).filter(contains)
}

/// Called after a driver call that may have released memory to devices.
pub(super) fn settle(result: c_int) {
    if result != SUCCESS || attention::is_idle() || guard::state() & guard::OWN != 0 {
        return;
    }
    let _own = guard::own_work();
    let _ = catch_unwind(look);
}

/// Queries the pools that have segments without blocks.
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
