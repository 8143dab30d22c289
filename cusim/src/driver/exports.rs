//! Everything that the driver exports, by name.

use std::ffi::CStr;

/// A function that the driver exports.
pub(super) struct Export {
    pub(super) name: &'static CStr,
    pub(super) function: unsafe extern "C" fn(),
}

include!(concat!(env!("OUT_DIR"), "/exports.rs"));
