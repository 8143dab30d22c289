//! Translation of call frame information (CFI) to rules.

#[cfg(target_arch = "x86_64")]
#[path = "cfi_x86_64.rs"]
mod arch;
#[cfg(target_arch = "aarch64")]
#[path = "cfi_aarch64.rs"]
mod arch;

use gimli::{BaseAddresses, EhFrame, EndianSlice, NativeEndian, UnwindSection};

use self::arch::{CFA_FROM_ANOTHER, CFA_OFFSET_32, RETURN, USUAL, larger, usual};
use crate::record::unwind::arch::VENDOR;
use crate::record::unwind::fast::cfi::rule_of_entry;
use crate::record::unwind::fast::rule::Rule;

const FUNCTION: u64 = 0x1000;

/// A section with one CIE and one entry, for 16 bytes of code.
fn section(augmentation: &str, common: &[u8], instructions: &[u8]) -> Vec<u8> {
    let entry = |body: Vec<u8>| {
        let body = [body.clone(), vec![0; body.len().next_multiple_of(8) - body.len() + 4]].concat();
        [(body.len() as u32).to_ne_bytes().to_vec(), body].concat()
    };
    // Version, augmentation, code and data alignment (1, -8), the return address's register; no data.
    let cie = [&[0, 0, 0, 0, 1], augmentation.as_bytes(), &[0, 1, 0x78, RETURN, 0], common].concat();
    let mut bytes = entry(cie);
    let back = bytes.len() as u32 + 4;
    let place = [back.to_ne_bytes().as_slice(), &FUNCTION.to_ne_bytes(), &16u64.to_ne_bytes(), &[0]].concat();
    bytes.extend(entry([place, instructions.to_vec()].concat()));
    bytes.extend([0; 4]);
    bytes
}

fn rule_in(bytes: &[u8], address: u64) -> Option<Rule> {
    let mut section = EhFrame::from(EndianSlice::new(bytes, NativeEndian));
    section.set_vendor(VENDOR);
    let bases = BaseAddresses::default().set_eh_frame(0);
    let entry = section.fde_for_address(&bases, address, |section, bases, at| section.cie_from_offset(bases, at));
    rule_of_entry(&entry.unwrap(), &section, &bases, address)
}

fn rule(parts: &[&[u8]]) -> Option<Rule> {
    rule_in(&section("z", &USUAL, &parts.concat()), FUNCTION)
}

#[test]
fn a_rule_is_that_of_its_address() {
    // The frame is larger after four bytes of code, as before after eight, and lost after another two.
    let code = [&[0x44, 0x0a][..], &CFA_OFFSET_32, &[0x44, 0x0b, 0x42], &CFA_FROM_ANOTHER].concat();
    let bytes = section("z", &USUAL, &code);
    let small = usual();
    for (offset, expected) in [(0, small), (3, small), (4, larger()), (8, small), (10, None)] {
        assert_eq!(rule_in(&bytes, FUNCTION + offset), expected, "{offset}");
    }
}

#[test]
fn a_frame_without_return_address_is_the_outermost() {
    assert_eq!(rule(&[&[0x07, RETURN]]), Some(Rule::OUTERMOST));
}

#[test]
fn signal_frames_have_no_rules() {
    assert_eq!(rule_in(&section("zS", &USUAL, &[]), FUNCTION), None);
    assert_eq!(rule_in(&section("z", &USUAL, &[]), FUNCTION), usual());
}
