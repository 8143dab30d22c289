//! Contexts that end and free their memory without a call for each block.
//!
//! Which blocks a context took with it is queried from the driver, block by block, after the context ended. So memtrace
//! needs no rules about pools, reference counts and resets.

use std::ffi::c_int;

use super::driver::SUCCESS;
use super::types::Handle;
use super::{attention, handles, imports, query, segments};
use crate::record::device_memory::LiveOnDevice;
use crate::record::measure::{self, Space};
use crate::record::memory::{OwnVec, System};
use crate::record::{gates, guard, recorder};
use crate::snapshot::Device;

#[derive(Debug)]
struct LiveBefore {
    recorded: OwnVec<LiveOnDevice>,
    measured: OwnVec<(Space, u64)>,
}

fn live_before() -> LiveBefore {
    let mut before = LiveBefore { recorded: OwnVec::new_in(System), measured: OwnVec::new_in(System) };
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

pub(super) fn destroyed(context: Handle) -> impl FnOnce(c_int) {
    ending(move || context.addr(), None)
}

pub(super) fn primary_reset(device: c_int) -> impl FnOnce(c_int) {
    ending(move || primary(device), None)
}

/// The primary context may have other users, and then stays active.
pub(super) fn primary_released(device: c_int) -> impl FnOnce(c_int) {
    ending(move || primary(device), Some(device))
}

/// The device's primary context, or 0 if nothing in it is known by a handle.
fn primary(device: c_int) -> usize {
    if handles::any_of_contexts() { query::primary(device).unwrap_or(0) } else { 0 }
}

fn ending(context: impl FnOnce() -> usize, primary_of: Option<c_int>) -> impl FnOnce(c_int) {
    let is_idle = attention::is_idle() && !handles::any_of_contexts();
    let ending = if is_idle { None } else { Some((live_before(), context())) };
    move |result| {
        let Some((before, context)) = ending.filter(|_| result == SUCCESS) else { return };
        free_what_is_gone(before);
        if context != 0 && !primary_of.is_some_and(query::primary_is_active) {
            handles::ended(context);
        }
        imports::context_ended();
        segments::settle(result);
    }
}

/// Frees what the driver no longer knows. A new block may have taken the address meanwhile; its position in the log
/// tells the two apart.
fn free_what_is_gone(before: LiveBefore) {
    let _own = guard::own_work();
    before.recorded.into_iter().for_each(|live| live.freed(query::is_gone));
    let is_gone = |(space, address): &(Space, u64)| measure::knows(*space, *address) && query::is_gone(*address);
    for (space, address) in before.measured.into_iter().filter(is_gone) {
        measure::on_free(space, address, None);
    }
}
