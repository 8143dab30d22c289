//! Stacks that are known, and whether the one that is to be taken is a certain one of them.
//!
//! Where a frame is found by its stack pointer alone, its address says how far away the next one lies; where it is found
//! by its rbp, that says so, and what its rbp was read from is known. So a stack is the known one if the word at each of
//! the known distances is the known one: no rule is looked for.

use crate::record::unwind::registers::Registers;
use crate::record::unwind::stack::{Known, Spacing};

/// In place of where a frame's rbp was read: it is the innermost one's. No word lies there.
pub(super) const OF_INNERMOST: u32 = u32::MAX;

/// Is this the stack of the frame with these registers and those outside of it? It must be live until this returns,
/// and `end` its stack's. `read` is asked for words of the live part of the stack alone.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(super) fn is_here(known: &Known<'_>, at: Registers, end: u64, read: impl Fn(u64) -> u64) -> bool {
    let Known { addresses, spacing: Spacing { offsets, bps, end: last }, .. } = *known;
    let reach = offsets.first().copied().unwrap_or(0).max(last);
    if at.sp > end || end - at.sp < u64::from(reach) || offsets.len() != addresses.len() {
        return false;
    }
    let return_address = |offset: u32| read(at.sp + u64::from(offset) - 8);
    // From the innermost one on: where two stacks differ, they mostly do so there. By numbers, which takes half as many
    // instructions as going through both at once.
    for n in (0..addresses.len()).rev() {
        if return_address(offsets[n]) != addresses[n] {
            return false;
        }
    }
    let has_bp = |[from, bp]: &[u32; 2]| {
        let found = if *from == OF_INNERMOST { at.bp } else { read(at.sp + u64::from(*from)) };
        found == at.sp + u64::from(*bp)
    };
    bps.iter().all(has_bp) && (last == 0 || return_address(last) == 0)
}
