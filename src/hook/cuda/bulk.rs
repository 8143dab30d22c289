//! Contexts that end take their memory with them, without a call for each block.

use std::ffi::c_int;

use super::driver::SUCCESS;
use super::{handles, imports, query, segments};
use crate::record::device_memory::Live;
use crate::record::measure::{self, Space};
use crate::record::memory::{OwnVec, System};
use crate::record::{gates, guard, recorder};
use crate::snapshot::Device;

/// What is live before a context may end.
#[derive(Debug)]
pub(super) struct Before {
    recorded: OwnVec<Live>,
    measured: OwnVec<(Space, u64)>,
}

pub(super) fn before() -> Before {
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
        if let Some(live) = Live::on(device).filter(|_| all.try_reserve(1).is_ok()) {
            all.push(live);
        }
    }
    before
}

/// A context that may come to an end, if anything in it is known by a handle.
pub(super) struct Ending {
    context: usize,
    /// The device whose primary context is given back, and may have other users.
    given_back: Option<c_int>,
}

impl Ending {
    pub(super) fn of_context(context: usize) -> Self {
        Self { context, given_back: None }
    }

    pub(super) fn of_reset(device: c_int) -> Self {
        Self { given_back: None, ..Self::of_release(device) }
    }

    pub(super) fn of_release(device: c_int) -> Self {
        let context = if handles::any_of_contexts() { query::primary(device).unwrap_or(0) } else { 0 };
        Self { context, given_back: Some(device) }
    }

    pub(super) fn done(self, result: c_int) {
        let is_alive = || self.given_back.is_some_and(query::primary_is_active);
        if result == SUCCESS && self.context != 0 && !is_alive() {
            handles::ended(self.context);
        }
        if result == SUCCESS {
            imports::context_ended();
        }
        segments::settle(result);
    }
}

/// What the driver no longer knows was freed. What took its address meanwhile is somebody else's: the
/// position in the log tells them apart.
pub(super) fn after(result: c_int, before: Before) {
    if result != SUCCESS {
        return;
    }
    let _own = guard::own_work();
    before.recorded.into_iter().for_each(|live| live.freed(query::is_gone));
    let is_gone = |(space, address): &(Space, u64)| measure::knows(*space, *address) && query::is_gone(*address);
    for (space, address) in before.measured.into_iter().filter(is_gone) {
        measure::on_free(space, address, None);
    }
}
