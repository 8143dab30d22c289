//! What unwinding needs to know of x86-64.
#![expect(unsafe_code, reason = "reads registers and words of the thread's own stack")]

use std::arch::asm;

use gimli::{Register, Vendor, X86_64};

use crate::record::unwind::registers::Registers;

/// DWARF's numbers of the stack pointer, the frame pointer and the return address.
pub(in crate::record::unwind) const SP: Register = X86_64::RSP;
pub(in crate::record::unwind) const FP: Register = X86_64::RBP;
pub(in crate::record::unwind) const RETURN: Register = X86_64::RA;
/// Whose call frame instructions there are beside the standard's.
pub(in crate::record::unwind) const VENDOR: Vendor = Vendor::Default;

/// What the rule cache knows a return address by: at most 47 bits for one of a program.
#[inline(always)]
pub(in crate::record::unwind) fn key(address: u64) -> u64 {
    address
}

/// The code address in a word that a return address was saved to.
#[inline(always)]
pub(in crate::record::unwind) fn code_address(word: u64) -> u64 {
    word
}

/// The saved frame pointer may be far from the CFA, at the bottom of the frame.
pub(in crate::record::unwind) const RECORD_IS_INNERMOST: bool = false;
/// The return address is the frame's outermost word, so it lies in the frame if the CFA does.
pub(in crate::record::unwind) const RETURN_IS_OUTERMOST: bool = true;

/// Where a frame's return address is, as an offset from its CFA: the call puts it there.
#[inline(always)]
pub(in crate::record::unwind) fn return_offset(_saved_fp: Option<i64>) -> i64 {
    -8
}

/// A frame's stack pointer and the place of the return address to it, in a word whose three lowest bits are 0. `None` if
/// they do not fit.
#[inline(always)]
pub(in crate::record::unwind) fn pack(sp: u64, _return_from: u64) -> Option<u64> {
    Some(sp)
}

#[inline(always)]
pub(in crate::record::unwind) fn packed_sp(packed: u64) -> u64 {
    packed & !7
}

#[inline(always)]
pub(in crate::record::unwind) fn packed_return_from(packed: u64) -> u64 {
    packed_sp(packed) - 8
}

impl Registers {
    /// Of the function into which this is inlined.
    #[inline(always)]
    pub(in crate::record::unwind) fn here() -> Self {
        let (ip, sp, fp);
        // SAFETY: copies three registers.
        unsafe {
            asm!(
                "lea {ip}, [rip]",
                "mov {sp}, rsp",
                "mov {fp}, rbp",
                ip = out(reg) ip,
                sp = out(reg) sp,
                fp = out(reg) fp,
                options(nomem, nostack, preserves_flags),
            );
        }
        Self { ip, sp, fp }
    }
}

pub(in crate::record::unwind) type KeptRegisters = [u64; 6];

/// The callee-saved registers: their values may be nowhere else.
#[inline(always)]
pub(in crate::record::unwind) fn kept_registers() -> KeptRegisters {
    let mut registers = [0; 6];
    // SAFETY: writes six registers to an array of six, and changes none.
    unsafe {
        asm!(
            "mov [rax], rbx", "mov [rax + 8], rbp", "mov [rax + 16], r12",
            "mov [rax + 24], r13", "mov [rax + 32], r14", "mov [rax + 40], r15",
            in("rax") &raw mut registers,
            options(nostack, preserves_flags),
        );
    }
    registers
}

/// In assembly, because the words belong to other functions' frames, also under a sanitizer.
///
/// # Safety
/// A readable, aligned word.
#[inline(always)]
pub(in crate::record::unwind) unsafe fn word(address: u64) -> u64 {
    let word;
    // SAFETY: the caller's promise.
    unsafe { asm!("mov {}, [{}]", out(reg) word, in(reg) address, options(nostack, preserves_flags, readonly)) };
    word
}

/// Writes zeros, in assembly for the same reason.
///
/// # Safety
/// Aligned, writable words that no live frame uses.
#[inline(always)]
pub(in crate::record::unwind) unsafe fn clear(start: u64, words: u64) {
    // SAFETY: the caller's promise.
    unsafe { asm!("rep stosq", inout("rcx") words => _, inout("rdi") start => _, in("rax") 0u64, options(nostack)) };
}

/// Where a thread's own variables begin in the mapping of its stack, outside all frames: `first` is the address of one of
/// the first. The C library puts them below its description of the thread.
pub(in crate::record::unwind) fn variables_begin(first: u64) -> u64 {
    first
}
