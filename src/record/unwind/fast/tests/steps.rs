//! Rules applied to simulated stacks.

use crate::record::unwind::fast::rule::{Base, Rule};
use crate::record::unwind::registers::Registers;

const START: u64 = 0x7ffc_0000_0000;
const END: u64 = START + 64 * 8;

fn address(word: u64) -> u64 {
    START + word * 8
}

/// A word's value is its index plus 1000, unless `words` gives another value.
fn step(rule: Rule, at: Registers, words: &[(u64, u64)]) -> Option<Registers> {
    rule.step(at, END, |asked| {
        assert!(asked.is_multiple_of(8) && asked >= at.sp && asked < END, "{asked:x}");
        let word = (asked - START) / 8;
        words.iter().find(|(place, _)| *place == word).map_or(word + 1000, |(_, value)| *value)
    })
    .map(|step| step.to)
}

fn at(sp: u64, fp: u64) -> Registers {
    Registers { ip: 1, sp, fp }
}

fn rule(base: Base, offset: i64, saved: Option<i64>) -> Rule {
    Rule::new(base, offset, saved).unwrap()
}

/// Without a saved fp, the return address is the outermost word on x86-64, and the lower of two words on aarch64.
const ALONE: u64 = if cfg!(target_arch = "aarch64") { 2 } else { 1 };

#[test]
fn a_frame_from_sp() {
    let frame = step(rule(Base::Sp, 32, None), at(address(10), 77), &[]);
    assert_eq!(frame, Some(Registers { ip: 1014 - ALONE, sp: address(14), fp: 77 }));
    let frame = step(rule(Base::Sp, 32, Some(-16)), at(address(10), 77), &[]);
    assert_eq!(frame, Some(Registers { ip: 1013, sp: address(14), fp: 1012 }));
}

/// Far from the CFA only where compilers put the fp there.
#[test]
fn a_frame_that_saved_its_fp_below_its_variables() {
    for (base, fp) in [(Base::Sp, 77), (Base::Fp, address(10))] {
        let frame = step(rule(base, 32, Some(-32)), at(address(10), fp), &[]);
        let ip = if cfg!(target_arch = "aarch64") { 1011 } else { 1013 };
        assert_eq!(frame, Some(Registers { ip, sp: address(14), fp: 1010 }));
        assert_eq!(Rule::new(base, 4096, Some(-4096)).is_some(), cfg!(target_arch = "aarch64"));
        assert_eq!(Rule::new(base, 4096, Some(-4088)), None);
    }
}

#[test]
fn a_frame_from_fp() {
    let frame = step(rule(Base::Fp, 16, Some(-16)), at(address(3), address(20)), &[]);
    assert_eq!(frame, Some(Registers { ip: 1021, sp: address(22), fp: 1020 }));
}

#[test]
fn a_realigned_frame() {
    let words = [(19, address(30))];
    let frame = step(rule(Base::AtFp, -8, Some(0)), at(address(3), address(20)), &words);
    assert_eq!(frame, Some(Registers { ip: 1030 - ALONE, sp: address(30), fp: 1020 }));
    for cfa in [0, 1, address(3), address(19), address(20), address(30) + 4, END + 8, u64::MAX, u64::MAX - 7] {
        assert_eq!(step(rule(Base::AtFp, -8, Some(0)), at(address(3), address(20)), &[(19, cfa)]), None, "{cfa:x}");
    }
    for fp in [0, 8, START, address(3), END + 8, u64::MAX, address(20) + 1] {
        assert_eq!(step(rule(Base::AtFp, -8, Some(0)), at(address(3), fp), &words), None, "{fp:x}");
    }
}

#[test]
fn a_step_goes_outwards_and_stays_on_the_stack() {
    let sp = address(10);
    for fp in [0, START, sp - 8, sp - 16, sp - 24, sp + 1, END, END + 8, u64::MAX, u64::MAX - 7] {
        assert_eq!(step(rule(Base::Fp, 16, Some(-16)), at(sp, fp), &[]), None, "{fp:x}");
    }
    for offset in [0, -8, -80, 55 * 8, 60_000 * 8] {
        assert_eq!(step(rule(Base::Sp, offset, None), at(sp, 0), &[]), None, "{offset}");
    }
    assert_eq!(step(rule(Base::Sp, 54 * 8, None), at(sp, 0), &[]).map(|frame| frame.sp), Some(END));
    // A saved fp must be in the frame.
    for saved in [-40, 0, 8, -1016] {
        assert_eq!(step(rule(Base::Sp, 32, Some(saved)), at(sp, 0), &[]), None, "{saved}");
    }
}

#[test]
fn only_a_frame_without_caller_ends_a_stack() {
    for rule in [Rule::OUTERMOST, Rule::UNPROVEN, Rule::of_bits(0)] {
        for rule in [rule, rule.that_stays()] {
            assert_eq!(step(rule, at(address(1), address(2)), &[]), None);
            assert_eq!(rule.is_outermost(), rule == Rule::OUTERMOST || rule == Rule::OUTERMOST.that_stays());
        }
    }
    assert!(!rule(Base::AtFp, -8, Some(0)).is_outermost() && !rule(Base::Sp, 8, None).is_outermost());
}

#[test]
fn numbers_that_do_not_fit_make_no_rule() {
    for offset in [4, 12, 1 << 19, -(1 << 19) - 8, i64::MAX - 7, i64::MIN] {
        assert_eq!(Rule::new(Base::Sp, offset, None), None, "{offset}");
    }
    for saved in [1, 1024, -1024, -1032, i64::MIN] {
        assert_eq!(Rule::new(Base::Sp, 16, Some(saved)), None, "{saved}");
    }
    let words = |words: i64| step(rule(Base::Fp, words * 8, None), at(START, address(30)), &[]).map(|frame| frame.sp);
    for offset in ALONE.cast_signed() - 30..=34 {
        assert_eq!(words(offset), Some(address((30 + offset) as u64)), "{offset}");
    }
}
