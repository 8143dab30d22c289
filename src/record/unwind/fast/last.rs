//! The stack that this thread took last: from where the next one comes to a frame of it, both are the same.
//!
//! A frame is where it goes on, its stack pointer, and its rbp if a frame further out is found by that. What lies
//! outside follows from those by rules of modules that stay, and from the words that the rules have read: each
//! frame's return address, and the rbp that some saved. So if these words are what they were, the rest of the
//! stack is what it was, and is not walked: a look at a word in place of a look for a rule and a step.
//!
//! What is looked at of every frame lies close together, apart from what is not: a program that works on much
//! memory leaves none of it near the processor.

use std::cell::Cell;

use super::known::OF_INNERMOST;
use super::rule::{Rule, Step};
use crate::record::unwind::registers::Registers;
use crate::record::unwind::stack::{HASH_OF_NONE, HasSpacing, Spacing, SpacingBuffer, Stack, hash_with};

/// Frames of a stack that is kept; deeper ones are walked as a whole.
pub(super) const MOST: usize = 128;

/// A stack pointer, which is a multiple of eight, and what is known of its frame.
#[derive(Clone, Copy, Debug)]
struct Place(u64);

impl Place {
    /// A frame at or outside of this one is found by this one's rbp.
    const NEEDS_BP: u64 = 1;
    /// Its rbp was read from the stack, and matters.
    const READ_BP: u64 = 2;

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn sp(self) -> u64 {
        self.0 & !7
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn has(self, what: u64) -> bool {
        self.0 & what != 0
    }
}

/// What is not looked at of every frame.
#[derive(Clone, Copy, Debug)]
struct Rest {
    bp: u64,
    /// Where that was read; 0 if it was the inner frame's.
    bp_from: u64,
    rule: Rule,
    /// Of the addresses from the outermost one to this one's.
    hash: u64,
}

const NONE: Rest = Rest { bp: 0, bp_from: 0, rule: Rule::UNPROVEN, hash: HASH_OF_NONE };

/// Frames lie outermost first, from the beginning on. While a stack is taken, its new ones lie at the end.
#[derive(Debug)]
pub(super) struct LastStack {
    /// How many there are.
    length: usize,
    /// So many of them may be found again: those whose rules stay, and say all that was read.
    sound: usize,
    /// Where the 0 was read that ended the stack; 0 if it ended otherwise.
    ended_by: u64,
    addresses: [u64; MOST],
    places: [Place; MOST],
    rests: [Rest; MOST],
}

impl LastStack {
    pub(super) const fn new() -> Self {
        let (addresses, places, rests) = ([0; MOST], [Place(0); MOST], [NONE; MOST]);
        Self { length: 0, sound: 0, ended_by: 0, addresses, places, rests }
    }

