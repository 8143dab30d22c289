//! Incremental unwinding over simulated stacks. The result equals that of a complete walk.

use proptest::prelude::*;

use crate::record::unwind::fast::last::{LastStack, MOST};
use crate::record::unwind::fast::rule::{Base, Rule};
use crate::record::unwind::registers::Registers;
use crate::record::unwind::stack::{HASH_OF_NONE, hash_with};

const START: u64 = 0x7ffc_0000_0000;
pub(super) const END: u64 = START + 4096 * 8;
/// Return address of the outermost frame.
pub(super) const OUTERMOST: u64 = 99;

/// A frame to enter: its rule and its contents.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    /// Number of the call that the frame is in.
    pub(super) call: u64,
    /// The frame's fp, if it saved the caller's.
    pub(super) fp: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Leaves fp unchanged.
    Plain,
    /// Uses fp as a number.
    Saves,
    /// Uses fp as a number, and saves the caller's below its variables.
    SavesBelow,
    /// Uses fp as a frame pointer. The frame has this much additional memory.
    ByFp(u64),
    Realigned,
    /// A frame of an object that may be unloaded.
    Passing,
}

/// `age` counts the loads of the object that is unloaded. Its frames are larger after each load.
pub(super) fn rule_for(ip: u64, age: u64) -> Option<Rule> {
    let rule = match ip / 10 {
        1 => Rule::new(Base::Sp, 24, None)?.that_stays(),
        2 => Rule::new(Base::Sp, 32, Some(-16))?.that_stays(),
        3 => Rule::new(Base::Fp, 16, Some(-16))?.that_stays(),
        4 => Rule::new(Base::AtFp, -8, Some(0))?.that_stays(),
        6 => Rule::new(Base::Sp, 48, Some(-48))?.that_stays(),
        5 => Rule::new(Base::Sp, passing(age), None)?,
        9 => Rule::OUTERMOST.that_stays(),
        _ => return None,
    };
    Some(rule)
}

fn passing(age: u64) -> i64 {
    40 + 16 * (age % 3) as i64
}

/// A stack on which frames are entered and left. Old words stay until they are overwritten.
pub(super) struct Machine {
    words: Vec<u64>,
    pub(super) frames: Vec<Registers>,
    pub(super) age: u64,
}

impl Machine {
    pub(super) fn new() -> Self {
        Self { words: vec![0; 4096], frames: vec![Registers { ip: OUTERMOST, sp: END - 16, fp: 5 }], age: 0 }
    }

    pub(super) fn write(&mut self, address: u64, value: u64) {
        self.words[((address - START) / 8) as usize] = value;
    }

    pub(super) fn read(&self, address: u64) -> u64 {
        let live = self.frames.last().unwrap().sp;
        assert!(address.is_multiple_of(8) && address >= live && address < END, "{address:x}");
        self.words[((address - START) / 8) as usize]
    }

    pub(super) fn enter(&mut self, frame: Frame) {
        let outer = *self.frames.last().unwrap();
        if outer.sp < START + 64 * 8 {
            return;
        }
        let cfa = outer.sp;
        let (kind, sp, fp) = match frame.kind {
            Kind::Plain => (1, cfa - 24, outer.fp),
            Kind::Saves => (2, cfa - 32, frame.fp),
            Kind::ByFp(words) => (3, cfa - 16 - words * 8, cfa - 16),
            Kind::Realigned => (4, (cfa - 64) & !127, ((cfa - 64) & !127) + 32),
            Kind::SavesBelow => (6, cfa - 48, frame.fp),
            Kind::Passing => (5, cfa.wrapping_sub_signed(passing(self.age)), outer.fp),
        };
        let rule = rule_for(kind * 10, self.age).unwrap();
        self.write(cfa.wrapping_add_signed(rule.return_offset()), outer.ip);
        match frame.kind {
            Kind::Plain | Kind::Passing => {}
            Kind::Saves | Kind::ByFp(_) => self.write(cfa - 16, outer.fp),
            Kind::SavesBelow => self.write(sp, outer.fp),
            Kind::Realigned => {
                self.write(fp, outer.fp);
                self.write(fp - 8, cfa);
            }
        }
        self.frames.push(Registers { ip: kind * 10 + frame.call, sp, fp });
    }

