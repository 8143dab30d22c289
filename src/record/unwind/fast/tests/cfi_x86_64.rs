//! CFI of x86-64.

use super::rule;
use crate::record::unwind::fast::rule::{Base, Rule};

/// DWARF's number of the return address.
pub(super) const RETURN: u8 = 16;
/// The CFA is sp + 8, and the return address is just below it.
pub(super) const USUAL: [u8; 5] = [0x0c, 7, 8, 0x90, 1];
pub(super) const CFA_OFFSET_32: [u8; 2] = [0x0e, 32];
/// The CFA from rbx.
pub(super) const CFA_FROM_ANOTHER: [u8; 3] = [0x0c, 3, 8];
const CFA_FROM_FP_16: [u8; 3] = [0x0c, 6, 16];
const FP_AT_MINUS_16: [u8; 2] = [0x86, 2];
/// The CFA is the word at fp - 8. The saved fp is at fp + 0.
const REALIGNED: [u8; 10] = [0x0f, 3, 0x76, 0x78, 0x06, 0x10, 6, 2, 0x76, 0];

pub(super) fn usual() -> Option<Rule> {
    Rule::new(Base::Sp, 8, None)
}

/// The usual rule with [`CFA_OFFSET_32`].
pub(super) fn larger() -> Option<Rule> {
    Rule::new(Base::Sp, 32, None)
}

#[test]
fn the_usual_frames_have_rules() {
    assert_eq!(rule(&[]), Rule::new(Base::Sp, 8, None));
    assert_eq!(rule(&[&CFA_OFFSET_32]), Rule::new(Base::Sp, 32, None));
    assert_eq!(rule(&[&CFA_OFFSET_32, &FP_AT_MINUS_16]), Rule::new(Base::Sp, 32, Some(-16)));
    assert_eq!(rule(&[&CFA_FROM_FP_16, &FP_AT_MINUS_16]), Rule::new(Base::Fp, 16, Some(-16)));
    assert_eq!(rule(&[&REALIGNED]), Rule::new(Base::AtFp, -8, Some(0)));
    // Unwinding does not need these registers.
    assert_eq!(rule(&[&[0x83, 3, 0x8c, 4]]), Rule::new(Base::Sp, 8, None));
    // fp is unchanged.
    assert_eq!(rule(&[&[0x08, 6]]), Rule::new(Base::Sp, 8, None));
}

#[test]
fn what_the_rules_do_not_say_exactly_has_none() {
    let strange: [&[u8]; 14] = [
        &[0x0c, 3, 16],         // the CFA from rbx
        &[0x0e, 12],            // not a multiple of eight
        &[0x90, 2],             // the return address elsewhere
        &[0x09, 16, 0],         // the return address in a register
        &[0x08, 16],            // the return address as in the callee
        &[0x87, 2],             // sp saved
        &[0x14, 7, 0],          // sp as an offset of the CFA
        &[0x09, 6, 3],          // fp in another register
        &[0x07, 6],             // fp lost
        &[0x14, 6, 2],          // fp as a value
        &[0x0f, 2, 0x77, 8],    // the CFA by another expression
        &REALIGNED[..5],        // realigned, and fp not beside it
        &[0x10, 6, 2, 0x76, 0], // fp by an expression, and the CFA not
        &[0x3f],                // unknown
    ];
    for instructions in strange {
        assert_eq!(rule(&[instructions]), None, "{instructions:x?}");
    }
    assert_eq!(rule(&[&REALIGNED[..4], &[0x94, 0x01]]), None, "a dereference of one byte");
    assert_eq!(rule(&[&[0x0a; 9]]), None, "too many rows kept");
    let many: Vec<u8> = (17..50).flat_map(|register| [0x05, register, 4]).collect();
    assert_eq!(rule(&[&many]), None, "too many registers");
}
