//! The registers that unwinding starts from.
#![cfg_attr(
    all(target_os = "linux", target_arch = "x86_64", target_env = "gnu", not(miri)),
    expect(unsafe_code, reason = "reads registers")
)]

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu", not(miri))),
    expect(dead_code, reason = "`fast` reads them")
)]
pub(super) struct Registers {
    /// Return address: where the frame continues after its call.
    pub(super) ip: u64,
    pub(super) sp: u64,
    pub(super) bp: u64,
}

impl Registers {
    /// Of the function into which this is inlined.
    #[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu", not(miri)))]
    #[inline(always)]
    pub(super) fn here() -> Self {
        let (ip, sp, bp);
        // SAFETY: copies three registers.
        unsafe {
            std::arch::asm!(
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

    /// Below every stack: the library takes the whole stack.
    #[cfg(not(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu", not(miri))))]
    pub(super) fn here() -> Self {
        Self { ip: 0, sp: 0, bp: 0 }
    }
}
