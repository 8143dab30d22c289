//! The frames in the aarch64 assembly, and some that only aarch64 compilers emit.

use std::arch::global_asm;
use std::ffi::c_void;
use std::ptr::null_mut;

use super::Callback;
use crate::record::unwind::fast::tests::{note, only_one, seen_in};

unsafe extern "C" {
    /// The frame record is below the variables, as in GCC's code.
    fn memtrace_record_below(callback: Callback, data: *mut c_void);
    /// The same, with 4 KiB of variables.
    fn memtrace_record_far_below(callback: Callback, data: *mut c_void);
    /// The frame record is above the variables, as in LLVM's code.
    fn memtrace_record_above(callback: Callback, data: *mut c_void);
    /// Saves only the return address.
    fn memtrace_return_alone(callback: Callback, data: *mut c_void);
    /// Saves the return address apart from the frame pointer.
    fn memtrace_return_apart(callback: Callback, data: *mut c_void);
    /// Signs its return address.
    fn memtrace_signed(callback: Callback, data: *mut c_void);
    /// Saves every callee-saved register.
    fn memtrace_saves_all(callback: Callback, data: *mut c_void);
    /// Has 600 KiB of variables above the frame record.
    fn memtrace_large(callback: Callback, data: *mut c_void);
}

global_asm!(
    ".pushsection .text.memtrace_test_frames,\"ax\",@progbits",
    ".globl memtrace_alloca, memtrace_realigned, memtrace_fp_is_a_number",
    ".globl memtrace_cfa_from_another, memtrace_without_cfi, memtrace_on_stack, memtrace_ends_with_a_call",
    ".globl memtrace_record_below, memtrace_record_above, memtrace_return_alone, memtrace_return_apart",
    ".globl memtrace_signed, memtrace_saves_all, memtrace_large, memtrace_record_far_below",
    // Enters a frame of 32 bytes with x19. Puts the callback into x8 and its data into x0.
    ".macro memtrace_enter",
    ".cfi_startproc",
    "stp x29, x30, [sp, #-32]!",
    ".cfi_def_cfa_offset 32",
    ".cfi_offset w29, -32",
    ".cfi_offset w30, -24",
    "str x19, [sp, #16]",
    ".cfi_offset w19, -16",
    "mov x8, x0",
    "mov x0, x1",
    ".endm",
    ".macro memtrace_leave",
    "ldr x19, [sp, #16]",
    "ldp x29, x30, [sp], #32",
    ".cfi_restore w19",
    ".cfi_restore w29",
    ".cfi_restore w30",
    ".cfi_def_cfa_offset 0",
    "ret",
    ".cfi_endproc",
    ".endm",
    "memtrace_alloca:",
    "memtrace_enter",
    "mov x29, sp",
    ".cfi_def_cfa w29, 32",
    "sub sp, sp, x2",
    "blr x8",
    "mov sp, x29",
    ".cfi_def_cfa wsp, 32",
    "memtrace_leave",
    "memtrace_realigned:",
    "memtrace_enter",
    "mov x29, sp",
    ".cfi_def_cfa w29, 32",
    "sub x9, sp, #80",
    "and sp, x9, #0xffffffffffffffc0",
    "blr x8",
    "mov sp, x29",
    ".cfi_def_cfa wsp, 32",
    "memtrace_leave",
    "memtrace_fp_is_a_number:",
    "memtrace_enter",
    "mov x29, #12345",
    "blr x8",
    "memtrace_leave",
    "memtrace_cfa_from_another:",
    "memtrace_enter",
    "mov x19, sp",
    ".cfi_def_cfa w19, 32",
    "blr x8",
    ".cfi_def_cfa wsp, 32",
    "memtrace_leave",
    "memtrace_on_stack:",
    "memtrace_enter",
    "mov x29, sp",
    ".cfi_def_cfa w29, 32",
    "mov sp, x2",
    "blr x8",
    "mov sp, x29",
    ".cfi_def_cfa wsp, 32",
    "memtrace_leave",
    "memtrace_ends_with_a_call:",
    "memtrace_enter",
    "blr x8",
    ".cfi_endproc",
    ".cfi_startproc",
    ".cfi_def_cfa_offset 64",
    ".cfi_offset w29, -64",
    ".cfi_offset w30, -56",
    "ldr x19, [sp, #16]",
    "ldp x29, x30, [sp], #32",
    "ret",
    ".cfi_endproc",
    "memtrace_without_cfi:",
    "stp x29, x30, [sp, #-16]!",
    "mov x8, x0",
    "mov x0, x1",
    "blr x8",
    "ldp x29, x30, [sp], #16",
    "ret",
    "memtrace_record_below:",
    ".cfi_startproc",
    "stp x29, x30, [sp, #-416]!",
    ".cfi_def_cfa_offset 416",
    ".cfi_offset w29, -416",
    ".cfi_offset w30, -408",
    "mov x29, sp",
    "mov x8, x0",
    "mov x0, x1",
    "blr x8",
    "ldp x29, x30, [sp], #416",
    ".cfi_restore w30",
    ".cfi_restore w29",
    ".cfi_def_cfa_offset 0",
    "ret",
    ".cfi_endproc",
    "memtrace_record_above:",
    ".cfi_startproc",
    "sub sp, sp, #416",
    ".cfi_def_cfa_offset 416",
    "stp x29, x30, [sp, #384]",
    "str x19, [sp, #400]",
    "add x29, sp, #384",
    ".cfi_def_cfa w29, 32",
    ".cfi_offset w19, -16",
    ".cfi_offset w30, -24",
    ".cfi_offset w29, -32",
    "mov x8, x0",
    "mov x0, x1",
    "blr x8",
    ".cfi_def_cfa wsp, 416",
    "ldr x19, [sp, #400]",
    "ldp x29, x30, [sp, #384]",
    "add sp, sp, #416",
    ".cfi_def_cfa_offset 0",
    ".cfi_restore w19",
    ".cfi_restore w30",
    ".cfi_restore w29",
    "ret",
    ".cfi_endproc",
    "memtrace_return_alone:",
    ".cfi_startproc",
    "str x30, [sp, #-16]!",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset w30, -16",
    "mov x8, x0",
    "mov x0, x1",
    "blr x8",
    "ldr x30, [sp], #16",
    ".cfi_restore w30",
    ".cfi_def_cfa_offset 0",
    "ret",
    ".cfi_endproc",
    "memtrace_return_apart:",
    ".cfi_startproc",
    "stp x30, x19, [sp, #-32]!",
    ".cfi_def_cfa_offset 32",
    ".cfi_offset w30, -32",
    ".cfi_offset w19, -24",
    "str x29, [sp, #16]",
    ".cfi_offset w29, -16",
    "mov x8, x0",
    "mov x0, x1",
    "blr x8",
    "ldr x29, [sp, #16]",
    "ldp x30, x19, [sp], #32",
    ".cfi_restore w29",
    ".cfi_restore w30",
    ".cfi_restore w19",
    ".cfi_def_cfa_offset 0",
    "ret",
    ".cfi_endproc",
    "memtrace_signed:",
    ".cfi_startproc",
    "hint #25",
    ".cfi_negate_ra_state",
    "stp x29, x30, [sp, #-16]!",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset w29, -16",
    ".cfi_offset w30, -8",
    "mov x29, sp",
    "mov x8, x0",
    "mov x0, x1",
    "blr x8",
    "ldp x29, x30, [sp], #16",
    ".cfi_restore w30",
    ".cfi_restore w29",
    ".cfi_def_cfa_offset 0",
    "hint #29",
    ".cfi_negate_ra_state",
    "ret",
    ".cfi_endproc",
    "memtrace_saves_all:",
    ".cfi_startproc",
    "hint #25",
    ".cfi_negate_ra_state",
    "stp x29, x30, [sp, #-160]!",
    ".cfi_def_cfa_offset 160",
    ".cfi_offset w29, -160",
    ".cfi_offset w30, -152",
    "stp x19, x20, [sp, #16]",
    ".cfi_offset w19, -144",
    ".cfi_offset w20, -136",
    "stp x21, x22, [sp, #32]",
    ".cfi_offset w21, -128",
    ".cfi_offset w22, -120",
    "stp x23, x24, [sp, #48]",
    ".cfi_offset w23, -112",
    ".cfi_offset w24, -104",
    "stp x25, x26, [sp, #64]",
    ".cfi_offset w25, -96",
    ".cfi_offset w26, -88",
    "stp x27, x28, [sp, #80]",
    ".cfi_offset w27, -80",
    ".cfi_offset w28, -72",
    "stp d8, d9, [sp, #96]",
    ".cfi_offset b8, -64",
    ".cfi_offset b9, -56",
    "stp d10, d11, [sp, #112]",
    ".cfi_offset b10, -48",
    ".cfi_offset b11, -40",
    "stp d12, d13, [sp, #128]",
    ".cfi_offset b12, -32",
    ".cfi_offset b13, -24",
    "stp d14, d15, [sp, #144]",
    ".cfi_offset b14, -16",
    ".cfi_offset b15, -8",
    "mov x8, x0",
    "mov x0, x1",
    "blr x8",
    "ldp x29, x30, [sp], #160",
    ".cfi_restore w30",
    ".cfi_restore w29",
    ".cfi_def_cfa_offset 0",
    "hint #29",
    ".cfi_negate_ra_state",
    "ret",
    ".cfi_endproc",
    "memtrace_large:",
    ".cfi_startproc",
    "sub sp, sp, #150, lsl #12",
    ".cfi_def_cfa_offset 614400",
    "stp x29, x30, [sp, #-16]!",
    ".cfi_def_cfa_offset 614416",
    ".cfi_offset w29, -614416",
    ".cfi_offset w30, -614408",
    "mov x8, x0",
    "mov x0, x1",
    "blr x8",
    "ldp x29, x30, [sp], #16",
    ".cfi_restore w30",
    ".cfi_restore w29",
    ".cfi_def_cfa_offset 614400",
    "add sp, sp, #150, lsl #12",
    ".cfi_def_cfa_offset 0",
    "ret",
    ".cfi_endproc",
    "memtrace_record_far_below:",
    ".cfi_startproc",
    "sub sp, sp, #1, lsl #12",
    ".cfi_def_cfa_offset 4096",
    "stp x29, x30, [sp, #-16]!",
    ".cfi_def_cfa_offset 4112",
    ".cfi_offset w29, -4112",
    ".cfi_offset w30, -4104",
    "mov x8, x0",
    "mov x0, x1",
    "blr x8",
    "ldp x29, x30, [sp], #16",
    ".cfi_restore w30",
    ".cfi_restore w29",
    ".cfi_def_cfa_offset 4096",
    "add sp, sp, #1, lsl #12",
    ".cfi_def_cfa_offset 0",
    "ret",
    ".cfi_endproc",
    ".popsection",
);

