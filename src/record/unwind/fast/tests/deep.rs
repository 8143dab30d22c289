//! Deep stacks: the kept frames are those that a complete walk finds.

use std::cell::Cell;

use memtrace_core::snapshot::FRAMES_LEFT_OUT;
use proptest::prelude::*;

use super::last::{END, Frame, Kind, Machine, frame, rule_for};
use super::{Both, both};
use crate::record::unwind::collector::{CapturedStack, Collector};
use crate::record::unwind::fast::last::LastStack;
use crate::record::unwind::fast::rule::Rule;

/// A thread's last stack, with room for `N` frames.
struct Thread<const N: usize>(Box<LastStack<N>>);

/// Has room for every stack here.
type Roomy = Thread<2048>;

impl<const N: usize> Thread<N> {
    fn new() -> Self {
        Self(Box::new(LastStack::new()))
    }

    /// The addresses, innermost first, and the number of rule look-ups.
    fn walk(&mut self, machine: &Machine, depth: usize) -> (Vec<u64>, usize) {
        let (mut stack, asked) = (CapturedStack::empty(), Cell::new(0));
        let rule = |ip: u64| -> Option<Rule> {
            asked.set(asked.get() + 1);
            rule_for(ip, machine.age)
        };
        let start = *machine.frames.last().unwrap();
        let first = rule(start.ip).unwrap().step(start, END, |address| machine.read(address)).unwrap();
        let mut collector = Collector::new(&mut stack, depth);
        assert!(self.0.walk(first, END, &mut collector, rule, |address| machine.read(address)));
        collector.finish();
        (stack.addresses().to_vec(), asked.get())
    }
}

/// The kept frames of a stack, innermost first.
fn kept(mut truth: Vec<u64>, depth: usize) -> Vec<u64> {
    truth.reverse();
    if truth.len() > depth {
        truth.splice(depth - depth / 2..truth.len() - depth / 2, [FRAMES_LEFT_OUT]);
    }
    truth
}

fn enter(machine: &mut Machine, kind: Kind, frames: u64) {
    (0..frames).for_each(|n| machine.enter(Frame { kind, call: n % 3, fp: n }));
}

/// Frames to leave, the next call of the frame that is then innermost, repetitions of the last frame, frames to enter,
/// and frames to keep of the stack that is taken then.
type Step = (usize, u64, u64, Vec<Frame>, usize);

fn is_what_a_walk_finds<const N: usize>(steps: &[Step]) -> Result<(), TestCaseError> {
    let (mut machine, mut thread) = (Machine::new(), Thread::<N>::new());
    for (leave, call, many, enter, depth) in steps {
        machine.leave(*leave, *call);
        enter.iter().for_each(|frame| machine.enter(*frame));
        // Repeats the last frame, as recursion does.
        if let Some(frame) = enter.last().filter(|frame| frame.kind != Kind::Realigned) {
            (0..*many).for_each(|n| machine.enter(Frame { call: n % 3, ..*frame }));
        }
        let truth = machine.truth();
        if !truth.is_empty() {
            prop_assert_eq!(thread.walk(&machine, *depth).0, kept(truth, *depth));
        }
    }
    Ok(())
}

fn step() -> impl Strategy<Value = Step> {
    let depth = prop::sample::select(vec![2, 7, 128, 255, 256]);
    (0..400usize, 0..3u64, 0..400u64, prop::collection::vec(frame(), 0..6), depth)
}

proptest! {
    #![proptest_config(crate::random::programs(300))]

    #[test]
    fn what_is_kept_of_a_deep_stack_is_what_a_walk_finds(steps in prop::collection::vec(step(), 1..40)) {
        is_what_a_walk_finds::<2048>(&steps)?;
        is_what_a_walk_finds::<300>(&steps)?;
    }
}

