//! Initialization, version, and error names.

use std::ffi::c_char;

use super::abi::Out;
use super::process;
use crate::code::{INVALID_VALUE, words};
use crate::faults::CallKind;

/// CUDA 13.0.
pub(super) const VERSION: i32 = 13000;

driver! {
    fn cuInit(flags: u32) {
        process::pause(CallKind::Init);
        if flags == 0 { process::start() } else { Err(INVALID_VALUE) }
    }

    fn cuDriverGetVersion(version: Out<i32>) => version.set(VERSION);

    fn cuGetErrorName(code: u32, name: Out<*const c_char>) {
        let words = words(code);
        name.set(words.map_or(std::ptr::null(), |(name, _)| name.as_ptr()))?;
        words.map(|_| ()).ok_or(INVALID_VALUE)
    }

    fn cuGetErrorString(code: u32, text: Out<*const c_char>) {
        let words = words(code);
        text.set(words.map_or(std::ptr::null(), |(_, text)| text.as_ptr()))?;
        words.map(|_| ()).ok_or(INVALID_VALUE)
    }

    fn cuProfilerStart() | cuProfilerStop() => Ok(());
}
