//! The hook of `dlsym` on aarch64.
#![expect(unsafe_code, reason = "a function in assembly that must leave its caller's frame alone")]

use std::ffi::{c_char, c_void};

use crate::hook::interpose::dlsym::decide;

/// The hook of `dlsym`. If [`decide`] has no answer, the hook jumps to the original. A jump keeps the true caller
/// visible to the original, which needs it: `RTLD_NEXT` means "after the caller".
///
/// With BTI (branch target identification), an indirect call must land on `bti c`, which is `hint #34` here and which
/// older processors skip. The hook's jump must land on one, too, so it may only use x16 and x17.
#[unsafe(naked)]
pub(in crate::hook) unsafe extern "C" fn dlsym(_handle: *mut c_void, _name: *const c_char) -> *mut c_void {
    core::arch::naked_asm!(
        "hint #34",
        "stp x29, x30, [sp, #-32]!",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "mov x2, x30",
        "bl {decide}",
        "mov x16, x1",
        "mov x17, x0",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "cbz x17, 2f",
        "mov x0, x17",
        "ret",
        "2:",
        "br x16",
        decide = sym decide,
    )
}
