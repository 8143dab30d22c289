//! What unwinding needs to know of aarch64.
//!
//! A call puts its return address in x30. A function that calls others saves x30 on its stack: next to its caller's
//! frame pointer (x29), or alone at the bottom of 16 bytes. In code with pointer authentication (PAC), the saved word's
//! upper bits contain a signature.
#![expect(unsafe_code, reason = "reads registers and words of the thread's own stack")]

use std::arch::asm;

use gimli::{AArch64, Register, Vendor};

use crate::record::unwind::registers::Registers;

/// DWARF's numbers of the stack pointer, the frame pointer and the return address.
pub(in crate::record::unwind) const SP: Register = AArch64::SP;
pub(in crate::record::unwind) const FP: Register = AArch64::X29;
pub(in crate::record::unwind) const RETURN: Register = AArch64::X30;
/// The vendor whose additional call frame instructions are accepted. One of them says that return addresses are signed.
pub(in crate::record::unwind) const VENDOR: Vendor = Vendor::AArch64;

/// Number of bits of a user address, unless a program asks for larger addresses.
const STACK_BITS: u32 = 48;
/// The key of a return address in the rule cache: 46 bits for an address of a program, as instructions have four bytes.
/// A word that is not the address of an instruction has more.
#[inline(always)]
pub(in crate::record::unwind) fn key(address: u64) -> u64 {
    address.rotate_right(2)
}

/// The code address in a word to which a return address was saved, without the signature.
#[inline(always)]
pub(in crate::record::unwind) fn code_address(word: u64) -> u64 {
    word & ((1 << STACK_BITS) - 1)
}

/// Whether the saved frame pointer may be at the bottom of the frame, far from the CFA (the caller's stack pointer).
pub(in crate::record::unwind) const RECORD_IS_INNERMOST: bool = true;
/// Whether the return address is the frame's outermost word, and so lies in the frame if the CFA does.
pub(in crate::record::unwind) const RETURN_IS_OUTERMOST: bool = false;

/// Offset of a frame's return address from its CFA.
#[inline(always)]
pub(in crate::record::unwind) fn return_offset(saved_fp: Option<i64>) -> i64 {
    match saved_fp {
        Some(saved) => saved + 8,
        None => -16,
    }
}

/// Bits for a distance in units of 8 bytes: from a frame's stack pointer down to the saved return address to this
/// frame.
const DISTANCE_BITS: u32 = 64 - STACK_BITS;

/// Packs a frame's stack pointer and the location of the return address to this frame into a word whose three lowest
/// bits are 0. `None` if they do not fit: the called function has 512 KiB of variables.
#[inline(always)]
pub(in crate::record::unwind) fn pack(sp: u64, return_from: u64) -> Option<u64> {
    let distance = sp.wrapping_sub(return_from) / 8;
    (distance >> DISTANCE_BITS == 0 && sp >> STACK_BITS == 0).then_some(sp | distance << STACK_BITS)
}

#[inline(always)]
pub(in crate::record::unwind) fn packed_sp(packed: u64) -> u64 {
    packed & ((1 << STACK_BITS) - 8)
}

#[inline(always)]
pub(in crate::record::unwind) fn packed_return_from(packed: u64) -> u64 {
    packed_sp(packed) - (packed >> STACK_BITS) * 8
}

impl Registers {
    /// The registers of the function into which this is inlined. That function has saved its return address, because
    /// the assembly declares that it changes x30.
    #[inline(always)]
    pub(in crate::record::unwind) fn here() -> Self {
        let (ip, sp, fp);
        // SAFETY: copies three registers. x30 is declared as changed.
        unsafe {
            asm!(
                "adr {ip}, .",
                "mov {sp}, sp",
                "mov {fp}, x29",
                ip = out(reg) ip,
                sp = out(reg) sp,
                fp = out(reg) fp,
                out("x30") _,
                options(nomem, nostack, preserves_flags),
            );
        }
        Self { ip, sp, fp }
    }
}

pub(in crate::record::unwind) type KeptRegisters = [u64; 11];

/// The callee-saved registers. Their values may be nowhere else.
#[inline(always)]
pub(in crate::record::unwind) fn kept_registers() -> KeptRegisters {
    let mut registers = [0; 11];
    // SAFETY: writes eleven registers to an array of eleven, and changes none.
    unsafe {
        asm!(
            "stp x19, x20, [x0]", "stp x21, x22, [x0, #16]", "stp x23, x24, [x0, #32]",
            "stp x25, x26, [x0, #48]", "stp x27, x28, [x0, #64]", "str x29, [x0, #80]",
            in("x0") &raw mut registers,
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
    unsafe { asm!("ldr {}, [{}]", out(reg) word, in(reg) address, options(nostack, preserves_flags, readonly)) };
    word
}

/// Writes zeros. In assembly, like [`word`].
///
/// # Safety
/// The words are aligned and writable, and no live frame uses them.
#[inline(always)]
pub(in crate::record::unwind) unsafe fn clear(start: u64, words: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "2: cbz {words}, 3f",
            "str xzr, [{at}], #8",
            "sub {words}, {words}, #1",
            "b 2b",
            "3:",
            words = inout(reg) words => _,
            at = inout(reg) start => _,
            options(nostack, preserves_flags),
        );
    }
}

/// Start of a thread's own variables in the mapping of its stack, outside all frames. `first` is the address of one of
/// the first variables. The C library puts the variables above its descriptor of the thread.
pub(in crate::record::unwind) fn variables_begin(first: u64) -> u64 {
    // SAFETY: no preconditions.
    let description = unsafe { libc::pthread_self() };
    first.min(description)
}
