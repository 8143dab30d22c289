//! Maps names of driver functions to their hooks, for `dlsym` and for imports. ([`calls`] hooks `cuGetProcAddress`.)

use std::ffi::{CStr, c_void};
use std::ops::Range;

use super::calls;
use super::driver::{self, Function};
use crate::hook::interpose::HookedFunction;

pub(super) fn is_candidate(name: &CStr) -> bool {
    name.to_bytes().starts_with(b"cu")
}

/// The hook for a name, if `find`, the caller's own look-up, would return the driver's function.
pub(super) fn hook_for(name: &CStr, find: &dyn Fn() -> *mut c_void) -> Option<usize> {
    let (_, hook) = function(name)?;
    is_the_drivers(find(), name).then_some(hook)
}

/// The driver function with this name and its hook, if the function's address is already known.
pub(super) fn hooked(name: &CStr) -> Option<HookedFunction> {
    let (function, hook) = function(name)?;
    let is_interposed = function.is_interposed();
    Some(HookedFunction { original: function.known_address()?, hook, is_interposed, is_counted: true })
}

pub(super) fn look_up_all() {
    for (function, _) in calls::all() {
        let _ = function.address();
    }
}

/// A range that contains all known originals.
pub(super) fn originals() -> Range<usize> {
    let known = || calls::all().filter_map(|(function, _)| function.known_address());
    known().min().zip(known().max()).map_or(0..0, |(first, last)| first..last.saturating_add(1))
}

/// The hook of the driver's function at this address.
pub(super) fn hook_at(address: usize) -> Option<usize> {
    let (_, hook) = calls::all().find(|(function, _)| function.known_address() == Some(address))?;
    Some(hook)
}

fn function(name: &CStr) -> Option<(&'static Function, usize)> {
    calls::all().find(|(function, _)| function.name() == name)
}

fn is_the_drivers(address: *mut c_void, name: &CStr) -> bool {
    !address.is_null() && driver::find(name).is_some_and(|original| original == address.addr())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_table_of_exports_has_every_hook_under_its_heading() {
        let table = include_str!("exports.txt").split("[hooked]").nth(1).and_then(|rest| rest.split('[').next());
        let listed: BTreeSet<&str> = table.unwrap().split_whitespace().collect();
        let hooks: BTreeSet<&str> = calls::all().map(|(function, _)| function.name().to_str().unwrap()).collect();
        assert_eq!(hooks, listed);
    }
}
