//! The registers that unwinding starts from.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(all(
        target_os = "linux",
        any(target_arch = "x86_64", target_arch = "aarch64"),
        target_env = "gnu",
        not(miri)
    )),
    allow(dead_code, reason = "`fast` reads them")
)]
pub(super) struct Registers {
    /// Return address: where the frame continues after its call.
    pub(super) ip: u64,
    pub(super) sp: u64,
    /// Frame pointer.
    pub(super) fp: u64,
}

impl Registers {
    /// Below every stack: the library takes the whole stack.
    #[cfg(not(all(
        target_os = "linux",
        any(target_arch = "x86_64", target_arch = "aarch64"),
        target_env = "gnu",
        not(miri)
    )))]
    pub(super) fn here() -> Self {
        Self { ip: 0, sp: 0, fp: 0 }
    }
}
