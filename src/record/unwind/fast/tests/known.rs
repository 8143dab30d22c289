//! Recognition of stored stacks. Each stack is recognised while it is there, and no other stack is mistaken for it.

use proptest::prelude::*;

use super::last::{END, Frame, Kind, Machine, OUTERMOST, frame, rule_for};
use crate::record::unwind::fast::known::{OF_INNERMOST, is_here};
use crate::record::unwind::fast::last::LastStack;
use crate::record::unwind::fast::rule::UnwindStep;
use crate::record::unwind::registers::Registers;
use crate::record::unwind::stack::{KnownStack, Spacing, SpacingBuffer};

#[derive(Debug)]
struct Remembered {
    addresses: Vec<u64>,
    offsets: Vec<u32>,
    fps: Vec<[u32; 2]>,
    end: u32,
}

impl Remembered {
    fn known(&self) -> KnownStack<'_> {
        let Self { addresses, offsets, fps, end } = self;
        KnownStack { number: 1, addresses, spacing: Spacing { offsets, fps, end: *end } }
    }
}

fn first_step(machine: &Machine) -> Option<UnwindStep> {
    let start = *machine.frames.last().unwrap();
    rule_for(start.ip, machine.age)?.step(start, END, |address| machine.read(address))
}

/// The machine's stack, if it has a spacing.
fn remembered(machine: &Machine, last: &mut LastStack) -> Option<Remembered> {
    let step = first_step(machine)?;
    let stack = last.take(step, END, |ip| rule_for(ip, machine.age), |address| machine.read(address))?;
    let mut buffer = SpacingBuffer::new();
    let Spacing { offsets, fps, end } = stack.source?.spacing(&mut buffer)?;
    Some(Remembered { addresses: stack.addresses.to_vec(), offsets: offsets.to_vec(), fps: fps.to_vec(), end })
}

fn is_there(machine: &Machine, stack: &Remembered) -> bool {
    first_step(machine).is_some_and(|step| is_here(&stack.known(), step.to, END, |address| machine.read(address)))
}

proptest! {
    #![proptest_config(crate::random::programs(1000))]

    #[test]
    fn a_stack_is_known_again_and_no_other_is_taken_for_it(
        steps in prop::collection::vec((0..6usize, 0..3u64, prop::collection::vec(frame(), 0..6)), 1..40),
    ) {
        let (mut machine, mut last, mut all) = (Machine::new(), LastStack::new(), Vec::<Remembered>::new());
        for (leave, call, enter) in steps {
            machine.leave(leave, call);
            enter.into_iter().for_each(|frame| machine.enter(frame));
            let truth = machine.truth();
            for stack in all.iter().filter(|stack| is_there(&machine, stack)) {
                prop_assert_eq!(&stack.addresses, &truth);
            }
            if let Some(stack) = remembered(&machine, &mut last) {
                prop_assert!(is_there(&machine, &stack), "{:?}", stack);
                all.push(stack);
            }
        }
    }
}

/// Frames located by fp are recognised by its value, wherever that was read.
#[test]
fn frames_of_a_changing_size_are_told_apart() {
    let (mut machine, mut last) = (Machine::new(), LastStack::new());
    let mut enter_all = |machine: &mut Machine, words, saves| {
        machine.leave(9, 0);
        let inner = if saves { Kind::Saves } else { Kind::Plain };
        [Kind::Plain, Kind::ByFp(words), inner, Kind::Plain]
            .into_iter()
            .for_each(|kind| machine.enter(Frame { kind, call: 0, fp: 1 }));
        remembered(machine, &mut last).unwrap()
    };
    for saves in [false, true] {
        let one = enter_all(&mut machine, 1, saves);
        assert_eq!((one.fps.len(), one.fps[0][0] != OF_INNERMOST), (1, saves));
        assert!(is_there(&machine, &one));
        // The same addresses, further apart.
        let other = enter_all(&mut machine, 3, saves);
        assert_eq!(one.addresses, other.addresses);
        assert!(!is_there(&machine, &one) && is_there(&machine, &other));
        enter_all(&mut machine, 1, saves);
        assert!(is_there(&machine, &one) && !is_there(&machine, &other));
    }
}

#[test]
fn what_may_be_unloaded_is_not_known() {
    let (mut machine, mut last) = (Machine::new(), LastStack::new());
    for (kind, known) in [(Kind::Passing, false), (Kind::Realigned, false), (Kind::Plain, true)] {
        machine.leave(9, 0);
        [kind, Kind::Plain].into_iter().for_each(|kind| machine.enter(Frame { kind, call: 0, fp: 1 }));
        machine.enter(Frame { kind: Kind::Plain, call: 0, fp: 1 });
        assert_eq!(remembered(&machine, &mut last).is_some(), known);
    }
}

/// The outermost frame's rule says that there is a caller, but the return address is 0.
#[test]
fn a_stack_that_goes_on_is_not_the_one_that_ended_there() {
    let (mut machine, mut last) = (Machine::new(), LastStack::new());
    machine.frames[0] = Registers { ip: 10, sp: END - 32, fp: 5 };
    (0..3).for_each(|_| machine.enter(Frame { kind: Kind::Plain, call: 0, fp: 1 }));
    let ended = remembered(&machine, &mut last).unwrap();
    assert_eq!(ended.addresses, machine.truth());
    assert!(is_there(&machine, &ended));
    let returns = rule_for(10, 0).unwrap().return_offset();
    machine.write((END - 8).wrapping_add_signed(returns), OUTERMOST);
    assert!(!is_there(&machine, &ended));
    assert_eq!(remembered(&machine, &mut last).unwrap().addresses, [[OUTERMOST].as_slice(), &machine.truth()].concat());
}