    /// Takes the frames from the one on that a first step led to; nothing if a step could not be proven or there are
    /// too many. The frame inside of it must be live until this returns, and `end` its stack's, a multiple of eight.
    /// `read` is asked for words of the live part of the stack alone.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn take(
        &mut self,
        first_step: Step,
        end: u64,
        mut rule_for: impl FnMut(u64) -> Option<Rule>,
        read: impl Fn(u64) -> u64,
    ) -> Option<Stack<'_>> {
        let mut known = std::mem::take(&mut self.sound);
        let mut first = MOST;
        let mut step = first_step;
        let kept = loop {
            let at = step.to;
            if at.ip == 0 {
                self.ended_by = at.sp - 8;
                break 0;
            }
            known = self.outside(known, at.sp);
            if self.is_innermost(known, at) {
                match self.changed(known, &read) {
                    None => break known,
                    Some(outside) => known = outside,
                }
            }
            first = first.checked_sub(1)?;
            let rule = rule_for(at.ip)?;
            self.put(first, at, Rest { bp: at.bp, bp_from: step.bp_from, rule, ..NONE });
            match rule.step(at, end, &read) {
                Some(next) => step = next,
                None if rule.is_outermost() => {
                    self.ended_by = 0;
                    break 0;
                }
                None => return None,
            }
        };
        self.read_anew(kept, step.bp_from);
        self.join(kept, first);
        Some(self.stack())
    }

    /// The same stack once more, if each word is what it was that it was read from; its innermost frame must be live if so.
    pub(super) fn again(&self, read: impl Fn(u64) -> u64) -> Option<Stack<'_>> {
        let innermost = self.length.checked_sub(1).filter(|_| self.sound == self.length)?;
        let same = read(self.places.get(innermost)?.sp() - 8) == *self.addresses.get(innermost)?;
        (same && self.changed(self.length, read).is_none()).then(|| self.stack())
    }

    /// How many of the first `known` frames do not lie further in than `sp`, as new ones that were put in their places
    /// do.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn outside(&self, mut known: usize, sp: u64) -> usize {
        while self.places.get(known.wrapping_sub(1)).is_some_and(|place| place.sp() < sp) {
            known -= 1;
        }
        known
    }

    /// Is the innermost of the first `known` frames the one with these registers?
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn is_innermost(&self, known: usize, at: Registers) -> bool {
        let n = known.wrapping_sub(1);
        let (Some(place), Some(address)) = (self.places.get(n), self.addresses.get(n)) else { return false };
        let same = (place.sp() ^ at.sp) | (*address ^ at.ip) == 0;
        same && (!place.has(Place::NEEDS_BP) || self.rests.get(n).is_some_and(|rest| rest.bp == at.bp))
    }

    /// How many of the first `known` frames, of which the innermost is live, lie outside of the innermost one
    /// that is no longer what it was; nothing if all are.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn changed(&self, known: usize, read: impl Fn(u64) -> u64) -> Option<usize> {
        let outside = known.saturating_sub(1);
        let (Some(places), Some(addresses)) = (self.places.get(..outside), self.addresses.get(..outside)) else {
            return Some(0);
        };
        // By numbers, which takes fewer instructions than going through both at once. In range: both are so long.
        for n in (0..outside).rev() {
            let place = places[n];
            if read(place.sp() - 8) != addresses[n] || (place.has(Place::READ_BP) && self.has_other_bp(n, &read)) {
                return Some(n);
            }
        }
        (self.ended_by != 0 && read(self.ended_by) != 0).then_some(0)
    }

    /// Is the rbp that a frame's inner one saved no longer what it was?
    #[cold]
    fn has_other_bp(&self, n: usize, read: impl Fn(u64) -> u64) -> bool {
        self.rests.get(n).is_none_or(|rest| read(rest.bp_from) != rest.bp)
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn put(&mut self, n: usize, at: Registers, with: Rest) {
        let all = (self.places.get_mut(n), self.addresses.get_mut(n), self.rests.get_mut(n));
        if let (Some(place), Some(address), Some(rest)) = all {
            (*place, *address, *rest) = (Place(at.sp), at.ip, with);
        }
    }

    /// What is inside of the innermost of the kept frames may have saved its rbp elsewhere than what was there.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn read_anew(&mut self, kept: usize, bp_from: u64) {
        let n = kept.wrapping_sub(1);
        if let (Some(place), Some(rest)) = (self.places.get_mut(n), self.rests.get_mut(n))
            && place.has(Place::NEEDS_BP)
        {
            rest.bp_from = bp_from;
            place.0 = place.0 & !Place::READ_BP | if bp_from == 0 { 0 } else { Place::READ_BP };
        }
    }

    /// Makes a stack of the first `kept` frames and the new ones, which begin at `first`.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn join(&mut self, kept: usize, first: usize) {
        let outer = kept.wrapping_sub(1);
        let mut hash = self.rests.get(outer).unwrap_or(&NONE).hash;
        let mut needs_bp = self.places.get(outer).is_some_and(|place| place.has(Place::NEEDS_BP));
        let (mut says_all, mut sound) = (true, kept);
        let addresses = moves(&mut self.addresses, first, kept);
        let frames = moves(&mut self.places, first, kept).zip(moves(&mut self.rests, first, kept));
        for ((from_address, to_address), ((from_place, to_place), (from_rest, to_rest))) in addresses.zip(frames) {
            let (address, mut place, rest) = (from_address.get(), from_place.get(), from_rest.get());
            hash = hash_with(hash, address);
            needs_bp = rest.rule.needs_bp() || (rest.rule.leaves_bp() && needs_bp);
            if needs_bp {
                place.0 |= Place::NEEDS_BP | if rest.bp_from == 0 { 0 } else { Place::READ_BP };
            }
            to_address.set(address);
            to_place.set(place);
            to_rest.set(Rest { hash, ..rest });
            says_all &= rest.rule.says_all();
            sound += usize::from(says_all);
        }
        self.length = kept + MOST - first;
        self.sound = sound;
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn stack(&self) -> Stack<'_> {
        let addresses = self.addresses.get(..self.length).unwrap_or(&[]);
        let hash = self.rests.get(self.length.wrapping_sub(1)).unwrap_or(&NONE).hash;
        let may_go = self.sound != self.length;
        Stack { addresses, hash, shortened: false, may_go, source: Some(self) }
    }
}

impl HasSpacing for LastStack {
    fn spacing<'b>(&self, buffer: &'b mut SpacingBuffer) -> Option<Spacing<'b>> {
        let innermost = self.length.checked_sub(1).filter(|_| self.sound == self.length)?;
        let sp = self.places.get(innermost)?.sp();
        let from_sp = |address: u64| u32::try_from(address.checked_sub(sp)?).ok();
        let SpacingBuffer { offsets, bps } = buffer;
        let places = self.places.get(..self.length)?;
        let offsets = offsets.get_mut(..self.length)?;
        for (offset, place) in offsets.iter_mut().zip(places) {
            *offset = from_sp(place.sp())?;
        }
        let mut count = 0;
        for (n, rest) in self.rests.get(..self.length)?.iter().enumerate().filter(|(_, rest)| rest.rule.needs_bp()) {
            let from = match self.rests.get(n..innermost)?.iter().find(|rest| rest.bp_from != 0) {
                Some(reader) => from_sp(reader.bp_from)?,
                None => OF_INNERMOST,
            };
            *bps.get_mut(count)? = [from, from_sp(rest.bp)?];
            count += 1;
        }
        // A frame's stack pointer is its caller's word's place and one more.
        let end = if self.ended_by == 0 { 0 } else { from_sp(self.ended_by + 8)? };
        Some(Spacing { offsets, bps: bps.get(..count)?, end })
    }
}

/// Where each of the last ones, from `first` on, is and where it goes. Those may be the same places.
#[cfg_attr(not(debug_assertions), inline(always))]
fn moves<T>(all: &mut [T], first: usize, kept: usize) -> impl Iterator<Item = (&Cell<T>, &Cell<T>)> {
    let cells = Cell::from_mut(all).as_slice_of_cells();
    let (from, to) = (cells.get(first..).unwrap_or(&[]), cells.get(kept..).unwrap_or(&[]));
    from.iter().zip(to)
}
