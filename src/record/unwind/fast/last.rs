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
/// Places that are made free when a stack has more new frames than the last one had inside of the same ones.
const MORE: usize = 8;

/// One line of the processor's cache.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Frame {
    ip: u64,
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

const NONE: Frame = Frame { ip: 0, sp: 0, bp: 0, bp_from: 0, rule: Rule::UNPROVEN, hash: HASH_OF_NONE, needs_bp: 0 };

/// Frames lie outermost first, from the beginning on.
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

/// New frames while a stack is taken, from the innermost one on: they are put where the last stack's innermost ones
/// lay, because most stacks are as deep as the one before.
struct New {
    first: usize,
    end: usize,
}

impl LastStack {
    pub(super) const fn new() -> Self {
        Self { addresses: [0; MOST], frames: [NONE; MOST], length: 0, sound: 0, ended_by: 0 }
    }

    /// Takes the frames outside of the one that has these registers; nothing if a step could not be proven or
    /// there are too many. That frame must be live until this returns, and `end` its stack's. `read` is asked for
    /// words of the live part of the stack alone.
    #[inline(always)]
    pub(super) fn take(
        &mut self,
        start: Registers,
        end: u64,
        mut rule_for: impl FnMut(u64) -> Option<Rule>,
        read: impl Fn(u64) -> u64,
    ) -> Option<Stack<'_>> {
        let mut known = std::mem::take(&mut self.sound);
        let mut new = New { first: self.length, end: self.length };
        let mut step = rule_for(start.ip)?.step(start, end, &read)?;
        let kept = loop {
            let at = step.to;
            if at.ip == 0 {
                self.ended_by = at.sp - 8;
                break 0;
            }
            let (outside, is_innermost) = self.outside(known, at);
            known = outside;
            if is_innermost {
                match self.changed(known, &read) {
                    None => break known,
                    Some(outside) => known = outside,
                }
            }
            if new.first == known {
                match known.checked_sub(1) {
                    Some(fewer) => known = fewer,
                    None => self.make_room(&mut new)?,
                }
            }
            new.first -= 1;
            let rule = rule_for(at.ip)?;
            *self.frames.get_mut(new.first)? =
                Frame { ip: at.ip, sp: at.sp, bp: at.bp, bp_from: step.bp_from, rule, ..NONE };
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
        self.join(kept, &new);
        Some(self.stack())
    }

    /// How many of the first `known` frames do not lie further in than this one; whether it is the innermost of them.
    #[inline(always)]
    fn outside(&self, mut known: usize, at: Registers) -> (usize, bool) {
        while let Some(frame) = self.frames.get(known.wrapping_sub(1)) {
            if frame.sp >= at.sp {
                let differs = (frame.sp ^ at.sp) | (frame.ip ^ at.ip) | ((frame.bp ^ at.bp) & frame.needs_bp);
                return (known, differs == 0);
            }
            known -= 1;
        }
        (0, false)
    }

    /// How many of the first `known` frames, of which the innermost is live, lie outside of the innermost one
    /// that is no longer what it was; nothing if all are.
    #[inline(always)]
    fn changed(&self, known: usize, read: impl Fn(u64) -> u64) -> Option<usize> {
        let differs =
            |frame: &Frame| read(frame.sp - 8) != frame.ip || (frame.bp_from != 0 && read(frame.bp_from) != frame.bp);
        let changed = self.frames.get(..known.saturating_sub(1)).unwrap_or(&[]).iter().rposition(differs);
        let goes_on = || self.ended_by != 0 && read(self.ended_by) != 0;
        changed.or_else(|| goes_on().then_some(0))
    }

    /// Moves the new frames further in, if there is room.
    #[cold]
    fn make_room(&mut self, new: &mut New) -> Option<()> {
        let more = MORE.min(MOST - new.end);
        self.frames.copy_within(new.first..new.end, new.first + more);
        *new = New { first: new.first + more, end: new.end + more };
        (more > 0).then_some(())
    }

    /// Makes a stack of the first `kept` frames and the new ones.
    #[inline(always)]
    fn join(&mut self, kept: usize, new: &New) {
        if new.first != kept {
            self.frames.copy_within(new.first..new.end, kept);
        }
        self.length = kept + new.end - new.first;
        let outer = kept.checked_sub(1).and_then(|n| self.frames.get(n)).unwrap_or(&NONE);
        let (mut hash, mut needs_bp, mut says_all) = (outer.hash, outer.needs_bp, true);
        self.sound = kept;
        let frames = self.frames.get_mut(kept..self.length).unwrap_or_default();
        let addresses = self.addresses.get_mut(kept..self.length).unwrap_or_default();
        for (frame, address) in frames.iter_mut().zip(addresses) {
            hash = hash_with(hash, frame.ip);
            needs_bp = ones(frame.rule.needs_bp()) | (ones(frame.rule.leaves_bp()) & needs_bp);
            (frame.hash, frame.needs_bp, frame.bp_from) = (hash, needs_bp, frame.bp_from & needs_bp);
            *address = frame.ip;
            says_all &= frame.rule.says_all();
            self.sound += usize::from(says_all);
        }
    }

    #[inline]
    fn stack(&self) -> Stack<'_> {
        let addresses = self.addresses.get(..self.length).unwrap_or(&[]);
        let hash = self.length.checked_sub(1).and_then(|n| self.frames.get(n)).map_or(HASH_OF_NONE, |frame| frame.hash);
        Stack { addresses, hash, shortened: false }
    }
}

#[inline(always)]
fn ones(yes: bool) -> u64 {
    u64::from(yes).wrapping_neg()
}
