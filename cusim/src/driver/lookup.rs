//! `cuGetProcAddress`: look-up of functions by name and version, with the same addresses as `dlsym`.

use std::fmt::Write as _;

use super::abi::{CallerText, Out};
use super::exports::EXPORTS;
use super::init::VERSION;
use crate::code::{Answer, INVALID_VALUE, NOT_FOUND};
use crate::say::StackText;

driver! {
    fn cuGetProcAddress(name: CallerText, function: Out<usize>, version: i32, flags: u64) =>
        look_up(name, function, version, flags);

    fn cuGetProcAddress_v2(name: CallerText, function: Out<usize>, version: i32, flags: u64, status: Out<u32>) {
        let answer = look_up(name, function, version, flags);
        status.offer(if answer.is_ok() { 0 } else { SYMBOL_NOT_FOUND });
        answer
    }
}

const SYMBOL_NOT_FOUND: u32 = 1;

/// The flag of programs that were built with a per-thread default stream.
const PER_THREAD: u64 = 2;

/// Variants of functions that are newer than CUDA 4.0, and the CUDA version that introduced each of them.
const SINCE: [(&str, i32); 19] = [
    ("cuGetProcAddress_v2", 12000),
    ("cuDeviceGetUuid_v2", 11040),
    ("cuDevicePrimaryCtxRelease_v2", 11000),
    ("cuDevicePrimaryCtxReset_v2", 11000),
    ("cuDevicePrimaryCtxSetFlags_v2", 11000),
    ("cuCtxCreate_v3", 11040),
    ("cuCtxCreate_v4", 12050),
    ("cuCtxSynchronize_v2", 13000),
    ("cuEventElapsedTime_v2", 12080),
    ("cuGraphAddNode_v2", 12030),
    // Functions that are newer than this driver.
    ("cuGraphAddNode_v3", i32::MAX),
    ("cuGraphInstantiate_v2", 11000),
    ("cuMemAdvise_v2", 12020),
    ("cuMemPrefetchAsync_v2", 12020),
    ("cuStreamBeginCapture_v2", 10010),
    ("cuStreamGetCaptureInfo_v2", 11030),
    ("cuStreamGetCaptureInfo_v3", 12030),
    ("cuStreamGetCtx_v2", 12050),
    ("cuMemHostRegister_v2", 6050),
];

fn look_up(name: CallerText, function: Out<usize>, version: i32, flags: u64) -> Answer {
    let name = name.get()?.to_str().map_err(|_| INVALID_VALUE)?;
    let version = version.min(VERSION);
    // Since CUDA 12 this name means the function with flags.
    let name = if name == "cuGraphInstantiate" && version >= 12000 { "cuGraphInstantiateWithFlags" } else { name };
    let forms = ["_v4", "_v3", "_v2", ""];
    let newest = forms.iter().find_map(|form| find_form(name, form, version, flags));
    function.set(newest.unwrap_or(0))?;
    newest.map(|_| ()).ok_or(NOT_FOUND)
}

/// The address of one variant of a function. With [`PER_THREAD`], it is the variant for a per-thread default
/// stream if there is one.
fn find_form(name: &str, form: &str, version: i32, flags: u64) -> Option<usize> {
    let mut line = StackText::new();
    write!(line, "{name}{form}").ok()?;
    let full = line.text();
    if SINCE.iter().any(|(name, since)| *name == full && *since > version) {
        return None;
    }
    let plain = find(full);
    if flags & PER_THREAD == 0 {
        return plain;
    }
    find_suffixed(full, "_ptsz").or_else(|| find_suffixed(full, "_ptds")).or(plain)
}

fn find_suffixed(name: &str, suffix: &str) -> Option<usize> {
    let mut line = StackText::new();
    write!(line, "{name}{suffix}").ok()?;
    find(line.text())
}

fn find(name: &str) -> Option<usize> {
    let index = EXPORTS.binary_search_by_key(&name.as_bytes(), |export| export.name.to_bytes()).ok()?;
    EXPORTS.get(index).map(|export| export.function as usize)
}
