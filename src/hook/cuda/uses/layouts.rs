//! Argument layouts of kernels. They come from the driver (12.4 and later), or else from the PTX or cubin that was
//! loaded.

use std::ffi::{CStr, c_char, c_int};

use memtrace_core::snapshot::StackId;

use super::images;
use super::submit::is_wanted;
use crate::hook::cuda::driver::SUCCESS;
use crate::hook::cuda::functions::{
    answer, cuCtxGetDevice, cuFuncGetAttribute, cuFuncGetName, cuFuncGetParamInfo, cuKernelGetAttribute,
    cuKernelGetName, cuKernelGetParamInfo,
};
use crate::hook::cuda::notify;
use crate::hook::cuda::pointers::{CallerPtr, text};
use crate::hook::cuda::table::HandleTable;
use crate::hook::cuda::types::Handle;
use crate::hook::files::NamedFile;
use crate::record::memory::{OwnVec, System, try_copy};
use crate::record::uses::{ArgumentLayout, KernelEntry, Parameter, add_parameter};
use crate::record::{guard, uses};

/// Bytes of stack that each thread of a new context has.
const DEFAULT_STACK: u64 = 1 << 10;

/// A function's name, and its parameters if they are known.
type Signature = (OwnVec<u8>, Option<ArgumentLayout>);

/// Signatures found in the images of modules and libraries, by the handles of these.
static MODULES: HandleTable<usize, OwnVec<KernelEntry>> = HandleTable::new();
/// Signatures by the handles of functions.
static SIGNATURES: HandleTable<usize, Signature> = HandleTable::new();

/// A module or library was loaded from this image.
pub(in crate::hook::cuda) fn loaded(out: CallerPtr<usize>, image: *const c_char) -> impl FnOnce(c_int) {
    move |result| enter(out.written(result), || images::in_memory(image))
}

/// A module or library was loaded from this file.
pub(in crate::hook::cuda) fn loaded_file(out: CallerPtr<usize>, path: *const c_char) -> impl FnOnce(c_int) {
    let file = if is_wanted() { text(path).and_then(NamedFile::now) } else { None };
    move |result| {
        enter(out.written(result), || {
            file.and_then(NamedFile::read).map_or(OwnVec::new_in(System), |file| images::entries(&file))
        });
    }
}

/// Enters the signatures of a new module. Forgets another module that had the handle.
fn enter(module: Option<usize>, entries: impl FnOnce() -> OwnVec<KernelEntry>) {
    let Some(module) = module.filter(|_| is_wanted()) else { return };
    let _own = guard::own_work();
    MODULES.forget(module);
    let entries = entries();
    if !entries.is_empty() {
        MODULES.insert(module, entries);
    }
}

/// A module or library is about to be unloaded, so its handles may be reused.
pub(in crate::hook::cuda) fn unloading(module: Handle) -> fn(c_int) {
    if uses::is_on() {
        MODULES.forget(module.addr());
    }
    forget()
}

/// Functions are about to end with their context or module.
pub(in crate::hook::cuda) fn forget() -> fn(c_int) {
    uses::with(|table| table.kernels.forget_functions());
    |_| {}
}

/// A kernel was looked up in a module or library.
pub(in crate::hook::cuda) fn found(out: CallerPtr<usize>, module: Handle, name: *const c_char) -> impl FnOnce(c_int) {
    move |result| {
        if !uses::is_on() {
            return;
        }
        let Some((function, name)) = out.written(result).zip(text(name)) else { return };
        let of_name = |entries: &mut OwnVec<KernelEntry>| {
            let entry = entries.iter().find(|entry| entry.name.as_slice() == name.to_bytes())?;
            try_copy(entry.layout.as_ref()?)
        };
        let layout = MODULES.change(module.addr(), of_name).flatten();
        keep(function, (try_copy(name.to_bytes()).unwrap_or(OwnVec::new_in(System)), layout));
    }
}

