//! Incremental unwinding: a walk stops at the first frame of this thread's last stack whose outer frames are unchanged.
//!
//! A frame is the same if its return address, its stack pointer and (where a frame further out depends on it) its rbp
//! are. The frames outside follow from it by rules that hold for ever and from the words that these rules read: return
//! addresses and saved rbps. If these words are unchanged, the rest of the stack is, too: a comparison instead of a
//! rule look-up and a step. So a deep stack costs little more than a shallow one. Frames of objects that may be
//! unloaded, and realigned frames, are walked each time.
//!
//! What is read for every frame is stored densely, apart from the rest: a program that works on much memory evicts it
//! all.

use std::cell::Cell;

use super::known::OF_INNERMOST;
use super::rule::{Rule, UnwindStep};
use crate::record::unwind::registers::Registers;
use crate::record::unwind::stack::{HASH_OF_NONE, HasSpacing, Spacing, SpacingBuffer, Stack, hash_with};

/// Frames that a thread's own has room for; deeper stacks are [`deep`](super::deep)'s.
pub(super) const MOST: usize = 128;

/// Tagged stack pointer: a multiple of eight, with flags in the low bits.
#[derive(Clone, Copy, Debug)]
struct TaggedSp(u64);

impl TaggedSp {
    /// This frame's rbp locates this frame or one further out.
    const NEEDS_BP: u64 = 1;
    /// That rbp was read from the stack.
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

/// The part of a frame that is not read each time.
#[derive(Clone, Copy, Debug)]
struct FrameDetail {
    bp: u64,
    /// Where `bp` was read; 0 if it is the inner frame's.
    bp_from: u64,
    rule: Rule,
    /// Hash of the addresses from the outermost frame to this one.
    hash: u64,
}

const NONE: FrameDetail = FrameDetail { bp: 0, bp_from: 0, rule: Rule::UNPROVEN, hash: HASH_OF_NONE };

/// Frames are stored outermost first. While a stack is taken, the new ones are at the end of the arrays.
/// All zeros is a valid empty value.
#[derive(Clone, Copy, Debug)]
pub(in crate::record::unwind) struct LastStack<const N: usize = MOST> {
    length: usize,
    /// Number of frames, from the outermost, that can be recognised: their rules hold for ever and say everything that
    /// was read.
    sound: usize,
    /// Address of the 0 that ended the stack; 0 if a rule ended it.
    ended_by: u64,
    addresses: [u64; N],
    places: [TaggedSp; N],
    rests: [FrameDetail; N],
}

impl<const N: usize> LastStack<N> {
    pub(super) const fn new() -> Self {
        let (addresses, places, rests) = ([0; N], [TaggedSp(0); N], [NONE; N]);
        Self { length: 0, sound: 0, ended_by: 0, addresses, places, rests }
    }

    /// Takes the frames from `first_step` outwards; `None` if a step cannot be proven or there are too many frames. The
    /// frame inside must be live until this returns; `end`, a multiple of eight, is the end of its stack. `read` is
    /// called for words of the live stack only.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn take(
        &mut self,
        first_step: UnwindStep,
        end: u64,
        mut rule_for: impl FnMut(u64) -> Option<Rule>,
        read: impl Fn(u64) -> u64,
    ) -> Option<Stack<'_>> {
        let mut known = std::mem::take(&mut self.sound);
        let mut first = N;
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
            self.put(first, at, FrameDetail { bp: at.bp, bp_from: step.bp_from, rule, ..NONE });
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

    /// For a thread with another stack.
    pub(super) fn forget(&mut self) {
        self.sound = 0;
    }

    /// The stack pointer of the n-th frame, counted from the outermost one, which is the first.
    pub(super) fn place(&self, n: usize) -> Option<u64> {
        self.places.get(..self.length)?.get(n.checked_sub(1)?).map(|place| place.sp())
    }

