//! NVTX, NVIDIA's tools extension: a range that the program pushes on a thread is a scope there until it is popped.
//!
//! Programs contain NVTX as C headers. At its first call, each copy of them loads the library that `NVTX_INJECTION64_PATH` names
//! and calls its [`initialize`], which puts the functions in `calls` into the copy's tables. A copy that finds no library does
//! nothing from then on. Left out is all that is no scope of a thread: marks, names, and process ranges (`nvtxRangeStart`), which may
//! end on another thread.
#![expect(unsafe_code, reason = "reads and writes tables of C's")]

mod calls;
mod message;

use std::ffi::{c_int, c_uint, c_void};

/// Finds a table by its number; null for none.
type GetExportTable = unsafe extern "C" fn(c_uint) -> *const c_void;

/// The number of the table [`Callbacks`].
const CALLBACKS: c_uint = 1;

/// What a copy of the headers gives a tool.
#[repr(C)]
struct Callbacks {
    size: usize,
    /// Sets the array of a module's slots and how many there are; 0 for an unknown module.
    slots: Option<unsafe extern "C" fn(c_int, *mut Slots, *mut c_uint) -> c_int>,
}

/// An array of addresses: of the variables in which the headers keep their functions. Entry 0 is null.
type Slots = *const *mut Function;

/// A function of any type; null is one that does nothing.
type Function = *const c_void;

/// Takes what NVTX's functions report. Always 1, for success: after a 0 the headers would unload the library.
///
/// # Safety
/// `tables` is null, or a copy of NVTX's headers passes its function.
#[unsafe(export_name = "InitializeInjectionNvtx2")]
unsafe extern "C" fn initialize(tables: Option<GetExportTable>) -> c_int {
    if crate::may_record()
        && let Some(tables) = tables
    {
        // SAFETY: as the caller promises.
        let callbacks = unsafe { tables(CALLBACKS) }.cast::<Callbacks>();
        for (module, functions) in calls::MODULES {
            // SAFETY: this is what the number stands for.
            unsafe { attach(callbacks, module, functions) };
        }
    }
    1
}

/// Puts functions into a module's slots.
///
/// # Safety
/// `callbacks` is null or a table of NVTX's.
unsafe fn attach(callbacks: *const Callbacks, module: c_int, functions: &[(usize, Function)]) {
    // SAFETY: as the caller promises.
    let Some(callbacks) = (unsafe { callbacks.as_ref() }).filter(|table| table.size >= size_of::<Callbacks>()) else {
        return;
    };
    let Some(get) = callbacks.slots else { return };
    let (mut slots, mut count) = (std::ptr::null(), 0);
    // SAFETY: both places are valid.
    let is_known = unsafe { get(module, &mut slots, &mut count) } != 0;
    if !is_known || slots.is_null() {
        return;
    }
    for &(number, function) in functions.iter().filter(|(number, _)| *number < count as usize) {
        // SAFETY: within the array.
        let slot = unsafe { slots.add(number).read() };
        if !slot.is_null() {
            // SAFETY: the headers' variable for a function of this type.
            unsafe { slot.write(function) };
        }
    }
}
