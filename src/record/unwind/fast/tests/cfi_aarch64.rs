//! CFI of aarch64.

use super::rule;
use crate::record::unwind::fast::rule::{Base, Rule};

/// DWARF's number of the register with the return address.
pub(super) const RETURN: u8 = 30;
/// The CFA is sp + 16. x29 and x30 are below it.
pub(super) const USUAL: [u8; 7] = [0x0c, 31, 16, 0x9d, 2, 0x9e, 1];
pub(super) const CFA_OFFSET_32: [u8; 2] = [0x0e, 32];
/// The CFA from x19.
pub(super) const CFA_FROM_ANOTHER: [u8; 3] = [0x0c, 19, 16];
const CFA_FROM_FP_16: [u8; 3] = [0x0c, 29, 16];
/// A frame of 4,096 bytes, with x29 and x30 at the bottom.
const RECORD_BELOW: [u8; 9] = [0x0e, 0x80, 0x20, 0x9d, 0x80, 0x04, 0x9e, 0xff, 0x03];
/// x29 is unchanged, and x30 is at the bottom of 16 bytes.
const RETURN_ALONE: [u8; 4] = [0x08, 29, 0x9e, 2];
/// The return address is signed.
const SIGNED: [u8; 1] = [0x2d];

pub(super) fn usual() -> Option<Rule> {
    Rule::new(Base::Sp, 16, Some(-16))
}

/// The usual rule with [`CFA_OFFSET_32`].
pub(super) fn larger() -> Option<Rule> {
    Rule::new(Base::Sp, 32, Some(-16))
}

#[test]
fn the_usual_frames_have_rules() {
    assert_eq!(rule(&[]), usual());
    assert_eq!(rule(&[&CFA_OFFSET_32]), larger());
    assert_eq!(rule(&[&CFA_FROM_FP_16]), Rule::new(Base::Fp, 16, Some(-16)));
    assert_eq!(rule(&[&RECORD_BELOW]), Rule::new(Base::Sp, 4096, Some(-4096)));
    assert!(rule(&[&RECORD_BELOW]).is_some());
    assert_eq!(rule(&[&RETURN_ALONE]), Rule::new(Base::Sp, 16, None));
    assert_eq!(rule(&[&SIGNED]), usual());
    assert_eq!(rule(&[&SIGNED, &CFA_OFFSET_32, &SIGNED]), larger());
    // Unwinding does not need these registers: x19, x20, d8 and d9.
    assert_eq!(rule(&[&[0x93, 3, 0x94, 4, 0x05, 72, 5, 0x05, 73, 6]]), usual());
}

#[test]
fn a_return_address_lies_where_the_rule_says() {
    assert_eq!(usual().map(Rule::return_offset), Some(-8));
    assert_eq!(Rule::new(Base::Sp, 4096, Some(-4096)).map(Rule::return_offset), Some(-4088));
    assert_eq!(Rule::new(Base::Fp, 4096, Some(-4096)).map(Rule::return_offset), Some(-4088));
    assert_eq!(Rule::new(Base::Sp, 16, None).map(Rule::return_offset), Some(-16));
}

#[test]
fn what_the_rules_do_not_say_exactly_has_none() {
    let strange: [&[u8]; 15] = [
        &CFA_FROM_ANOTHER,
        &[0x0e, 12],                  // not a multiple of eight
        &[0x9e, 3],                   // the return address below the frame pointer
        &[0x9e, 4],                   // the return address apart
        &[0x09, 30, 0],               // the return address in a register
        &[0x08, 30],                  // the return address still in x30
        &[0x9f, 2],                   // sp saved
        &[0x14, 31, 0],               // sp as an offset of the CFA
        &[0x09, 29, 3],               // the frame pointer in another register
        &[0x07, 29],                  // the frame pointer lost
        &[0x14, 29, 2],               // the frame pointer as a value
        &[0x0f, 2, 0x8f, 8],          // the CFA by an expression
        &[0x0f, 3, 0x8d, 0x78, 0x06], // the CFA in memory, and the frame pointer not
        &[0x10, 29, 2, 0x8d, 0],      // the frame pointer by an expression
        &[0x3f],                      // unknown
    ];
    for instructions in strange {
        assert_eq!(rule(&[instructions]), None, "{instructions:x?}");
    }
    // The frame pointer is saved far from the CFA, and not at the address that the CFA is relative to.
    assert_eq!(rule(&[&RECORD_BELOW, &CFA_FROM_FP_16]), None);
    assert_eq!(rule(&[&[0x0a; 9]]), None, "too many rows kept");
    let many: Vec<u8> = (64..96).flat_map(|register| [0x05, register, 4]).collect();
    assert_eq!(rule(&[&many]), None, "too many registers");
}
