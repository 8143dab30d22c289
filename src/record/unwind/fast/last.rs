//! Incremental unwinding: a walk stops at the first frame of this thread's last stack whose outer frames are unchanged.
//!
//! A frame is unchanged if its return address and its stack pointer are, and also its fp where a frame further out
//! depends on it. The outer frames follow from such a frame by rules that hold for ever, and from the words that these
//! rules read: return addresses and saved frame pointers. If these words are unchanged, so is the rest of the stack. A
//! comparison then replaces a rule look-up and a step, so a deep stack costs little more than a shallow one. Frames of
//! objects that may be unloaded, and realigned frames, are walked each time.
//!
//! Data that is read for every frame is stored densely, apart from the rest: a memory-intensive program evicts all of
//! it from the cache.

use std::cell::Cell;

use super::known::OF_INNERMOST;
use super::rule::{Rule, UnwindStep};
use crate::record::unwind::arch;
use crate::record::unwind::registers::Registers;
use crate::record::unwind::stack::{HASH_OF_NONE, HasSpacing, Spacing, SpacingBuffer, Stack, hash_with};

/// Number of frames that a thread's own stack has room for. Deeper stacks are in [`deep`](super::deep).
pub(super) const MOST: usize = 128;

/// A frame's stack pointer and the location of the return address to it, packed, with flags in the low bits.
#[derive(Clone, Copy, Debug)]
struct TaggedSp(u64);

impl TaggedSp {
    /// This frame's fp locates this frame or one further out.
    const NEEDS_FP: u64 = 1;
    /// That fp was read from the stack.
    const READ_FP: u64 = 2;

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn of(step: UnwindStep) -> Option<Self> {
        arch::pack(step.to.sp, step.return_from).map(Self)
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn sp(self) -> u64 {
        arch::packed_sp(self.0)
    }

    /// Where the return address to this frame was read.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn return_from(self) -> u64 {
        arch::packed_return_from(self.0)
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn has(self, what: u64) -> bool {
        self.0 & what != 0
    }
}

/// The part of a frame that is not read every time.
#[derive(Clone, Copy, Debug)]
struct FrameDetail {
    fp: u64,
    /// Where `fp` was read; 0 if it is the inner frame's fp.
    fp_from: u64,
    rule: Rule,
    /// Hash of the addresses from the outermost frame to this one.
    hash: u64,
}

const NONE: FrameDetail = FrameDetail { fp: 0, fp_from: 0, rule: Rule::UNPROVEN, hash: HASH_OF_NONE };

/// Frames are stored outermost first. While a stack is taken, the new frames are at the end of the arrays. All zeros is
/// a valid empty value.
#[derive(Clone, Copy, Debug)]
pub(in crate::record::unwind) struct LastStack<const N: usize = MOST> {
    length: usize,
    /// Number of frames, counted from the outermost, that can be recognised: their rules hold for ever and cover every
    /// word that was read.
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

