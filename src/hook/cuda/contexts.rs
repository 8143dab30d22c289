//! The end of contexts, which frees their memory without a call for each block.

use std::ffi::c_int;

use super::driver::SUCCESS;
use super::types::Handle;
use super::{array_mappings, attention, device, gone, handles, imports, query, segments};

pub(super) fn destroyed(context: Handle) -> impl FnOnce(c_int) {
    ending(move || context.addr(), None)
}

pub(super) fn primary_reset(device: c_int) -> impl FnOnce(c_int) {
    ending(move || primary(device), None)
}

/// If the primary context has other users, it stays active.
pub(super) fn primary_released(device: c_int) -> impl FnOnce(c_int) {
    ending(move || primary(device), Some(device))
}

fn primary(device: c_int) -> usize {
    query::primary(device).unwrap_or(0)
}

fn ending(context: impl FnOnce() -> usize, primary_of: Option<c_int>) -> impl FnOnce(c_int) {
    let context = if handles::any_of_contexts() || array_mappings::any() { context() } else { 0 };
    if attention::is_recording() {
        query::remember();
    } else {
        query::forget_last();
    }
    move |result| {
        if result != SUCCESS {
            return;
        }
        device::context_ended();
        if !attention::is_idle() {
            gone::free();
        }
        if context != 0 && !primary_of.is_some_and(query::primary_is_active) {
            handles::ended(context);
            array_mappings::ended(context);
        }
        imports::context_ended();
        segments::settle(result);
    }
}
