//! Addresses of the driver's functions, looked up in `libcuda.so.1`.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::hook::interpose::{dlsym, elf, loader};
use crate::record::answer::Answer;
use crate::record::fork;

const NAME: &CStr = c"libcuda.so.1";

pub(super) const SUCCESS: c_int = 0;
pub(super) const OUT_OF_MEMORY: c_int = 2;
/// The driver is shutting down at the end of the process.
pub(super) const DEINITIALIZED: c_int = 4;
pub(super) const NOT_FOUND: c_int = 500;

/// A driver function. Its symbol is looked up at the first use.
#[derive(Debug)]
pub(super) struct Function {
    name: &'static CStr,
    address: AtomicUsize,
    is_interposed: AtomicBool,
}

/// The value of `address` for a function that the driver does not have.
const ABSENT: usize = 1;

impl Function {
    /// `name` must end with a zero byte.
    pub(super) const fn named(name: &'static str) -> Self {
        let name = match CStr::from_bytes_with_nul(name.as_bytes()) {
            Ok(name) => name,
            Err(_) => c"",
        };
        Self { name, address: AtomicUsize::new(0), is_interposed: AtomicBool::new(false) }
    }

    pub(super) fn name(&self) -> &'static CStr {
        self.name
    }

    /// The function's address, if the driver is loaded and has it.
    #[inline]
    pub(super) fn address(&self) -> Option<usize> {
        match self.address.load(Ordering::Acquire) {
            0 => self.look_up(),
            ABSENT => None,
            address => Some(address),
        }
    }

    pub(super) fn known_address(&self) -> Option<usize> {
        Some(self.address.load(Ordering::Acquire)).filter(|address| *address > ABSENT)
    }

    #[cold]
    fn look_up(&self) -> Option<usize> {
        let handle = handle()?;
        let address = dlsym::call_original(handle, self.name).addr();
        let default = dlsym::call_original(libc::RTLD_DEFAULT, self.name).addr();
        if address == 0 || default == 0 {
            loader::forget_error();
        }
        self.is_interposed.store(default != 0 && default != address, Ordering::Release);
        self.address.store(if address == 0 { ABSENT } else { address }, Ordering::Release);
        (address != 0).then_some(address)
    }

    /// Whether another library, such as a preloaded one, defines this name earlier in the search order.
    pub(super) fn is_interposed(&self) -> bool {
        self.is_interposed.load(Ordering::Acquire)
    }
}

/// The address of a name in the driver, if the driver is loaded.
pub(super) fn find(name: &CStr) -> Option<usize> {
    let address = dlsym::call_original(handle()?, name).addr();
    (address != 0).then_some(address)
}

/// Whether the loaded driver is the simulated one. The first answer is kept, because a look-up that finds nothing
/// uses the program's allocator, and memtrace's threads must not use that.
pub(super) fn is_simulated() -> bool {
    static ANSWER: Answer = Answer::new();
    let ask = || {
        let found = find(c"memtrace_cusim_event_count").is_some();
        loader::forget_error();
        found
    };
    is_loaded() && ANSWER.get_or(ask)
}

pub(super) fn is_loaded() -> bool {
    handle().is_some()
}

/// The handle of the loaded driver. Look-ups use it, because with `RTLD_NEXT` or `RTLD_DEFAULT` another library could
/// answer.
fn handle() -> Option<*mut c_void> {
    static HANDLE: AtomicUsize = AtomicUsize::new(0);
    let known = HANDLE.load(Ordering::Acquire);
    if known != 0 {
        return Some(std::ptr::with_exposed_provenance_mut(known));
    }
    if fork::is_child() || !elf::is_loaded(NAME) {
        return None;
    }
    let handle = loader::opened(NAME)?;
    HANDLE.store(handle.expose_provenance(), Ordering::Release);
    Some(handle)
}
