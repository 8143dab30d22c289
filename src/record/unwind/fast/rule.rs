//! An unwind rule: how to get from a frame to its caller. It is bit-packed so that a cache entry has 35 bits for the
//! address.
//!
//! ```text
//!  63         47 46                    12 11    10      9      8  7            0
//! ┌─────────────┬────────────────────────┬────┬───────┬─────┬───────┬────────────┐
//! │ offset /8   │   0: for the cache     │  - │ stays │ fp │ plain │ saved fp/8│
//! └─────────────┴────────────────────────┴────┴───────┴─────┴───────┴────────────┘
//! ```
//! The offset is at the top and the choice between sp and fp is branchless, because the next frame's address depends on
//! both: unwinding is a chain of dependent loads.

use crate::record::unwind::arch;
use crate::record::unwind::registers::Registers;

pub(super) const NOT_A_RULE: u64 = ((1 << 35) - 1) << 12;

/// A plain rule says that the CFA is sp + offset or, with [`FP`], fp + offset. `AT_FP`, `OUTERMOST` and `UNPROVEN` are
/// not plain.
const PLAIN: u64 = 1 << 8;
const FP: u64 = 1 << 9;
/// The rule belongs to an object that is never unloaded.
pub(super) const STAYS: u64 = 1 << 10;
const AT_FP: u64 = FP;
const OUTERMOST: u64 = 1 << 11;
const UNPROVEN: u64 = 1 << 11 | FP;
const KIND: u64 = PLAIN | FP | 1 << 11;

const OFFSET_SHIFT: u32 = 47;
const OFFSET_BITS: u32 = 64 - OFFSET_SHIFT;
const SAVED_BITS: u32 = 8;
/// The frame did not save fp.
const NOT_SAVED: i64 = -128;
/// The frame saved fp at the address that the CFA is relative to, however far that is from the CFA.
const AT_BASE: i64 = 127;

/// What the CFA (canonical frame address: the caller's stack pointer) is relative to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    Sp,
    Fp,
    /// The CFA is in memory at fp + offset, as in realigned frames. The saved fp is relative to fp, too.
    AtFp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnwindStep {
    pub(super) to: Registers,
    /// Where the caller's fp was read; 0 if it is still in the register.
    pub(super) fp_from: u64,
    /// Where the return address to the caller was read.
    pub(super) return_from: u64,
}

/// An unwind rule. All zeros is a rule that proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule(u64);

impl Rule {
    /// The frame has no caller.
    pub(super) const OUTERMOST: Self = Self(OUTERMOST);
    /// No step can be proven, so libgcc takes the stack.
    pub(super) const UNPROVEN: Self = Self(UNPROVEN);

    /// `saved` is the offset of the saved fp from the CFA, or `None` if fp is unchanged. The result is `None` if a
    /// number does not fit or is not a multiple of eight.
    pub(super) fn new(base: Base, offset: i64, saved: Option<i64>) -> Option<Self> {
        let kind = match base {
            Base::Sp => PLAIN,
            Base::Fp => PLAIN | FP,
            Base::AtFp => AT_FP,
        };
        let word = |saved| match eighth(saved, SAVED_BITS) {
            _ if arch::RECORD_IS_INNERMOST && base != Base::AtFp && saved == -offset => Some(AT_BASE),
            n => n.filter(|n| ![NOT_SAVED, AT_BASE].contains(n)),
        };
        let saved = saved.map_or(Some(NOT_SAVED), word)?;
        let offset = eighth(offset, OFFSET_BITS)?;
        Some(Self(kind | (offset as u64) << OFFSET_SHIFT | u64::from(saved as u8)))
    }

    pub(super) fn that_stays(self) -> Self {
        Self(self.0 | STAYS)
    }

    #[inline]
    pub(super) fn stays(self) -> bool {
        self.0 & STAYS != 0
    }

    #[inline]
    pub(super) fn is_outermost(self) -> bool {
        self.0 & KIND == OUTERMOST
    }

    #[cfg(test)]
    pub(super) fn is_unproven(self) -> bool {
        self.0 & !STAYS == UNPROVEN
    }

