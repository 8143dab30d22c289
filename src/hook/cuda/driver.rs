//! The driver's own functions.
#![expect(unsafe_code, reason = "the loader is asked in C")]

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::lookup;

pub(super) const SUCCESS: c_int = 0;
pub(super) const OUT_OF_MEMORY: c_int = 2;
/// The driver is shutting down: at the process's end.
pub(super) const DEINITIALIZED: c_int = 4;
pub(super) const NOT_FOUND: c_int = 500;

/// A function of the driver by its symbol, looked up at its first use.
#[derive(Debug)]
pub(super) struct Function {
    name: &'static CStr,
    address: AtomicUsize,
}

/// It was looked for and is not there.
const ABSENT: usize = 1;

impl Function {
    pub(super) const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicUsize::new(0) }
    }

    /// The same for a name with a zero byte behind it; any other is no function's.
    pub(super) const fn named(name: &'static str) -> Self {
        match CStr::from_bytes_with_nul(name.as_bytes()) {
            Ok(name) => Self::new(name),
            Err(_) => Self::new(c""),
        }
    }

    /// Its address, if the driver is loaded and has it.
    #[inline]
    pub(super) fn address(&self) -> Option<usize> {
        match self.address.load(Ordering::Acquire) {
            0 => self.look_up(),
            ABSENT => None,
            address => Some(address),
        }
    }

    #[cold]
    fn look_up(&self) -> Option<usize> {
        let handle = handle()?;
        let address = lookup::real_dlsym(handle, self.name).addr();
        self.address.store(if address == 0 { ABSENT } else { address }, Ordering::Release);
        (address != 0).then_some(address)
    }
}

/// The address of a name in the driver, if that is loaded.
pub(super) fn find(name: &CStr) -> Option<usize> {
    let address = lookup::real_dlsym(handle()?, name).addr();
    (address != 0).then_some(address)
}

pub(super) fn is_loaded() -> bool {
    handle().is_some()
}

/// The loaded driver. It is asked for by its name in the loader: the driver calls itself directly, so
/// neither the next nor the default of its names need be its own.
fn handle() -> Option<*mut c_void> {
    static HANDLE: AtomicUsize = AtomicUsize::new(0);
    let known = HANDLE.load(Ordering::Acquire);
    if known != 0 {
        return Some(std::ptr::with_exposed_provenance_mut(known));
    }
    // SAFETY: it looks for an object that is loaded already, and loads none.
    let handle = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return None;
    }
    HANDLE.store(handle.expose_provenance(), Ordering::Release);
    Some(handle)
}
