//! Initialization, version, and error names.

use std::ffi::{CStr, c_char};

use super::abi::Out;
use super::process;
use crate::code::{Answer, INVALID_VALUE, demand, words};
use crate::faults::CallKind;

/// CUDA 13.0.
pub(super) const VERSION: i32 = 13000;

driver! {
    fn cuInit(flags: u32) {
        process::pause(CallKind::Init);
        if flags == 0 { process::start() } else { Err(INVALID_VALUE) }
    }

    fn cuDriverGetVersion(version: Out<i32>) => version.set(VERSION);

    fn cuGetErrorName(code: u32, name: Out<*const c_char>) => set_text(name, words(code).map(|(name, _)| name));
    fn cuGetErrorString(code: u32, text: Out<*const c_char>) => set_text(text, words(code).map(|(_, text)| text));
    fn cuProfilerStart() | cuProfilerStop() => Ok(());
}

fn set_text(to: Out<*const c_char>, text: Option<&CStr>) -> Answer {
    to.set(text.map_or(std::ptr::null(), CStr::as_ptr))?;
    demand(text.is_some())
}
