//! Contexts that end take their memory with them, without a call for each block.

use std::ffi::c_int;

use super::driver::SUCCESS;
use super::words::Handle;
use super::{attention, handles, imports, query, segments};
use crate::record::device_memory::LiveOnDevice;
use crate::record::measure::{self, Space};
use crate::record::memory::{OwnVec, System};
use crate::record::{gates, guard, recorder};
use crate::snapshot::Device;

/// What is live before a context may end.
#[derive(Debug)]
struct Before {
    recorded: OwnVec<LiveOnDevice>,
    measured: OwnVec<(Space, u64)>,
}

fn before() -> Before {
    let mut before = Before { recorded: OwnVec::new_in(System), measured: OwnVec::new_in(System) };
    if guard::state() & guard::OWN != 0 {
        return before;
    }
    let _own = guard::own_work();
    if gates::any_measurement() {
        before.measured = measure::device_blocks();
    }
    let all = &mut before.recorded;
    for device in recorder::devices().filter(|device| *device != Device::Cpu) {
        if let Some(live) = LiveOnDevice::on(device).filter(|_| all.try_reserve(1).is_ok()) {
            all.push(live);
        }
    }
    before
}

/// Returns the callback to run with `cuCtxDestroy`'s result.
pub(super) fn context_destroyed(context: Handle) -> impl FnOnce(c_int) {
    ending(move || context.addr(), None)
}

/// Returns the callback to run with `cuDevicePrimaryCtxReset`'s result.
pub(super) fn primary_reset(device: c_int) -> impl FnOnce(c_int) {
    ending(move || primary(device), None)
}

/// Returns the callback to run with `cuDevicePrimaryCtxRelease`'s result. The context may have other users.
pub(super) fn primary_released(device: c_int) -> impl FnOnce(c_int) {
    ending(move || primary(device), Some(device))
}

/// The primary context of a device, or 0, if anything in it is known by a handle.
fn primary(device: c_int) -> usize {
    if handles::any_of_contexts() { query::primary(device).unwrap_or(0) } else { 0 }
}

/// A context may come to an end, unless it is the primary one of a device and stays active.
fn ending(context: impl FnOnce() -> usize, primary_of: Option<c_int>) -> impl FnOnce(c_int) {
    let is_idle = attention::is_idle() && !handles::any_of_contexts();
    let ending = if is_idle { None } else { Some((before(), context())) };
    move |result| {
        let Some((before, context)) = ending.filter(|_| result == SUCCESS) else { return };
        after(before);
        if context != 0 && !primary_of.is_some_and(query::primary_is_active) {
            handles::ended(context);
        }
        imports::context_ended();
        segments::settle(result);
    }
}

/// What the driver no longer knows was freed. What took its address meanwhile is somebody else's: the
/// position in the log tells them apart.
fn after(before: Before) {
    let _own = guard::own_work();
    before.recorded.into_iter().for_each(|live| live.freed(query::is_gone));
    let is_gone = |(space, address): &(Space, u64)| measure::knows(*space, *address) && query::is_gone(*address);
    for (space, address) in before.measured.into_iter().filter(is_gone) {
        measure::on_free(space, address, None);
    }
}