/// A kernel's function was looked up. The function has the signature of the kernel.
pub(in crate::hook::cuda) fn function_of(out: CallerPtr<usize>, kernel: Handle) -> impl FnOnce(c_int) {
    move |result| {
        if !uses::is_on() {
            return;
        }
        let Some(function) = out.written(result) else { return };
        if let Some(signature) = signature_of(kernel.addr()) {
            keep(function, signature);
        }
    }
}

/// Keeps the signature of a function. The handle may have belonged to another function before.
fn keep(function: usize, signature: Signature) {
    SIGNATURES.forget(function);
    SIGNATURES.insert(function, signature);
}

fn signature_of(function: usize) -> Option<Signature> {
    let copy =
        |(name, layout): &mut Signature| Some((try_copy(name)?, layout.as_ref().and_then(|layout| try_copy(layout))));
    SIGNATURES.change(function, copy).flatten()
}

/// Enters a function that is launched for the first time into the table of uses. Queries the driver.
#[cold]
pub(super) fn learn(function: Handle) {
    let handle = function.addr();
    let (known, source) = signature_of(handle).unwrap_or((OwnVec::new_in(System), None));
    let layout = of_driver(handle).map(|layout| with_const(layout, source.as_ref())).or(source);
    let name = if known.is_empty() {
        let asked =
            name_by(|name| cuFuncGetName(name, handle)).or_else(|| name_by(|name| cuKernelGetName(name, handle)));
        asked.map_or(&b"(unnamed kernel)"[..], CStr::to_bytes)
    } else {
        known.as_slice()
    };
    let local = local_size(handle);
    let stack = if local > DEFAULT_STACK { notify::site_here().stack } else { StackId::NONE };
    uses::with(|table| table.kernels.learn(handle, name, layout, (local, stack)));
}

/// Bytes of local memory that a thread of the kernel needs; 0 if the driver does not tell.
fn local_size(handle: usize) -> u64 {
    const LOCAL_SIZE_BYTES: c_int = 3;
    let of_function = || answer(|bytes| cuFuncGetAttribute(bytes, LOCAL_SIZE_BYTES, handle));
    let of_kernel = || {
        let device = answer(cuCtxGetDevice)?;
        answer(|bytes| cuKernelGetAttribute(bytes, LOCAL_SIZE_BYTES, handle, device))
    };
    of_function().or_else(of_kernel).and_then(|bytes| bytes.try_into().ok()).unwrap_or(0)
}

fn name_by<'a>(call: impl FnOnce(&mut usize) -> Option<c_int>) -> Option<&'a CStr> {
    text(std::ptr::with_exposed_provenance::<c_char>(answer(call)?))
}

/// The parameters that the driver knows. A function without parameters cannot be distinguished from one that the driver
/// does not know, so both have `None`.
fn of_driver(handle: usize) -> Option<ArgumentLayout> {
    let by = |call: fn(usize, usize, &mut usize, &mut usize) -> Option<c_int>| {
        let mut layout = OwnVec::new_in(System);
        loop {
            let (mut offset, mut size) = (0, 0);
            if call(handle, layout.len(), &mut offset, &mut size) != Some(SUCCESS) {
                break;
            }
            let size = u32::try_from(size).ok()?;
            add_parameter(&mut layout, Parameter { size, is_const: false })?;
        }
        (!layout.is_empty()).then_some(layout)
    };
    by(cuFuncGetParamInfo).or_else(|| by(cuKernelGetParamInfo))
}

/// Adds what the driver does not report, but the loaded image (`source`) may: which parameters are `const`.
fn with_const(mut layout: ArgumentLayout, source: Option<&ArgumentLayout>) -> ArgumentLayout {
    let Some(source) = source.filter(|source| source.len() == layout.len()) else { return layout };
    for (known, told) in layout.iter_mut().zip(source) {
        known.is_const = told.is_const && told.size == known.size;
    }
    layout
}
