//! The functions that replace NVTX's. Their callers must meet NVTX's requirements.
#![expect(unsafe_code, reason = "functions that C calls")]

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use libc::wchar_t;
use memtrace::nvtx_tables::{CORE, CORE2, Function, RANGE_POP, RANGE_PUSH_A};
use memtrace::range::{self, Label};

use super::message::{Attributes, Message};

/// A domain or a registered string, as the program stores it. It is a number and never an address.
type Handle = *mut c_void;

/// The domain of functions that name no domain, and of a null handle.
const DEFAULT: usize = 0;

/// The functions for NVTX's tables: for each module (one table), the slots and the function for
/// each slot.
pub(super) const MODULES: [(c_int, &[(usize, Function)]); 2] = [
    (
        CORE,
        &[
            (8, range_push_ex as Function),
            (RANGE_PUSH_A, range_push_a as Function),
            (10, range_push_w as Function),
            (RANGE_POP, range_pop as Function),
        ],
    ),
    (
        CORE2,
        &[
            (4, domain_range_push_ex as Function),
            (5, domain_range_pop as Function),
            (10, domain_register_string_a as Function),
            (11, domain_register_string_w as Function),
            (12, domain_create as Function),
            (13, domain_create as Function),
            (14, domain_destroy as Function),
        ],
    ),
];

fn push(domain: usize, message: &Message) -> c_int {
    range::push(domain, Label::Text(message.text()))
}

unsafe extern "C" fn range_push_a(message: *const c_char) -> c_int {
    // SAFETY: the caller passes NVTX's string.
    push(DEFAULT, &unsafe { Message::of_bytes(message.cast()) })
}

unsafe extern "C" fn range_push_w(message: *const wchar_t) -> c_int {
    // SAFETY: the caller passes NVTX's string.
    push(DEFAULT, &unsafe { Message::of_wide(message) })
}

unsafe extern "C" fn range_push_ex(attributes: *const Attributes) -> c_int {
    // SAFETY: the caller passes NVTX's attributes.
    unsafe { domain_range_push_ex(std::ptr::null_mut(), attributes) }
}

extern "C" fn range_pop() -> c_int {
    range::pop(DEFAULT)
}

unsafe extern "C" fn domain_range_push_ex(domain: Handle, attributes: *const Attributes) -> c_int {
    // SAFETY: the caller passes NVTX's attributes.
    match unsafe { Attributes::registered(attributes) } {
        Some(string) => range::push(domain.addr(), Label::Registered(string)),
        // SAFETY: as above.
        None => push(domain.addr(), &unsafe { Attributes::message(attributes) }),
    }
}

extern "C" fn domain_range_pop(domain: Handle) -> c_int {
    range::pop(domain.addr())
}

unsafe extern "C" fn domain_register_string_a(_domain: Handle, string: *const c_char) -> Handle {
    // SAFETY: the caller passes NVTX's string.
    register(&unsafe { Message::of_bytes(string.cast()) })
}

unsafe extern "C" fn domain_register_string_w(_domain: Handle, string: *const wchar_t) -> Handle {
    // SAFETY: the caller passes NVTX's string.
    register(&unsafe { Message::of_wide(string) })
}

fn register(string: &Message) -> Handle {
    std::ptr::without_provenance_mut(range::register(string.text()))
}

/// Each call creates a new domain, whatever its name.
extern "C" fn domain_create(_name: *const c_void) -> Handle {
    static LAST: AtomicUsize = AtomicUsize::new(DEFAULT);
    // Relaxed: only the uniqueness of the number matters.
    std::ptr::without_provenance_mut(LAST.fetch_add(1, Relaxed) + 1)
}

extern "C" fn domain_destroy(domain: Handle) {
    if !domain.is_null() {
        range::pop_all(domain.addr());
    }
}