    /// Number of the first `known` frames that are not further in than `sp`.
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
        same && (!place.has(TaggedSp::NEEDS_BP) || self.rests.get(n).is_some_and(|rest| rest.bp == at.bp))
    }

    /// Of the first `known` frames, whose innermost is live: the number of frames outside the innermost one that
    /// changed. `None` if all are unchanged.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn changed(&self, known: usize, read: impl Fn(u64) -> u64) -> Option<usize> {
        let outside = known.saturating_sub(1);
        let (Some(places), Some(addresses)) = (self.places.get(..outside), self.addresses.get(..outside)) else {
            return Some(0);
        };
        // By index, which takes fewer instructions than a zip. In range: both slices have this length.
        for n in (0..outside).rev() {
            let place = places[n];
            if read(place.sp() - 8) != addresses[n] || (place.has(TaggedSp::READ_BP) && self.has_other_bp(n, &read)) {
                return Some(n);
            }
        }
        (self.ended_by != 0 && read(self.ended_by) != 0).then_some(0)
    }

    /// Was the rbp that the inner frame saved overwritten?
    #[cold]
    fn has_other_bp(&self, n: usize, read: impl Fn(u64) -> u64) -> bool {
        self.rests.get(n).is_none_or(|rest| read(rest.bp_from) != rest.bp)
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn put(&mut self, n: usize, at: Registers, with: FrameDetail) {
        let all = (self.places.get_mut(n), self.addresses.get_mut(n), self.rests.get_mut(n));
        if let (Some(place), Some(address), Some(rest)) = all {
            *place = TaggedSp(at.sp);
            *address = at.ip;
            *rest = with;
        }
    }

    /// The new inner frames may have saved the rbp of the innermost kept frame at another address.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn read_anew(&mut self, kept: usize, bp_from: u64) {
        let n = kept.wrapping_sub(1);
        if let (Some(place), Some(rest)) = (self.places.get_mut(n), self.rests.get_mut(n))
            && place.has(TaggedSp::NEEDS_BP)
        {
            rest.bp_from = bp_from;
            place.0 = place.0 & !TaggedSp::READ_BP | if bp_from == 0 { 0 } else { TaggedSp::READ_BP };
        }
    }

    /// Joins the first `kept` frames and the new ones, which start at index `first`.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn join(&mut self, kept: usize, first: usize) {
        let outer = kept.wrapping_sub(1);
        let mut hash = self.rests.get(outer).unwrap_or(&NONE).hash;
        let mut needs_bp = self.places.get(outer).is_some_and(|place| place.has(TaggedSp::NEEDS_BP));
        let (mut says_all, mut sound) = (true, kept);
        let addresses = moves(&mut self.addresses, first, kept);
        let frames = moves(&mut self.places, first, kept).zip(moves(&mut self.rests, first, kept));
        for ((from_address, to_address), ((from_place, to_place), (from_rest, to_rest))) in addresses.zip(frames) {
            let (address, mut place, rest) = (from_address.get(), from_place.get(), from_rest.get());
            hash = hash_with(hash, address);
            needs_bp = rest.rule.needs_bp() || (rest.rule.leaves_bp() && needs_bp);
            if needs_bp {
                place.0 |= TaggedSp::NEEDS_BP | if rest.bp_from == 0 { 0 } else { TaggedSp::READ_BP };
            }
            to_address.set(address);
            to_place.set(place);
            to_rest.set(FrameDetail { hash, ..rest });
            says_all &= rest.rule.says_all();
            sound += usize::from(says_all);
        }
        self.length = kept + N - first;
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

impl<const N: usize> HasSpacing for LastStack<N> {
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
        // The stack pointer of a frame is 8 above its return address.
        let end = if self.ended_by == 0 { 0 } else { from_sp(self.ended_by + 8)? };
        Some(Spacing { offsets, bps: bps.get(..count)?, end })
    }
}

/// Pairs of cells, from where new entries are to where they go; the ranges may overlap.
#[cfg_attr(not(debug_assertions), inline(always))]
fn moves<T>(all: &mut [T], first: usize, kept: usize) -> impl Iterator<Item = (&Cell<T>, &Cell<T>)> {
    let cells = Cell::from_mut(all).as_slice_of_cells();
    let (from, to) = (cells.get(first..).unwrap_or(&[]), cells.get(kept..).unwrap_or(&[]));
    from.iter().zip(to)
}
