//! Tables through which a program's copy of NVTX and the tool that it loads find each other's functions, in the layout
//! of NVTX's headers.

use std::ffi::{c_int, c_uint, c_void};

/// Finds a table by its number; null if there is none.
pub type GetExportTable = unsafe extern "C" fn(c_uint) -> *const c_void;

/// The number of the table [`Callbacks`].
pub const CALLBACKS: c_uint = 1;

/// The table that a copy of NVTX gives a tool.
#[repr(C)]
#[derive(Debug)]
pub struct Callbacks {
    /// Size of the table in bytes.
    pub size: usize,
    /// For a module's number, writes the array of its slots to the second argument, and the number of slots to the
    /// third. Returns 0 for an unknown module.
    pub slots: Option<unsafe extern "C" fn(c_int, *mut Slots, *mut c_uint) -> c_int>,
}

/// An array with the addresses of a module's *slots*, the variables in which NVTX keeps functions. Entry 0 is null.
pub type Slots = *const *mut Function;

/// A function of any type. Null stands for a function that does nothing.
pub type Function = *const c_void;

/// The number of the module (group of functions) whose functions have no domain.
pub const CORE: c_int = 1;
/// The number of the module whose functions have a domain.
pub const CORE2: c_int = 5;
/// The number of slots of each of these two modules.
pub const SLOTS: usize = 16;
/// The slot of `nvtxRangePushA` in [`CORE`].
pub const RANGE_PUSH_A: usize = 9;
/// The slot of `nvtxRangePop` in [`CORE`].
pub const RANGE_POP: usize = 11;