    /// Returns to one of the frames, which then makes another call.
    pub(super) fn leave(&mut self, frames: usize, call: u64) {
        let left = self.frames.len() - frames.min(self.frames.len() - 1);
        self.frames.truncate(left);
        if !self.frames.iter().any(|frame| frame.ip / 10 == 5) {
            self.age += 1;
        }
        if let Some(frame) = self.frames.last_mut().filter(|_| left > 1) {
            frame.ip = frame.ip / 10 * 10 + call;
        }
    }

    /// Addresses, outermost first. The innermost frame is the one that takes the stack.
    pub(super) fn truth(&self) -> Vec<u64> {
        self.frames.split_last().unwrap().1.iter().map(|frame| frame.ip).collect()
    }
}

fn taken(machine: &Machine, last: &mut LastStack) -> Option<Vec<u64>> {
    let start = *machine.frames.last().unwrap();
    let (rule_for, read) = (|ip| rule_for(ip, machine.age), |address| machine.read(address));
    let first = rule_for(start.ip)?.step(start, END, read)?;
    let stack = last.take(first, END, rule_for, read)?;
    assert_eq!(stack.hash, stack.addresses.iter().fold(HASH_OF_NONE, |hash, ip| hash_with(hash, *ip)));
    Some(stack.addresses.to_vec())
}

pub(super) fn frame() -> impl Strategy<Value = Frame> {
    let kind = prop_oneof![
        4 => Just(Kind::Plain),
        4 => Just(Kind::Saves),
        4 => Just(Kind::SavesBelow),
        4 => (0..4u64).prop_map(Kind::ByFp),
        1 => Just(Kind::Realigned),
        1 => Just(Kind::Passing),
    ];
    // The fp is a number, or may be an address.
    (kind, 0..3u64, prop_oneof![0..3u64, Just(END - 64), Just(END - 256)]).prop_map(|(kind, call, fp)| Frame {
        kind,
        call,
        fp,
    })
}

proptest! {
    #![proptest_config(crate::random::programs(2000))]

    #[test]
    fn what_is_taken_is_what_a_walk_finds(
        steps in prop::collection::vec((0..6usize, 0..3u64, prop::collection::vec(frame(), 0..6)), 1..40),
    ) {
        let (mut machine, mut last) = (Machine::new(), LastStack::new());
        for (leave, call, enter) in steps {
            machine.leave(leave, call);
            enter.into_iter().for_each(|frame| machine.enter(frame));
            let truth = machine.truth();
            let expected = Some(truth).filter(|truth| !truth.is_empty() && truth.len() <= MOST);
            prop_assert_eq!(taken(&machine, &mut last), expected);
        }
    }
}

/// The innermost frames and their return addresses are equal. Only an fp that one of them saved differs.
#[test]
fn a_saved_fp_tells_stacks_apart() {
    let (mut machine, mut last) = (Machine::new(), LastStack::new());
    for (pads, words) in [(1, 4), (2, 1), (1, 4)] {
        machine.leave(9, 0);
        let outer = std::iter::repeat_n(Kind::Plain, pads);
        let frames = outer.chain([Kind::ByFp(words), Kind::Saves, Kind::Plain]);
        frames.for_each(|kind| machine.enter(Frame { kind, call: 0, fp: 1 }));
        assert_eq!(taken(&machine, &mut last), Some(machine.truth()));
    }
}

#[test]
fn deep_stacks_that_have_nothing_in_common_follow_one_another() {
    let (mut machine, mut last) = (Machine::new(), LastStack::new());
    for (kind, depth) in
        [(Kind::Plain, 100), (Kind::Saves, 120), (Kind::Plain, 127), (Kind::Plain, 129), (Kind::Saves, 3)]
    {
        machine.leave(200, 0);
        (0..depth).for_each(|n| machine.enter(Frame { kind, call: n % 3, fp: n }));
        let truth = machine.truth();
        assert_eq!(taken(&machine, &mut last), Some(truth).filter(|truth| truth.len() <= MOST));
    }
}
