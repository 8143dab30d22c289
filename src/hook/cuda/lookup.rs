//! Who looks up a function of the driver gets ours: by `dlsym` or by an import. (`cuGetProcAddress` is one of the [`calls`].)

use std::ffi::{CStr, c_void};

use super::calls;
use super::driver::{self, Function};
use crate::hook::interpose::Pair;

/// Does the name look like one of the driver's?
pub(super) fn is_meant(name: &CStr) -> bool {
    name.to_bytes().starts_with(b"cu")
}

/// Ours, if what the caller would find is the driver's own: only what is there is answered.
pub(super) fn answer(name: &CStr, find: &dyn Fn() -> *mut c_void) -> Option<usize> {
    let (_, ours) = function(name)?;
    is_the_drivers(find(), name).then_some(ours)
}

/// The driver's function of that name and ours, as far as they were looked up.
pub(super) fn pair(name: &CStr) -> Option<Pair> {
    let (function, ours) = function(name)?;
    Some(Pair { real: function.known_address()?, ours, interposed: function.is_interposed(), is_counted: true })
}

/// Asks the driver for all its functions, once each.
pub(super) fn look_up_all() {
    calls::all().for_each(|(function, _)| _ = function.address());
}

fn function(name: &CStr) -> Option<(&'static Function, usize)> {
    calls::all().find(|(function, _)| function.name() == name)
}

fn is_the_drivers(address: *mut c_void, name: &CStr) -> bool {
    !address.is_null() && driver::find(name).is_some_and(|real| real == address.addr())
}
