//! The driver's own functions.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::hook::interpose::{dlsym, loader};
use crate::record::fork;

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
    interposed: AtomicBool,
}

/// It was looked for and is not there.
const ABSENT: usize = 1;

impl Function {
    /// By a name with a zero byte behind it; any other is no function's.
    pub(super) const fn named(name: &'static str) -> Self {
        let name = match CStr::from_bytes_with_nul(name.as_bytes()) {
            Ok(name) => name,
            Err(_) => c"",
        };
        Self { name, address: AtomicUsize::new(0), interposed: AtomicBool::new(false) }
    }

    pub(super) fn name(&self) -> &'static CStr {
        self.name
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

    /// The same, without looking it up.
    pub(super) fn known_address(&self) -> Option<usize> {
        Some(self.address.load(Ordering::Acquire)).filter(|address| *address > ABSENT)
    }

    #[cold]
    fn look_up(&self) -> Option<usize> {
        let handle = handle()?;
        let address = dlsym::real_dlsym(handle, self.name).addr();
        let everybodys = dlsym::real_dlsym(libc::RTLD_DEFAULT, self.name).addr();
        if address == 0 || everybodys == 0 {
            loader::forget_error();
        }
        self.interposed.store(everybodys != 0 && everybodys != address, Ordering::Release);
        self.address.store(if address == 0 { ABSENT } else { address }, Ordering::Release);
        (address != 0).then_some(address)
    }

    /// Another library of that name comes before the driver's, as one that was preloaded does.
    pub(super) fn is_interposed(&self) -> bool {
        self.interposed.load(Ordering::Acquire)
    }
}

/// The address of a name in the driver, if that is loaded.
pub(super) fn find(name: &CStr) -> Option<usize> {
    let address = dlsym::real_dlsym(handle()?, name).addr();
    (address != 0).then_some(address)
}

/// Is it memtrace's simulated one?
pub(super) fn is_simulated() -> bool {
    let found = find(c"memtrace_cusim_event_count").is_some();
    loader::forget_error();
    found
}

/// Is it there?
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
    if fork::is_child() {
        return None;
    }
    let handle = loader::opened(c"libcuda.so.1")?;
    HANDLE.store(handle.expose_provenance(), Ordering::Release);
    Some(handle)
}
