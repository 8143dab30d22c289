//! The stack that this thread took last: from where the next one comes to a frame of it, both are the same.
//!
//! A frame is where it goes on, its stack pointer, and its rbp if a frame further out is found by that. What lies
//! outside follows from those by rules of modules that stay, and from the words that the rules have read: each
//! frame's return address, and the rbp that some saved. So if these words are what they were, the rest of the
//! stack is what it was, and is not walked: a look at a word in place of a look for a rule and a step.

use super::Registers;
use super::rule::Rule;
use crate::record::unwind::{HASH_OF_NONE, Stack, hash_with};

/// Frames of a stack that is kept; deeper ones are walked as a whole.
pub(super) const MOST: usize = 128;

#[derive(Clone, Copy, Debug)]
struct Frame {
    sp: u64,
    bp: u64,
    /// Where its rbp was read, if that matters; or 0.
    bp_from: u64,
    rule: Rule,
    /// Of the addresses from the outermost one to this one's.
    hash: u64,
    /// All ones if a frame at or outside of this one is found by this one's rbp.
    needs_bp: u64,
}

const NONE: Frame = Frame { sp: 0, bp: 0, bp_from: 0, rule: Rule::UNPROVEN, hash: HASH_OF_NONE, needs_bp: 0 };

/// Frames lie outermost first, from the beginning on. While a stack is taken, its new ones lie at the end.
#[derive(Debug)]
pub(super) struct LastStack {
    addresses: [u64; MOST],
    frames: [Frame; MOST],
    length: usize,
    /// So many of them may be found again: those whose rules stay, and say all that was read.
    sound: usize,
    /// Where the 0 was read that ended the stack; 0 if it ended otherwise.
    ended_by: u64,
}

impl LastStack {
    pub(super) const fn new() -> Self {
        Self { addresses: [0; MOST], frames: [NONE; MOST], length: 0, sound: 0, ended_by: 0 }
    }

    /// Takes the frames outside of the one that has these registers; nothing if a step could not be proven or
    /// there are too many. That frame must be live until this returns, and `end` its stack's. `read` is asked for
    /// words of the live part of the stack alone.
    #[inline]
    pub(super) fn take(
        &mut self,
        start: Registers,
        end: u64,
        mut rule_for: impl FnMut(u64) -> Option<Rule>,
        read: impl Fn(u64) -> u64,
    ) -> Option<Stack<'_>> {
        let mut known = std::mem::take(&mut self.sound);
        self.length = 0;
        let mut first = MOST;
        let mut step = rule_for(start.ip)?.step(start, end, &read)?;
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
            known = known.min(first);
            let rule = rule_for(at.ip)?;
            self.put(first, at, step.bp_from, rule);
            match rule.step(at, end, &read) {
                Some(next) => step = next,
                None if rule.is_outermost() => {
                    self.ended_by = 0;
                    break 0;
                }
                None => return None,
            }
        };
        if let Some(frame) = self.frames.get_mut(kept.wrapping_sub(1)) {
            // What is inside of it now may have saved its rbp elsewhere.
            frame.bp_from = step.bp_from & frame.needs_bp;
        }
        self.join(kept, first);
        Some(self.stack())
    }

    /// How many of the first `known` frames do not lie further in than `sp`.
    #[inline]
    fn outside(&self, mut known: usize, sp: u64) -> usize {
        while self.frames.get(known.wrapping_sub(1)).is_some_and(|frame| frame.sp < sp) {
            known -= 1;
        }
        known
    }

    /// Is the innermost of the first `known` frames the one with these registers?
    #[inline]
    fn is_innermost(&self, known: usize, at: Registers) -> bool {
        let n = known.wrapping_sub(1);
        let (Some(frame), Some(address)) = (self.frames.get(n), self.addresses.get(n)) else { return false };
        ((frame.sp ^ at.sp) | (*address ^ at.ip) | ((frame.bp ^ at.bp) & frame.needs_bp)) == 0
    }

    /// How many of the first `known` frames, of which the innermost is live, lie outside of the innermost one
    /// that is no longer what it was; nothing if all are.
    #[inline]
    fn changed(&self, known: usize, read: impl Fn(u64) -> u64) -> Option<usize> {
        let outside = known.saturating_sub(1);
        let mut frames =
            self.frames.get(..outside).unwrap_or(&[]).iter().zip(self.addresses.get(..outside).unwrap_or(&[]));
        let differs = |(frame, address): (&Frame, &u64)| {
            read(frame.sp - 8) != *address || (frame.bp_from != 0 && read(frame.bp_from) != frame.bp)
        };
        let changed = frames.rposition(differs);
        let goes_on = || self.ended_by != 0 && read(self.ended_by) != 0;
        changed.or_else(|| goes_on().then_some(0))
    }

    #[inline]
    fn put(&mut self, place: usize, at: Registers, bp_from: u64, rule: Rule) {
        if let (Some(frame), Some(address)) = (self.frames.get_mut(place), self.addresses.get_mut(place)) {
            *frame = Frame { sp: at.sp, bp: at.bp, bp_from, rule, ..NONE };
            *address = at.ip;
        }
    }

    /// Makes a stack of the first `kept` frames and the new ones, which begin at `first`.
    #[inline]
    fn join(&mut self, kept: usize, first: usize) {
        let outer = kept.checked_sub(1).and_then(|n| self.frames.get(n)).unwrap_or(&NONE);
        let (mut hash, mut needs_bp, mut says_all) = (outer.hash, outer.needs_bp, true);
        let mut sound = kept;
        self.length = kept + MOST - first;
        for (to, from) in (kept..).zip(first..MOST) {
            let (Some(&address), Some(&frame)) = (self.addresses.get(from), self.frames.get(from)) else { return };
            hash = hash_with(hash, address);
            needs_bp = ones(frame.rule.needs_bp()) | (ones(frame.rule.leaves_bp()) & needs_bp);
            if let (Some(place), Some(there)) = (self.frames.get_mut(to), self.addresses.get_mut(to)) {
                (*place, *there) = (Frame { hash, needs_bp, bp_from: frame.bp_from & needs_bp, ..frame }, address);
            }
            says_all &= frame.rule.says_all();
            sound += usize::from(says_all);
        }
        self.sound = sound;
    }

    #[inline]
    fn stack(&self) -> Stack<'_> {
        let addresses = self.addresses.get(..self.length).unwrap_or(&[]);
        let hash = self.length.checked_sub(1).and_then(|n| self.frames.get(n)).map_or(HASH_OF_NONE, |frame| frame.hash);
        Stack { addresses, hash, shortened: false }
    }
}

#[inline]
fn ones(yes: bool) -> u64 {
    u64::from(yes).wrapping_neg()
}
