//! Recognition of a predicted stack by its spacing (see `unwind/stack.rs`), without looking up any rule.
//!
//! Each frame's CFA is at a fixed offset from its sp or from a saved fp. If every return address and every such fp is
//! still at its stored offset, the stack is the stored one.

use crate::record::unwind::arch;
use crate::record::unwind::registers::Registers;
use crate::record::unwind::stack::{KnownStack, Spacing};

/// In a spacing: this fp is in the innermost frame's register, not in a word on the stack.
pub(super) const OF_INNERMOST: u32 = u32::MAX;

/// Whether `known` is the stack outside the frame with the registers `at`. That frame must be live until this
/// function returns; `end` is the end of its stack. `read` is called only for words of the live stack.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(super) fn is_here(known: &KnownStack<'_>, at: Registers, end: u64, read: impl Fn(u64) -> u64) -> bool {
    let KnownStack { addresses, spacing: Spacing { offsets, fps, end: last }, .. } = *known;
    let reach = offsets.first().copied().unwrap_or(0).max(last);
    if at.sp > end || end - at.sp < u64::from(reach) || offsets.len() != addresses.len() {
        return false;
    }
    let return_address = |offset: u32| arch::code_address(read(at.sp + u64::from(offset) - 8));
    let Some((innermost, outside)) = addresses.split_last() else { return false };
    if *innermost != at.ip {
        return false;
    }
    // Innermost first, because most differences are there. By index, which takes half the instructions of a zip.
    for n in (0..outside.len()).rev() {
        if return_address(offsets[n]) != addresses[n] {
            return false;
        }
    }
    let has_fp = |[from, fp]: &[u32; 2]| {
        let found = if *from == OF_INNERMOST { at.fp } else { read(at.sp + u64::from(*from)) };
        found == at.sp + u64::from(*fp)
    };
    fps.iter().all(has_fp) && (last == 0 || return_address(last) == 0)
}