/// The thread returns to its outermost frames and then enters others at the same addresses, which write to none of
/// their words.
#[test]
fn words_of_frames_that_are_gone_prove_nothing() {
    let frames = |kinds: &str| {
        let kind = |letter| match letter {
            'P' => Kind::Plain,
            'S' => Kind::Saves,
            _ => Kind::ByFp(1),
        };
        kinds.chars().map(|letter| Frame { kind: kind(letter), call: 0, fp: 0 }).collect::<Vec<_>>()
    };
    let found_by_chance = [
        (0, 203, "P", 2),
        (55, 172, "SPR", 2),
        (43, 294, "PPP", 2),
        (208, 31, "PPPP", 2),
        (0, 55, "PPP", 2),
        (199, 59, "PPPPP", 2),
        (0, 197, "P", 2),
        (174, 71, "PP", 2),
        (96, 0, "", 2),
        (329, 233, "SR", 7),
    ];
    let step = |(leave, many, kinds, depth)| (leave, 0, many, frames(kinds), depth);
    is_what_a_walk_finds::<2048>(&found_by_chance.map(step)).unwrap();
    // One large frame with a hole, and inside it the same frames at the same addresses as before.
    let (around, within) = (Frame { kind: Kind::ByFp(3 * 200 - 2), call: 0, fp: 0 }, frames("P"));
    let below = |frame| [vec![frame], within.clone()].concat();
    let with_a_hole = [(0, 0, 900, below(within[0]), 128), (902, 0, 699, below(around), 128)];
    is_what_a_walk_finds::<2048>(&with_a_hole).unwrap();
}

#[test]
fn a_walk_ends_soon_whatever_the_depth() {
    for (levels, most) in [(600, 1000), (1100, 320)] {
        let (mut machine, mut thread) = (Machine::new(), Roomy::new());
        enter(&mut machine, Kind::Plain, levels);
        assert!(thread.walk(&machine, 128).1 > levels as usize);
        // On the way in, at the innermost point, and on the way out.
        for (leave, more) in [(0, 1), (0, 50), (1, 0), (1, 1), (30, 0), (100, 60)] {
            machine.leave(leave, 1);
            enter(&mut machine, Kind::Plain, more);
            let (addresses, asked) = thread.walk(&machine, 128);
            assert_eq!(addresses, kept(machine.truth(), 128));
            assert!(asked < most, "{asked} rules at {levels} levels");
        }
    }
}

/// The same frames at the same addresses, but inside other frames.
#[test]
fn a_stack_with_other_outermost_frames_is_another_one() {
    let (mut machine, mut thread) = (Machine::new(), Roomy::new());
    for call in [0, 1, 0, 2] {
        machine.leave(2000, 0);
        machine.enter(Frame { kind: Kind::Plain, call, fp: 0 });
        enter(&mut machine, Kind::Saves, 700);
        assert_eq!(thread.walk(&machine, 128).0, kept(machine.truth(), 128));
    }
}

/// Frames between the two ends are not kept, but may lead elsewhere.
#[test]
fn what_was_left_meanwhile_is_walked_again() {
    let (mut machine, mut thread) = (Machine::new(), Roomy::new());
    enter(&mut machine, Kind::Plain, 900);
    thread.walk(&machine, 128);
    for leave in [100, 400, 700, 880] {
        machine.leave(leave, 1);
        if machine.frames.len() > 2 {
            assert_eq!(thread.walk(&machine, 128).0, kept(machine.truth(), 128));
        }
        enter(&mut machine, Kind::ByFp(1), 200);
        assert_eq!(thread.walk(&machine, 128).0, kept(machine.truth(), 128));
    }
}

/// This holds whether a walk ended further out or passed over the frames.
#[test]
fn frames_that_are_gone_are_walked_again_though_they_come_back() {
    let gone = [(0, 0), (1300, 200)];
    for (words, frames) in gone {
        let (mut machine, mut thread) = (Machine::new(), Roomy::new());
        enter(&mut machine, Kind::Plain, 900);
        thread.walk(&machine, 128);
        machine.leave(600, 0);
        enter(&mut machine, Kind::ByFp(words), frames.min(1));
        enter(&mut machine, Kind::Plain, frames);
        thread.walk(&machine, 128);
        machine.leave(frames.min(1) as usize + frames as usize, 0);
        enter(&mut machine, Kind::Plain, 600);
        let (addresses, asked) = thread.walk(&machine, 128);
        assert_eq!(addresses, kept(machine.truth(), 128));
        assert!(asked > 500, "{asked} rules with {words} words between");
    }
}

#[inline(never)]
fn down(levels: usize, each: usize, seen: &mut Vec<Both>) {
    if levels.is_multiple_of(each) {
        seen.extend([both(), both()]);
    }
    if levels > 0 {
        std::hint::black_box(down)(levels - 1, each, seen);
        if levels.is_multiple_of(each * 2) {
            seen.push(both());
        }
    }
}

#[test]
fn deep_stacks_on_the_way_in_and_out_are_libgccs() {
    let mut seen = Vec::new();
    down(3000, 97, &mut seen);
    assert!(seen.len() > 70);
    seen.iter().for_each(Both::assert_proven);
}