#[test]
fn the_frames_of_each_compiler_are_proven() {
    for frame in [memtrace_record_below, memtrace_record_far_below, memtrace_record_above, memtrace_return_alone] {
        // SAFETY: keeps the ABI.
        only_one(seen_in(|| unsafe { frame(note, null_mut()) })).assert_proven();
    }
}

#[test]
fn signed_return_addresses_are_proven_as_the_addresses_that_they_are() {
    for frame in [memtrace_signed, memtrace_saves_all] {
        // SAFETY: keeps the ABI.
        only_one(seen_in(|| unsafe { frame(note, null_mut()) })).assert_proven();
    }
}

#[test]
fn a_return_address_in_another_place_is_left_to_libgcc() {
    for frame in [memtrace_return_apart, memtrace_large] {
        // SAFETY: keeps the ABI.
        only_one(seen_in(|| unsafe { frame(note, null_mut()) })).assert_not_proven();
    }
}

/// A library whose only function, `call_back`, calls back from a frame of this many bytes plus eight.
pub(in super::super) fn library(frame: usize) -> String {
    let bytes = frame + 8;
    format!(
        ".section .note.GNU-stack,\"\",@progbits\n.text\n.globl call_back\n.type call_back, @function\ncall_back:\n\
         .cfi_startproc\nstp x29, x30, [sp, #-{bytes}]!\n.cfi_def_cfa_offset {bytes}\n.cfi_offset w29, -{bytes}\n\
         .cfi_offset w30, -{frame}\nmov x8, x0\nmov x0, x1\nblr x8\nldp x29, x30, [sp], #{bytes}\n\
         .cfi_restore w29\n.cfi_restore w30\n.cfi_def_cfa_offset 0\nret\n.cfi_endproc\n"
    )
}
