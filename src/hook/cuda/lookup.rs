//! Who looks up a function of the driver gets ours: by `dlsym`, by `cuGetProcAddress`, by an import.
#![expect(unsafe_code, reason = "functions of the driver's C interface")]

use std::ffi::{CStr, c_char, c_int, c_void};

use super::calls;
use super::driver::{self, Function};
use crate::hook::interpose::{Pair, dlsym};

/// Does the name look like one of the driver's?
pub(super) fn is_meant(name: &CStr) -> bool {
    name.to_bytes().starts_with(b"cu")
}

/// Ours, if what the caller would find is the driver's own: only what is there is answered.
pub(super) fn answer(name: &CStr, find: &dyn Fn() -> *mut c_void) -> Option<usize> {
    let (_, ours) = function(name.to_bytes())?;
    is_the_drivers(find(), name).then_some(ours)
}

/// The driver's function of that name and ours, as far as they were looked up.
pub(super) fn pair(name: &CStr) -> Option<Pair> {
    let (function, ours) = function(name.to_bytes())?;
    Some(Pair { real: function.known_address()?, ours, interposed: function.is_interposed(), is_counted: true })
}

/// Asks the driver for all its functions, once each.
pub(super) fn look_up_all() {
    calls::look_up_all();
    [&REAL, &REAL_V2].into_iter().for_each(|function| _ = function.address());
}

fn function(name: &[u8]) -> Option<(&'static Function, usize)> {
    known(name).or_else(|| calls::known(name))
}

/// The look-up functions themselves, and ours.
fn known(name: &[u8]) -> Option<(&'static Function, usize)> {
    match name {
        b"cuGetProcAddress" => Some((&REAL, get_proc_address as *const () as usize)),
        b"cuGetProcAddress_v2" => Some((&REAL_V2, get_proc_address_v2 as *const () as usize)),
        _ => None,
    }
}

fn is_the_drivers(address: *mut c_void, name: &CStr) -> bool {
    !address.is_null() && driver::find(name).is_some_and(|real| real == address.addr())
}

type GetProcAddress = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64) -> c_int;
type GetProcAddressV2 = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> c_int;

static REAL: Function = Function::new(c"cuGetProcAddress");
static REAL_V2: Function = Function::new(c"cuGetProcAddress_v2");

/// # Safety
/// The arguments as the driver's function takes them.
unsafe extern "C" fn get_proc_address(name: *const c_char, out: *mut *mut c_void, version: c_int, flags: u64) -> c_int {
    let Some(real) = REAL.address() else { return driver::NOT_FOUND };
    // SAFETY: the address is that of the function with this signature.
    let real = unsafe { std::mem::transmute::<usize, GetProcAddress>(real) };
    // SAFETY: the arguments are the caller's.
    let result = unsafe { real(name, out, version, flags) };
    // SAFETY: `out` is the caller's, and the driver has filled it in if the result is 0.
    unsafe { substitute(result, out) };
    result
}

/// # Safety
/// The arguments as the driver's function takes them.
unsafe extern "C" fn get_proc_address_v2(
    name: *const c_char,
    out: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut c_int,
) -> c_int {
    let Some(real) = REAL_V2.address() else { return driver::NOT_FOUND };
    // SAFETY: the address is that of the function with this signature.
    let real = unsafe { std::mem::transmute::<usize, GetProcAddressV2>(real) };
    // SAFETY: the arguments are the caller's.
    let result = unsafe { real(name, out, version, flags, status) };
    // SAFETY: `out` is the caller's, and the driver has filled it in if the result is 0.
    unsafe { substitute(result, out) };
    result
}

/// Puts our function where the driver's was found, by its address: names and versions do not matter.
///
/// # Safety
/// If `result` is 0, `out` is null or points to an address.
unsafe fn substitute(result: c_int, out: *mut *mut c_void) {
    if result != 0 || out.is_null() {
        return;
    }
    // SAFETY: the caller says so.
    let found = unsafe { out.read() };
    if let Some(ours) = by_address(found.addr()).or_else(|| calls::by_address(found.addr())) {
        dlsym::count_answer();
        // SAFETY: the caller says so.
        unsafe { out.write(std::ptr::with_exposed_provenance_mut(ours)) };
    }
}

fn by_address(address: usize) -> Option<usize> {
    let both = [(&REAL, get_proc_address as *const () as usize), (&REAL_V2, get_proc_address_v2 as *const () as usize)];
    both.into_iter().find(|(real, _)| real.address() == Some(address)).map(|(_, ours)| ours)
}