    #[inline]
    pub(super) fn bits(self) -> u64 {
        self.0
    }

    #[inline]
    pub(super) fn of_bits(bits: u64) -> Self {
        Self(bits)
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn offset(self) -> u64 {
        // In bytes. The lower bits belong to the cache and are zero here.
        (self.0.cast_signed() >> (OFFSET_SHIFT - 3)).cast_unsigned()
    }

    #[inline]
    fn saved(self) -> i64 {
        i64::from(self.0 as i8)
    }

    /// Offset of the return address from the CFA.
    #[inline]
    pub(super) fn return_offset(self) -> i64 {
        let beside_cfa = self.0 & PLAIN != 0 && !self.leaves_fp();
        arch::return_offset(beside_cfa.then(|| self.saved_offset()))
    }

    /// Offset of the saved fp from the CFA, if it is saved.
    #[inline]
    fn saved_offset(self) -> i64 {
        match self.saved() {
            AT_BASE if arch::RECORD_IS_INNERMOST => -self.offset().cast_signed(),
            saved => saved * 8,
        }
    }

    /// Whether the rule uses fp.
    #[inline]
    pub(super) fn needs_fp(self) -> bool {
        self.0 & FP != 0
    }

    /// Whether the frame leaves fp unchanged.
    #[inline]
    pub(super) fn leaves_fp(self) -> bool {
        self.saved() == NOT_SAVED
    }

    /// Whether the rule holds for ever, and reads only the return address and the saved fp.
    #[inline]
    pub(super) fn says_all(self) -> bool {
        self.stays() && (self.0 & PLAIN != 0 || self.is_outermost())
    }

    /// The step to the caller, if it can be proven. `read` is called only for multiples of eight at or above the
    /// frame's stack pointer and below `end`.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn step(self, at: Registers, end: u64, read: impl Fn(u64) -> u64) -> Option<UnwindStep> {
        let (cfa, saved_from) = if self.0 & PLAIN != 0 {
            let base = if self.0 & FP == 0 { at.sp } else { at.fp };
            let cfa = base.wrapping_add(self.offset());
            (cfa, cfa)
        } else {
            (self.in_memory(at, end, &read), at.fp)
        };
        if !is_next(cfa, at.sp, end) {
            return None;
        }
        let slot = saved_from.wrapping_add_signed(self.saved_offset());
        let (fp, fp_from) = match self.saved() {
            NOT_SAVED => (at.fp, 0),
            _ if in_frame(slot, at.sp, cfa) => (read(slot), slot),
            _ => return None,
        };
        let return_from = cfa.wrapping_add_signed(self.return_offset());
        if !arch::RETURN_IS_OUTERMOST && !in_frame(return_from, at.sp, cfa) {
            return None;
        }
        let ip = arch::code_address(read(return_from));
        Some(UnwindStep { to: Registers { ip, sp: cfa, fp }, fp_from, return_from })
    }

    /// The CFA of a realigned frame; 0 if the rule is not of that kind, or proves nothing.
    #[cold]
    fn in_memory(self, at: Registers, end: u64, read: impl Fn(u64) -> u64) -> u64 {
        let place = at.fp.wrapping_add(self.offset());
        let proven = self.0 & KIND == AT_FP && in_frame(place, at.sp, end);
        if proven { read(place) } else { 0 }
    }
}

/// `value / 8`, if it is an integer and fits.
fn eighth(value: i64, bits: u32) -> Option<i64> {
    let limit = 1 << (bits - 1);
    (value % 8 == 0 && (-limit..limit).contains(&(value / 8))).then_some(value / 8)
}

/// Whether this is a possible CFA of the frame at `sp`.
#[inline]
fn is_next(cfa: u64, sp: u64, end: u64) -> bool {
    cfa.is_multiple_of(8) && cfa.wrapping_sub(sp).wrapping_sub(8) < end.wrapping_sub(sp)
}

/// Whether this is the address of an aligned word between `sp` and `cfa`.
#[inline]
fn in_frame(slot: u64, sp: u64, cfa: u64) -> bool {
    slot.is_multiple_of(8) && slot >= sp && slot < cfa
}
