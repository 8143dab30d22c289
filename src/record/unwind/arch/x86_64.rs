//! What unwinding needs to know of x86-64.
#![expect(unsafe_code, reason = "reads registers and words of the thread's own stack")]

use std::arch::asm;

use gimli::{Register, Vendor, X86_64};

use crate::record::unwind::registers::Registers;

/// DWARF's numbers of the stack pointer, the frame pointer and the return address.
pub(in crate::record::unwind) const SP: Register = X86_64::RSP;
pub(in crate::record::unwind) const FP: Register = X86_64::RBP;
pub(in crate::record::unwind) const RETURN: Register = X86_64::RA;
/// The vendor whose additional call frame instructions are accepted.
pub(in crate::record::unwind) const VENDOR: Vendor = Vendor::Default;

/// The key of a return address in the rule cache. It has at most 47 bits for an address of a program.
#[inline(always)]
pub(in crate::record::unwind) fn key(address: u64) -> u64 {
    address
}

/// The code address in a word to which a return address was saved.
#[inline(always)]
pub(in crate::record::unwind) fn code_address(word: u64) -> u64 {
    word
}

/// Whether the saved frame pointer may be at the bottom of the frame, far from the CFA (the caller's stack pointer).
pub(in crate::record::unwind) const RECORD_IS_INNERMOST: bool = false;
/// Whether the return address is the frame's outermost word, and so lies in the frame if the CFA does.
pub(in crate::record::unwind) const RETURN_IS_OUTERMOST: bool = true;

/// Offset of a frame's return address from its CFA. The call instruction puts it there.
#[inline(always)]
pub(in crate::record::unwind) fn return_offset(_saved_fp: Option<i64>) -> i64 {
    -8
}

/// Packs a frame's stack pointer and the location of the return address to this frame into a word whose three lowest
/// bits are 0. `None` if they do not fit.
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
    /// The registers of the function into which this is inlined.
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

/// The callee-saved registers. Their values may be nowhere else.
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

/// Reads a word. In assembly, which a sanitizer does not check: the word belongs to another function's frame.
///
/// # Safety
/// `address` is that of a readable, aligned word.
#[inline(always)]
pub(in crate::record::unwind) unsafe fn word(address: u64) -> u64 {
    let word;
    // SAFETY: the caller's promise.
    unsafe { asm!("mov {}, [{}]", out(reg) word, in(reg) address, options(nostack, preserves_flags, readonly)) };
    word
}

/// Writes zeros. In assembly, like [`word`].
///
/// # Safety
/// The words are aligned and writable, and no live frame uses them.
#[inline(always)]
pub(in crate::record::unwind) unsafe fn clear(start: u64, words: u64) {
    // SAFETY: the caller's promise.
    unsafe { asm!("rep stosq", inout("rcx") words => _, inout("rdi") start => _, in("rax") 0u64, options(nostack)) };
}

/// Start of a thread's own variables in the mapping of its stack, outside all frames. `first` is the address of one of
/// the first variables. The C library puts the variables below its descriptor of the thread.
pub(in crate::record::unwind) fn variables_begin(first: u64) -> u64 {
    first
}
