//! NVTX, NVIDIA's tools extension. A range that the program pushes on a thread is a scope there until it is popped.
//!
//! Programs contain NVTX as C headers. At its first call, each copy of the headers loads the library that
//! `NVTX_INJECTION64_PATH` names and calls its [`initialize`], which puts the functions in `calls` into the copy's
//! tables. A copy that finds no library does nothing from then on.
//!
//! Marks, names, and process ranges (`nvtxRangeStart`) are left out, because they are no scopes of a thread. A process
//! range may end on another thread.
#![expect(unsafe_code, reason = "reads and writes tables of C's")]

mod calls;
mod message;

use std::ffi::{c_int, c_uint};

use memtrace::nvtx_tables::{CALLBACKS, Callbacks, Function, GetExportTable, Slots};

/// Puts the functions of `calls` into NVTX's tables. Always returns 1 (success), because after a 0 the headers would
/// unload the library.
///
/// # Safety
/// `tables` is null, or the function that a copy of NVTX's headers passes.
#[unsafe(export_name = "InitializeInjectionNvtx2")]
unsafe extern "C" fn initialize(tables: Option<GetExportTable>) -> c_int {
    if let Some(tables) = tables.filter(|_| crate::may_record()) {
        // SAFETY: as the caller promises.
        let callbacks = unsafe { tables(CALLBACKS) }.cast();
        for (module, functions) in calls::MODULES {
            // SAFETY: the pointer is null or the table with this number.
            let (slots, count) = unsafe { slots(callbacks, module) }.unwrap_or((std::ptr::null(), 0));
            for &(number, function) in functions.iter().filter(|(number, _)| *number < count) {
                // SAFETY: this is one of the slots, and the function is the one for it.
                unsafe { fill(slots.wrapping_add(number), function) };
            }
        }
    }
    1
}

/// A module's slots, and their number.
///
/// # Safety
/// `callbacks` is null or NVTX's table.
unsafe fn slots(callbacks: *const Callbacks, module: c_int) -> Option<(Slots, usize)> {
    // SAFETY: as the caller promises.
    let callbacks = unsafe { callbacks.as_ref() }.filter(|table| table.size >= size_of::<Callbacks>())?;
    let get = callbacks.slots?;
    let (mut slots, mut count): (Slots, c_uint) = (std::ptr::null(), 0);
    // SAFETY: both places are valid.
    let is_known = unsafe { get(module, &mut slots, &mut count) } != 0;
    (is_known && !slots.is_null()).then_some((slots, count as usize))
}

/// Puts a function where the headers will look for it.
///
/// # Safety
/// `slot` is an entry of NVTX's array, and the function has the type that its number stands for.
unsafe fn fill(slot: Slots, function: Function) {
    // SAFETY: as the caller promises.
    let place = unsafe { slot.read() };
    if !place.is_null() {
        // SAFETY: as the caller promises.
        unsafe { place.write(function) };
    }
}
