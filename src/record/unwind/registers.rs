//! The registers by which a frame's caller is found.
#![expect(unsafe_code, reason = "reads registers")]

use std::arch::asm;

/// What a step needs to know of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Registers {
    /// Where the frame goes on, after the call that it made.
    pub(super) ip: u64,
    pub(super) sp: u64,
    pub(super) bp: u64,
}

impl Registers {
    /// Those of the function that this is written in.
    #[inline(always)]
    pub(super) fn here() -> Self {
        let (ip, sp, bp);
        // SAFETY: copies three registers.
        unsafe {
            asm!(
                "lea {ip}, [rip]",
                "mov {sp}, rsp",
                "mov {bp}, rbp",
                ip = out(reg) ip,
                sp = out(reg) sp,
                bp = out(reg) bp,
                options(nomem, nostack, preserves_flags),
            );
        }
        Self { ip, sp, bp }
    }
}
