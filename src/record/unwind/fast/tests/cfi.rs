//! Translation of call frame information (CFI) to rules.

use gimli::{BaseAddresses, EhFrame, EndianSlice, NativeEndian, UnwindSection};

use crate::record::unwind::fast::cfi::rule_of_entry;
use crate::record::unwind::fast::rule::{Base, Rule};

const FUNCTION: u64 = 0x1000;
/// The CFA is rsp + 8, the return address right below it.
const USUAL: [u8; 5] = [0x0c, 7, 8, 0x90, 1];
const CFA_OFFSET_32: [u8; 2] = [0x0e, 32];
const CFA_FROM_RBP_16: [u8; 3] = [0x0c, 6, 16];
const RBP_AT_MINUS_16: [u8; 2] = [0x86, 2];
/// The CFA is the word at rbp - 8, the saved rbp is at rbp + 0.
const REALIGNED: [u8; 10] = [0x0f, 3, 0x76, 0x78, 0x06, 0x10, 6, 2, 0x76, 0];

/// A section with one CIE and one entry, for 16 bytes of code.
fn section(augmentation: &str, common: &[u8], instructions: &[u8]) -> Vec<u8> {
    let entry = |body: Vec<u8>| {
        let body = [body.clone(), vec![0; body.len().next_multiple_of(8) - body.len() + 4]].concat();
        [(body.len() as u32).to_ne_bytes().to_vec(), body].concat()
    };
    // Version, augmentation, code and data alignment (1, -8), the return address's register; no data.
    let cie = [&[0, 0, 0, 0, 1], augmentation.as_bytes(), &[0, 1, 0x78, 16, 0], common].concat();
    let mut bytes = entry(cie);
    let back = bytes.len() as u32 + 4;
    let place = [back.to_ne_bytes().as_slice(), &FUNCTION.to_ne_bytes(), &16u64.to_ne_bytes(), &[0]].concat();
    bytes.extend(entry([place, instructions.to_vec()].concat()));
    bytes.extend([0; 4]);
    bytes
}

fn rule_in(bytes: &[u8], address: u64) -> Option<Rule> {
    let section = EhFrame::from(EndianSlice::new(bytes, NativeEndian));
    let bases = BaseAddresses::default().set_eh_frame(0);
    let entry = section.fde_for_address(&bases, address, |section, bases, at| section.cie_from_offset(bases, at));
    rule_of_entry(&entry.unwrap(), &section, &bases, address)
}

fn rule(parts: &[&[u8]]) -> Option<Rule> {
    rule_in(&section("z", &USUAL, &parts.concat()), FUNCTION)
}

#[test]
fn the_usual_frames_have_rules() {
    assert_eq!(rule(&[]), Rule::new(Base::Rsp, 8, None));
    assert_eq!(rule(&[&CFA_OFFSET_32]), Rule::new(Base::Rsp, 32, None));
    assert_eq!(rule(&[&CFA_OFFSET_32, &RBP_AT_MINUS_16]), Rule::new(Base::Rsp, 32, Some(-16)));
    assert_eq!(rule(&[&CFA_FROM_RBP_16, &RBP_AT_MINUS_16]), Rule::new(Base::Rbp, 16, Some(-16)));
    assert_eq!(rule(&[&REALIGNED]), Rule::new(Base::AtRbp, -8, Some(0)));
    // Registers that unwinding does not need.
    assert_eq!(rule(&[&[0x83, 3, 0x8c, 4]]), Rule::new(Base::Rsp, 8, None));
    // rbp is unchanged.
    assert_eq!(rule(&[&[0x08, 6]]), Rule::new(Base::Rsp, 8, None));
}

#[test]
fn a_rule_is_that_of_its_address() {
    // After four bytes of code the frame is larger, after eight as before, after another two it is lost.
    let code = [&[0x44, 0x0a][..], &CFA_OFFSET_32, &[0x44, 0x0b, 0x42, 0x0c, 3, 8]].concat();
    let bytes = section("z", &USUAL, &code);
    let small = Rule::new(Base::Rsp, 8, None);
    for (offset, expected) in [(0, small), (3, small), (4, Rule::new(Base::Rsp, 32, None)), (8, small), (10, None)] {
        assert_eq!(rule_in(&bytes, FUNCTION + offset), expected, "{offset}");
    }
}

#[test]
fn a_frame_without_return_address_is_the_outermost() {
    assert_eq!(rule(&[&[0x07, 16]]), Some(Rule::OUTERMOST));
}

#[test]
fn what_the_rules_do_not_say_exactly_has_none() {
    let strange: [&[u8]; 14] = [
        &[0x0c, 3, 16],         // the CFA from rbx
        &[0x0e, 12],            // not a multiple of eight
        &[0x90, 2],             // the return address elsewhere
        &[0x09, 16, 0],         // the return address in a register
        &[0x08, 16],            // the return address as in the callee
        &[0x87, 2],             // rsp saved
        &[0x14, 7, 0],          // rsp as an offset of the CFA
        &[0x09, 6, 3],          // rbp in another register
        &[0x07, 6],             // rbp lost
        &[0x14, 6, 2],          // rbp as a value
        &[0x0f, 2, 0x77, 8],    // the CFA by another expression
        &REALIGNED[..5],        // realigned, and rbp not beside it
        &[0x10, 6, 2, 0x76, 0], // rbp by an expression, and the CFA not
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

#[test]
fn signal_frames_have_no_rules() {
    assert_eq!(rule_in(&section("zS", &USUAL, &[]), FUNCTION), None);
    assert_eq!(rule_in(&section("z", &USUAL, &[]), FUNCTION), Rule::new(Base::Rsp, 8, None));
}
