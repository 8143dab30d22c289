//! The hook of `dlsym` on x86-64.
#![expect(unsafe_code, reason = "a function in assembly that must leave its caller's frame alone")]

use std::ffi::{c_char, c_void};

use crate::hook::interpose::dlsym::decide;

/// The hook of `dlsym`. If [`decide`] has no answer, the hook jumps to the original. A jump keeps the true caller
/// visible to the original, which needs it: `RTLD_NEXT` means "after the caller".
#[unsafe(naked)]
pub(in crate::hook) unsafe extern "C" fn dlsym(_handle: *mut c_void, _name: *const c_char) -> *mut c_void {
    core::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "mov rdx, [rsp + 24]",
        "call {decide}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jz 2f",
        "ret",
        "2:",
        "jmp rdx",
        decide = sym decide,
    )
}