    /// Takes the frames from `first_step` outwards. `None` if a step cannot be proven or there are too many frames.
    ///
    /// The frame that `first_step` leaves must be live until this returns. `end`, a multiple of eight, is the end of
    /// its stack. `read` is called only for words of the live stack.
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
                self.ended_by = step.return_from;
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
            let place = TaggedSp::of(step)?;
            self.put(first, place, at.ip, FrameDetail { fp: at.fp, fp_from: step.fp_from, rule, ..NONE });
            match rule.step(at, end, &read) {
                Some(next) => step = next,
                None if rule.is_outermost() => {
                    self.ended_by = 0;
                    break 0;
                }
                None => return None,
            }
        };
        self.read_anew(kept, step)?;
        self.join(kept, first);
        Some(self.stack())
    }

    /// Forgets the stack, because it is another thread's.
    pub(super) fn forget(&mut self) {
        self.sound = 0;
    }

    /// The stack pointer of the n-th frame, counted from 1 at the outermost one.
    pub(super) fn place(&self, n: usize) -> Option<u64> {
        self.places.get(..self.length)?.get(n.checked_sub(1)?).map(|place| place.sp())
    }

    /// How many of the first `known` frames are at or above `sp`.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn outside(&self, mut known: usize, sp: u64) -> usize {
        while self.places.get(known.wrapping_sub(1)).is_some_and(|place| place.sp() < sp) {
            known -= 1;
        }
        known
    }

    /// Whether the innermost of the first `known` frames has these registers.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn is_innermost(&self, known: usize, at: Registers) -> bool {
        let n = known.wrapping_sub(1);
        let (Some(place), Some(address)) = (self.places.get(n), self.addresses.get(n)) else { return false };
        let same = (place.sp() ^ at.sp) | (*address ^ at.ip) == 0;
        same && (!place.has(TaggedSp::NEEDS_FP) || self.rests.get(n).is_some_and(|rest| rest.fp == at.fp))
    }

    /// Compares the first `known` frames, whose innermost is live. `None` if all are unchanged. Otherwise returns how
    /// many frames are outside the innermost changed one.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn changed(&self, known: usize, read: impl Fn(u64) -> u64) -> Option<usize> {
        let outside = known.saturating_sub(1);
        let (Some(places), Some(addresses)) = (self.places.get(..outside), self.addresses.get(..outside)) else {
            return Some(0);
        };
        // By index, which takes fewer instructions than a zip. In range, because both slices have this length.
        for n in (0..outside).rev() {
            let place = places[n];
            if arch::code_address(read(place.return_from())) != addresses[n]
                || (place.has(TaggedSp::READ_FP) && self.has_other_fp(n, &read))
            {
                return Some(n);
            }
        }
        (self.ended_by != 0 && read(self.ended_by) != 0).then_some(0)
    }

    /// Whether the fp that the inner frame saved was overwritten.
    #[cold]
    fn has_other_fp(&self, n: usize, read: impl Fn(u64) -> u64) -> bool {
        self.rests.get(n).is_none_or(|rest| read(rest.fp_from) != rest.fp)
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn put(&mut self, n: usize, at: TaggedSp, ip: u64, with: FrameDetail) {
        let all = (self.places.get_mut(n), self.addresses.get_mut(n), self.rests.get_mut(n));
        if let (Some(place), Some(address), Some(rest)) = all {
            *place = at;
            *address = ip;
            *rest = with;
        }
    }

    /// The new inner frames may have saved the return address to the innermost kept frame, and its fp, at other
    /// addresses. Stores these addresses. `None` if they do not fit.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn read_anew(&mut self, kept: usize, step: UnwindStep) -> Option<()> {
        let n = kept.wrapping_sub(1);
        if let (Some(place), Some(rest)) = (self.places.get_mut(n), self.rests.get_mut(n)) {
            let tags = if step.fp_from == 0 { TaggedSp::NEEDS_FP } else { TaggedSp::NEEDS_FP | TaggedSp::READ_FP };
            let needs_fp = place.has(TaggedSp::NEEDS_FP);
            if needs_fp {
                rest.fp_from = step.fp_from;
            }
            if needs_fp || !arch::RETURN_IS_OUTERMOST {
                place.0 = TaggedSp::of(step)?.0 | if needs_fp { tags } else { 0 };
            }
        }
        Some(())
    }

    /// Joins the first `kept` frames and the new frames, which start at index `first`.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn join(&mut self, kept: usize, first: usize) {
        let outer = kept.wrapping_sub(1);
        let mut hash = self.rests.get(outer).unwrap_or(&NONE).hash;
        let mut needs_fp = self.places.get(outer).is_some_and(|place| place.has(TaggedSp::NEEDS_FP));
        let (mut says_all, mut sound) = (true, kept);
        let addresses = moves(&mut self.addresses, first, kept);
        let frames = moves(&mut self.places, first, kept).zip(moves(&mut self.rests, first, kept));
        for ((from_address, to_address), ((from_place, to_place), (from_rest, to_rest))) in addresses.zip(frames) {
            let (address, mut place, rest) = (from_address.get(), from_place.get(), from_rest.get());
            hash = hash_with(hash, address);
            needs_fp = rest.rule.needs_fp() || (rest.rule.leaves_fp() && needs_fp);
            if needs_fp {
                place.0 |= TaggedSp::NEEDS_FP | if rest.fp_from == 0 { 0 } else { TaggedSp::READ_FP };
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
        let SpacingBuffer { offsets, fps } = buffer;
        let places = self.places.get(..self.length)?;
        let offsets = offsets.get_mut(..self.length)?;
        for (offset, place) in offsets.iter_mut().zip(places).take(innermost) {
            *offset = from_sp(place.return_from() + 8)?;
        }
        // Nobody reads the return address to the innermost frame again.
        *offsets.last_mut()? = 0;
        let mut count = 0;
        for (n, rest) in self.rests.get(..self.length)?.iter().enumerate().filter(|(_, rest)| rest.rule.needs_fp()) {
            let from = match self.rests.get(n..innermost)?.iter().find(|rest| rest.fp_from != 0) {
                Some(reader) => from_sp(reader.fp_from)?,
                None => OF_INNERMOST,
            };
            *fps.get_mut(count)? = [from, from_sp(rest.fp)?];
            count += 1;
        }
        let end = if self.ended_by == 0 { 0 } else { from_sp(self.ended_by + 8)? };
        Some(Spacing { offsets, fps: fps.get(..count)?, end })
    }
}

/// Pairs of cells: the current place of each new entry, and the place it moves to. The ranges may overlap.
#[cfg_attr(not(debug_assertions), inline(always))]
fn moves<T>(all: &mut [T], first: usize, kept: usize) -> impl Iterator<Item = (&Cell<T>, &Cell<T>)> {
    let cells = Cell::from_mut(all).as_slice_of_cells();
    let (from, to) = (cells.get(first..).unwrap_or(&[]), cells.get(kept..).unwrap_or(&[]));
    from.iter().zip(to)
}
